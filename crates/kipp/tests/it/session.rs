//! Sessions saved to a file and restored: the same bits go on, and any other file is refused by what is wrong with it.

use kipp::artifact::{Artifact, Bytes};
use kipp::backend::cpu::{CpuBackend, CpuOptions};
use kipp::backend::oracle::OracleForward;
use kipp::backend::{BackendError, BackendInfo};
use kipp::batch::{Batch, Outputs};
use kipp::gates::gate_tokens;
use kipp::kv::{BLOCK_TOKENS, BlockId, KvPool, KvScheme};
use kipp::model::{Forward, Model, ModelOptions};
use kipp::session::{ModelIdentity, Session, SessionError, SessionFile, SessionFileError, save};
use kipp::{ModelSpec, TokenId};
use kipp_kernels::{Activations, KernelClass};
use sha2::{Digest, Sha256};

use crate::paths::repository;

const TINY: &str = "models/kipp-tiny/kipp-tiny.gguf";
/// Widths that are no multiple of a group.
const ODD: &str = "testdata/odd/no-group-of-32";

struct Subject {
    artifact: Artifact,
    options: CpuOptions,
}

impl Subject {
    fn open(path: &str) -> Subject {
        let artifact = Artifact::open(repository(path)).unwrap();
        Subject { artifact, options: CpuOptions { threads: Some(2), ..CpuOptions::default() } }
    }

    fn spec(&self) -> &ModelSpec {
        self.artifact.spec()
    }

    fn identity(&self) -> ModelIdentity {
        ModelIdentity::new(&self.artifact, self.spec())
    }

    fn model(&self, kv: KvScheme) -> Model<CpuBackend> {
        let backend = CpuBackend::new(self.options).unwrap();
        let room = ModelOptions { kv, kv_blocks: 8, max_rows: 64 };
        Model::load(&self.artifact, self.spec().clone(), backend, room, &mut |_, _| {}).unwrap()
    }

    /// A session of 70 tokens, with tokens that were rolled back behind them, and its file.
    fn saved(&self, model: &mut dyn Forward) -> Vec<u8> {
        let pool = KvPool::new(model.kv_blocks());
        let mut session = Session::new(model, &pool);
        self.begin(&mut session);
        let mut file = Vec::new();
        session.save(&self.identity(), &mut file).unwrap();
        file
    }

    fn begin(&self, session: &mut Session<'_>) {
        let tokens = gate_tokens(self.spec().vocab_size, 77);
        session.append(&tokens).unwrap();
        session.truncate(70);
    }

    /// The logits of the ten tokens that follow.
    fn go_on(&self, session: &mut Session<'_>) -> Vec<Vec<u32>> {
        let tokens = gate_tokens(self.spec().vocab_size, 87);
        let next = |token: &TokenId| session.append(&[*token]).unwrap().iter().map(|x| x.to_bits()).collect();
        tokens[77..].iter().map(next).collect()
    }

    fn restore(&self, file: &[u8], model: &mut dyn Forward) -> Result<Vec<Vec<u32>>, SessionFileError> {
        let pool = KvPool::new(model.kv_blocks());
        // Other blocks than those that it was saved from.
        let mut others = pool.table();
        others.reserve(3 * BLOCK_TOKENS).unwrap();
        let file = SessionFile::parse(Bytes::from(file.to_vec()))?;
        let mut session = file.restore(model, &pool, &self.identity())?;
        assert_eq!(session.tokens(), &gate_tokens(self.spec().vocab_size, 77)[..70]);
        Ok(self.go_on(&mut session))
    }
}

/// Counts the rows that are evaluated.
struct Counting {
    inner: Model<CpuBackend>,
    rows: usize,
    /// A block with a group that does not come back as it was.
    damaged: Option<BlockId>,
}

impl Forward for Counting {
    fn spec(&self) -> &ModelSpec {
        self.inner.spec()
    }
    fn describe(&self) -> BackendInfo {
        self.inner.describe()
    }
    fn kv_scheme(&self) -> KvScheme {
        self.inner.kv_scheme()
    }
    fn kv_blocks(&self) -> usize {
        self.inner.kv_blocks()
    }
    fn max_rows(&self) -> usize {
        self.inner.max_rows()
    }
    fn submit(&mut self, batch: &Batch) -> Result<(), BackendError> {
        self.rows += batch.tokens.len();
        self.inner.submit(batch)
    }
    fn wait(&mut self, outputs: &mut Outputs) -> Result<(), BackendError> {
        self.inner.wait(outputs)
    }
    fn read_block(&self, block: BlockId) -> Vec<f32> {
        let mut values = self.inner.read_block(block);
        if self.damaged == Some(block) {
            // A group whose scale was rounded up to two of the smallest f16, 2^-24: from its largest value another
            // scale would be made.
            values[..32].fill(0.0);
            values[0] = 95.0 * 2f32.powi(-23);
        }
        values
    }
    fn write_block(&mut self, block: BlockId, values: &[f32]) {
        self.inner.write_block(block, values);
    }
}

fn counting(inner: Model<CpuBackend>) -> Counting {
    Counting { inner, rows: 0, damaged: None }
}

#[test]
fn a_restored_session_goes_on_with_the_same_bits() {
    for path in [TINY, ODD] {
        let subject = Subject::open(path);
        for kv in KvScheme::ALL.iter().copied() {
            let mut model = subject.model(kv);
            let pool = KvPool::new(model.kv_blocks());
            let mut session = Session::new(&mut model, &pool);
            subject.begin(&mut session);
            let uninterrupted = subject.go_on(&mut session);
            drop(session);

            let file = subject.saved(&mut model);
            let mut fresh = counting(subject.model(kv));
            assert_eq!(subject.restore(&file, &mut fresh).unwrap(), uninterrupted, "{path} {}", kv.name());
            assert_eq!(fresh.rows, 10, "{path} {}: nothing is evaluated again", kv.name());
            // What was rolled back is in no file.
            let again = subject.saved(&mut fresh);
            assert_eq!(again, file, "{path} {}", kv.name());
        }
    }
}

/// A block that would not come back bit for bit is not saved, with all after it; those are evaluated again.
#[test]
fn what_cannot_be_saved_is_evaluated_again() {
    let subject = Subject::open(TINY);
    let mut model = counting(subject.model(KvScheme::Q8_0));
    let whole = subject.saved(&mut model);
    let expected = subject.restore(&whole, &mut model).unwrap();
    model.damaged = Some(1);
    let part = subject.saved(&mut model);
    assert!(part.len() < whole.len() / 2, "{} of {} bytes", part.len(), whole.len());
    let mut fresh = counting(subject.model(KvScheme::Q8_0));
    assert_eq!(subject.restore(&part, &mut fresh).unwrap(), expected);
    assert_eq!(fresh.rows, 70 - BLOCK_TOKENS + 10);
}

/// What an engine does: blocks that a file made findable are adopted, and saved again without being evaluated.
#[test]
fn published_blocks_are_found_and_saved_again() {
    let subject = Subject::open(TINY);
    for kv in KvScheme::ALL.iter().copied() {
        let file = subject.saved(&mut subject.model(kv));
        let expected = subject.restore(&file, &mut subject.model(kv)).unwrap();
        let parsed = SessionFile::parse(Bytes::from(file)).unwrap();
        let mut fresh = counting(subject.model(kv));
        let pool = KvPool::new(fresh.kv_blocks());
        let published = parsed.publish(&mut fresh, &pool, &subject.identity()).unwrap();
        assert_eq!(published, 70 / BLOCK_TOKENS * BLOCK_TOKENS);
        assert_eq!(pool.lookup(&[], parsed.tokens()), published);
        let mut again = Vec::new();
        save(&fresh, &pool, parsed.tokens(), &subject.identity(), &mut again).unwrap();
        assert_eq!(fresh.rows, 0);
        let mut restored = counting(subject.model(kv));
        assert_eq!(subject.restore(&again, &mut restored).unwrap(), expected, "{}", kv.name());
        assert_eq!(restored.rows, 70 - published + 10);
    }
    let small = KvPool::new(1);
    let parsed = SessionFile::parse(Bytes::from(subject.saved(&mut subject.model(KvScheme::F32)))).unwrap();
    let refused = parsed.publish(&mut subject.model(KvScheme::F32), &small, &subject.identity());
    assert!(matches!(refused, Err(SessionFileError::Session(SessionError::Kv(_)))));
}

/// The oracle keeps tokens in its blocks: its file holds no blocks at all.
#[test]
fn the_oracle_evaluates_again() {
    let subject = Subject::open(ODD);
    let room = ModelOptions { kv: KvScheme::Bf16, kv_blocks: 8, max_rows: 96 };
    let oracle = || OracleForward::new(&subject.artifact, subject.spec().clone(), room);
    let file = subject.saved(&mut oracle());
    assert!(file.len() < 1_000);
    let pool = KvPool::new(8);
    let (mut whole, mut restored) = (oracle(), oracle());
    let mut session = Session::new(&mut whole, &pool);
    subject.begin(&mut session);
    let expected = session.append(&[7]).unwrap().to_vec();
    let file = SessionFile::parse(Bytes::from(file)).unwrap();
    let pool = KvPool::new(8);
    let mut session = file.restore(&mut restored, &pool, &subject.identity()).unwrap();
    assert_eq!(session.append(&[7]).unwrap(), expected);
}

#[test]
fn another_model_scheme_or_class_is_refused_by_name() {
    let subject = Subject::open(ODD);
    let file = subject.saved(&mut subject.model(KvScheme::Bf16));
    let refused = |by: &Subject, model: &mut dyn Forward| match by.restore(&file, model).unwrap_err() {
        SessionFileError::Differs { what, .. } => what,
        SessionFileError::OtherModel => "model",
        other => panic!("{other}"),
    };
    let other = Subject::open("testdata/odd/tied-5-over-1");
    assert_eq!(refused(&other, &mut other.model(KvScheme::Bf16)), "model");
    assert_eq!(refused(&subject, &mut subject.model(KvScheme::F32)), "KV scheme");
    let room = ModelOptions { kv: KvScheme::Bf16, kv_blocks: 8, max_rows: 96 };
    let mut oracle = OracleForward::new(&subject.artifact, subject.spec().clone(), room);
    assert_eq!(refused(&subject, &mut oracle), "backend");
    let with = |options: CpuOptions| Subject { artifact: subject.artifact.clone(), options };
    let coded = with(CpuOptions { activations: Some(Activations::F32), ..subject.options });
    assert_eq!(refused(&coded, &mut coded.model(KvScheme::Bf16)), "scheme of weights or activations");
    if KernelClass::best() != KernelClass::Scalar {
        let class = with(CpuOptions { class: Some(KernelClass::Scalar), ..subject.options });
        assert_eq!(refused(&class, &mut class.model(KvScheme::Bf16)), "kernel class");
    }
    // Dimensions that a flag changed are another model; one weight is too.
    let mut spec = subject.spec().clone();
    spec.rope_theta *= 2.0;
    assert_ne!(ModelIdentity::new(&subject.artifact, &spec), subject.identity());
}

#[test]
fn a_folder_and_the_file_made_from_it_are_one_model() {
    let [file, folder] = [TINY, "models/kipp-tiny"].map(|path| Subject::open(path).identity());
    assert_eq!(file, folder);
}

/// Where the texts begin, after magic, version, length and identity.
const HEAD: usize = 52;

/// The length and the checksum over bytes that somebody changed.
fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let length = body.len() as u64;
    body[12..20].copy_from_slice(&length.to_le_bytes());
    body.truncate(body.len() - 32);
    let sum = Sha256::digest(&body);
    body.extend(sum);
    body
}

#[test]
fn damaged_and_hostile_files_are_refused() {
    let subject = Subject::open(ODD);
    let mut model = subject.model(KvScheme::F32);
    let file = subject.saved(&mut model);
    let mut refuse = |file: &[u8]| subject.restore(file, &mut model).unwrap_err();

    for end in (0..file.len()).step_by(file.len() / 97) {
        refuse(&file[..end]);
        let mut damaged = file.clone();
        damaged[end] ^= 1;
        refuse(&damaged);
    }
    assert!(matches!(refuse(b"GGUF"), SessionFileError::Magic));
    let (expected, found) = (file.len() as u64, file.len() - 100);
    let truncated = refuse(&file[..found]);
    assert!(
        matches!(truncated, SessionFileError::Length { expected: e, found: f } if (e, f) == (expected, found))
    );
    assert!(matches!(refuse(&[&file[..], b"\n"].concat()), SessionFileError::Length { .. }));
    let mut damaged = file.clone();
    damaged[expected as usize / 2] ^= 4;
    assert!(matches!(refuse(&damaged), SessionFileError::Checksum));
    let changed = |at: usize, with: &[u8]| {
        let mut changed = file.clone();
        changed[at..at + with.len()].copy_from_slice(with);
        sealed(changed)
    };
    assert!(matches!(refuse(&changed(8, &[2])), SessionFileError::Version { found: 2 }));
    // A length that no file holds allocates nothing.
    assert!(matches!(refuse(&changed(HEAD, &[255; 4])), SessionFileError::Short { .. }));
    let count = HEAD + texts(&file);
    assert!(matches!(refuse(&changed(count, &[255; 4])), SessionFileError::Short { .. }));
    assert!(matches!(refuse(&changed(count + 8, &[255; 4])), SessionFileError::Token { position: 1, .. }));
    let blocks = count + 4 + 70 * 4;
    assert_eq!(file[blocks], 3);
    assert!(matches!(refuse(&changed(blocks, &[4])), SessionFileError::Size { what: "blocks", .. }));
    assert!(matches!(refuse(&changed(blocks, &[2])), SessionFileError::Size { what: "bytes of blocks", .. }));
    let nan = f32::NAN.to_le_bytes();
    assert!(matches!(refuse(&changed(blocks + 4, &nan)), SessionFileError::NotFinite { block: 0 }));
    // More tokens than the cache holds.
    let mut long = file[..count].to_vec();
    long.extend(400u32.to_le_bytes());
    long.extend([0; 400 * 4 + 4 + 32]);
    assert!(matches!(refuse(&sealed(long)), SessionFileError::Session(SessionError::Kv(_))));
}

/// Bytes of the four texts with their lengths.
fn texts(file: &[u8]) -> usize {
    let mut at = HEAD;
    for _ in 0..4 {
        at += 4 + u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    }
    at - HEAD
}
