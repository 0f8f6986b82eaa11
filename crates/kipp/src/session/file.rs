//! A session in a file, so that a long prompt need not be evaluated again. All numbers are little-endian:
//!
//! ```text
//! magic     8 bytes "KIPPSESS"
//! version   u32, 1
//! bytes     u64, of the whole file
//! model     32 bytes, a `ModelIdentity`
//! kv, backend, kernels, activations    each a u32 length and that many bytes of text
//! tokens    u32 count and as many u32
//! blocks    u32 count and as many blocks of 32 positions (see `coding`)
//! checksum  32 bytes, the sha256 of all before it
//! ```
//!
//! The blocks are those of the first tokens, up to the first that cannot be coded bit for bit: perhaps none, at most as many
//! as the tokens fill, and the last one perhaps in part. Tokens behind them are evaluated again.
//!
//! A file is taken by the model that it was written with, in the same KV scheme and kernel class, or refused: its numbers
//! would be those of another computation. It holds the text of the session, as ids.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::coding::BlockCoding;
use super::{ModelIdentity, Session, SessionError};
use crate::artifact::cursor::{Cursor, EndOfFile};
use crate::artifact::{Bytes, Escaped};
use crate::batch::Ask;
use crate::kv::{BLOCK_TOKENS, BlockId, KvPool};
use crate::model::Forward;
use crate::token::TokenId;

const MAGIC: &[u8; 8] = b"KIPPSESS";
const VERSION: u32 = 1;
/// Magic, version, length and identity.
const HEAD_BYTES: usize = 8 + 4 + 8 + 32;
const CHECKSUM_BYTES: usize = 32;

/// Why a session cannot be restored from a file.
#[derive(Debug, thiserror::Error)]
pub enum SessionFileError {
    /// Absent or unreadable. Whoever asked for it knows its name.
    #[error("the session file cannot be read: {0}")]
    Unreadable(io::Error),
    /// Some other file.
    #[error("not a session file: it does not begin with KIPPSESS")]
    Magic,
    /// A later Kipp's.
    #[error("session file of version {found}; this build reads version {VERSION}")]
    Version {
        /// The version.
        found: u32,
    },
    /// It is not all there, or there is more.
    #[error(
        "the session file is truncated or longer than it was: it declares {expected} bytes and has {found}"
    )]
    Length {
        /// Declared.
        expected: u64,
        /// There.
        found: usize,
    },
    /// It ends inside what it declares.
    #[error("the session file ends too early: {wanted} bytes expected at byte {offset}, {left} found")]
    Short {
        /// Where.
        offset: usize,
        /// Bytes that should be there.
        wanted: u64,
        /// Bytes that are.
        left: usize,
    },
    /// Some byte is not the one that was written.
    #[error("the session file is damaged: its checksum is not that of its bytes")]
    Checksum,
    /// It was written with other weights or dimensions, those that flags change among them.
    #[error("the session was saved with another model, or with its positions scaled otherwise")]
    OtherModel,
    /// It was written by another computation.
    #[error("the session was saved with another {what}: {file}, here {here}")]
    Differs {
        /// `KV scheme`, `backend`, `kernel class` or `scheme of weights or activations`.
        what: &'static str,
        /// The file's.
        file: Escaped,
        /// The model's.
        here: String,
    },
    /// A count or length that the rest of the file contradicts.
    #[error("the session file declares {what} of {expected}, but has {found}")]
    Size {
        /// Of what.
        what: &'static str,
        /// Declared, or at most possible.
        expected: usize,
        /// There.
        found: usize,
    },
    /// An id that the model has no row for.
    #[error("session file: token {token} at position {position} is outside the vocabulary of {vocab_size}")]
    Token {
        /// Where in the sequence.
        position: usize,
        /// The id.
        token: TokenId,
        /// Rows of the embedding.
        vocab_size: usize,
    },
    /// Keys or values that no computation gives.
    #[error("session file: block {block} holds a value that is not finite")]
    NotFinite {
        /// Its index.
        block: usize,
    },
    /// The KV cache does not hold the session, or the model failed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<EndOfFile> for SessionFileError {
    fn from(EndOfFile { offset, wanted, left }: EndOfFile) -> SessionFileError {
        SessionFileError::Short { offset, wanted, left }
    }
}

/// What the numbers of a session depend on beside the model, each with its name in errors.
fn circumstances(model: &dyn Forward) -> [(&'static str, String); 4] {
    let info = model.describe();
    [
        ("KV scheme", model.kv_scheme().name().to_owned()),
        ("backend", info.name.to_owned()),
        ("kernel class", info.kernels),
        ("scheme of weights or activations", info.activations),
    ]
}

/// Writes the sequence of `tokens` as a session file, with the blocks that `pool` finds for it without a salt: after an
/// engine on that pool has answered, all but the last one. Whoever has a file to write gives it its name when it is whole.
pub fn save(
    model: &dyn Forward,
    pool: &KvPool,
    tokens: &[TokenId],
    identity: &ModelIdentity,
    out: &mut dyn Write,
) -> io::Result<()> {
    let table = pool.adopt(&[], tokens);
    write(model, tokens, table.blocks(), identity, out)
}

impl Session<'_> {
    /// Writes the session as a session file. Whoever has a file to write gives it its name when it is whole.
    pub fn save(&self, identity: &ModelIdentity, out: &mut dyn Write) -> io::Result<()> {
        write(self.model, &self.tokens, self.table.blocks(), identity, out)
    }
}

/// Writes `tokens` and as many `blocks` of theirs as come back bit for bit.
fn write(
    model: &dyn Forward,
    tokens: &[TokenId],
    blocks: &[BlockId],
    identity: &ModelIdentity,
    out: &mut dyn Write,
) -> io::Result<()> {
    // Blocks are read twice, so that only one is held at a time: which can be saved stands before them.
    let coding = BlockCoding::new(model);
    let coded = |index: usize| {
        let block = blocks.get(index)?;
        coding.encode(model.read_block(*block), tokens.len() - index * BLOCK_TOKENS)
    };
    let needed = tokens.len().div_ceil(BLOCK_TOKENS);
    let saved = (0..needed).take_while(|index| coded(*index).is_some()).count();
    let texts = circumstances(model).map(|(_, text)| text);
    let counted: usize = texts.iter().map(|text| 4 + text.len()).sum();
    let body = counted + 4 + 4 * tokens.len() + 4 + saved * coding.block_bytes();

    let mut out = Hashing { out, hash: Sha256::new() };
    out.write_all(MAGIC)?;
    out.number(VERSION as usize)?;
    out.write_all(&((HEAD_BYTES + body + CHECKSUM_BYTES) as u64).to_le_bytes())?;
    out.write_all(&identity.0)?;
    for text in texts {
        out.number(text.len())?;
        out.write_all(text.as_bytes())?;
    }
    out.number(tokens.len())?;
    for token in tokens {
        out.write_all(&token.to_le_bytes())?;
    }
    out.number(saved)?;
    for bytes in (0..saved).filter_map(coded) {
        out.write_all(&bytes)?;
    }
    let Hashing { out, hash } = out;
    out.write_all(&hash.finalize())
}

/// Passes bytes on and takes them into the checksum.
struct Hashing<'a> {
    out: &'a mut dyn Write,
    hash: Sha256,
}

impl Hashing<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.out.write_all(bytes)
    }

    fn number(&mut self, number: usize) -> io::Result<()> {
        let number = u32::try_from(number).map_err(io::Error::other)?;
        self.write_all(&number.to_le_bytes())
    }
}

/// A session file whose bytes are those that were written.
#[derive(Clone, Debug)]
pub struct SessionFile {
    bytes: Bytes,
    model: ModelIdentity,
    /// As [`circumstances`] orders them.
    circumstances: [String; 4],
    tokens: Vec<TokenId>,
    blocks: usize,
    /// Where the blocks lie.
    data: Range<usize>,
}

impl SessionFile {
    /// Maps a file and checks it.
    pub fn open(path: &Path) -> Result<SessionFile, SessionFileError> {
        SessionFile::parse(Bytes::open(path).map_err(SessionFileError::Unreadable)?)
    }

    /// Checks bytes.
    pub fn parse(bytes: Bytes) -> Result<SessionFile, SessionFileError> {
        let mut cursor = Cursor::new(&bytes);
        if cursor.array().ok().as_ref() != Some(MAGIC) {
            return Err(SessionFileError::Magic);
        }
        match cursor.u32()? {
            VERSION => {}
            found => return Err(SessionFileError::Version { found }),
        }
        let (expected, found) = (cursor.u64()?, bytes.len());
        if expected != found as u64 {
            return Err(SessionFileError::Length { expected, found });
        }
        let body = bytes.len() - cursor.offset();
        if body < CHECKSUM_BYTES {
            let (offset, wanted) = (cursor.offset(), CHECKSUM_BYTES as u64);
            return Err(SessionFileError::Short { offset, wanted, left: body });
        }
        let end = bytes.len() - CHECKSUM_BYTES;
        if Sha256::digest(&bytes[..end])[..] != bytes[end..] {
            return Err(SessionFileError::Checksum);
        }
        let mut cursor = Cursor::new(&bytes[..end]);
        cursor.take(MAGIC.len() as u64 + 4 + 8)?;
        let model = ModelIdentity(cursor.array()?);
        let mut circumstances: [String; 4] = Default::default();
        for text in &mut circumstances {
            let length = cursor.u32()?;
            *text = String::from_utf8_lossy(cursor.take(u64::from(length))?).into_owned();
        }
        let count = cursor.u32()?;
        let tokens = cursor.take(u64::from(count) * 4)?.as_chunks().0;
        let tokens = tokens.iter().map(|token| TokenId::from_le_bytes(*token)).collect();
        let blocks = cursor.u32()? as usize;
        let data = cursor.offset()..end;
        Ok(SessionFile { model, circumstances, tokens, blocks, data, bytes: bytes.clone() })
    }

    /// The tokens of the session.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The model that it was saved with.
    pub fn identity(&self) -> ModelIdentity {
        self.model
    }

    /// The session as it was when it was saved, on a model of that `identity`; its blocks come from `pool`.
    pub fn restore<'m>(
        &self,
        model: &'m mut dyn Forward,
        pool: &KvPool,
        identity: &ModelIdentity,
    ) -> Result<Session<'m>, SessionFileError> {
        self.check(model, identity)?;
        let saved = (self.blocks * BLOCK_TOKENS).min(self.tokens.len());
        let mut session = Session::new(model, pool);
        session.table.reserve(saved).map_err(SessionError::from)?;
        self.write_blocks(session.model, session.table.blocks())?;
        session.tokens.extend_from_slice(&self.tokens[..saved]);
        session.evaluate(&self.tokens[saved..], |_| Ask::Nothing)?;
        Ok(session)
    }

    /// Makes the whole blocks of the session findable in `pool`, for whoever asks for its tokens without a salt: an engine
    /// on that pool adopts them. How many tokens they hold; the rest is evaluated again, with the same bits.
    pub fn publish(
        &self,
        model: &mut dyn Forward,
        pool: &KvPool,
        identity: &ModelIdentity,
    ) -> Result<usize, SessionFileError> {
        self.check(model, identity)?;
        let whole = self.blocks.min(self.tokens.len() / BLOCK_TOKENS);
        let tokens = &self.tokens[..whole * BLOCK_TOKENS];
        let mut table = pool.table();
        table.reserve(tokens.len()).map_err(SessionError::from)?;
        self.write_blocks(model, table.blocks())?;
        table.publish(tokens);
        Ok(tokens.len())
    }

    /// Writes the saved blocks to these, as far as both reach.
    fn write_blocks(&self, model: &mut dyn Forward, blocks: &[BlockId]) -> Result<(), SessionFileError> {
        let coding = BlockCoding::new(model);
        let data = self.bytes[self.data.clone()].chunks_exact(coding.block_bytes());
        for (index, (bytes, block)) in data.zip(blocks).enumerate() {
            let values = coding.decode(bytes).ok_or(SessionFileError::NotFinite { block: index })?;
            model.write_block(*block, &values);
        }
        Ok(())
    }

    /// Everything that can be wrong before a block is written.
    fn check(&self, model: &dyn Forward, identity: &ModelIdentity) -> Result<(), SessionFileError> {
        // The identity last: it differs with nearly everything, and says least.
        for ((what, here), file) in circumstances(model).into_iter().zip(&self.circumstances) {
            if here != *file {
                return Err(SessionFileError::Differs { what, file: Escaped::text(file), here });
            }
        }
        if self.model != *identity {
            return Err(SessionFileError::OtherModel);
        }
        let vocab_size = model.spec().vocab_size;
        let mut tokens = self.tokens.iter().copied().enumerate();
        if let Some((position, token)) = tokens.find(|(_, token)| *token as usize >= vocab_size) {
            return Err(SessionFileError::Token { position, token, vocab_size });
        }
        let most = self.tokens.len().div_ceil(BLOCK_TOKENS);
        if self.blocks > most {
            return Err(SessionFileError::Size { what: "blocks", expected: most, found: self.blocks });
        }
        let expected = self.blocks * BlockCoding::new(model).block_bytes();
        if self.data.len() != expected {
            return Err(SessionFileError::Size { what: "bytes of blocks", expected, found: self.data.len() });
        }
        Ok(())
    }
}
