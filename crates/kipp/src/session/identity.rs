//! Which model a saved session belongs to.

use sha2::{Digest, Sha256};

use crate::artifact::Artifact;
use crate::spec::ModelSpec;

/// Pieces of a matrix that are looked at, from its beginning to its end: of the largest checkpoint 30 MB, where all of
/// its 65 GB would have to come from the disk.
const PIECES: usize = 16;

/// Bytes of a piece: a page.
const PIECE_BYTES: usize = 4 << 10;

/// A fingerprint of a model: its dimensions, with what flags changed of them, and pieces of all its weights.
///
/// It tells models apart that somebody may mistake for each other: another size, scheme, revision or fine-tune, another
/// scaling of positions. It is no proof against a file that was made to deceive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ModelIdentity(pub(super) [u8; 32]);

impl ModelIdentity {
    /// Of the weights of `artifact`, evaluated with the dimensions of `spec`.
    pub fn new(artifact: &Artifact, spec: &ModelSpec) -> ModelIdentity {
        let mut hash = Sha256::new();
        hash.update(format!("{spec:?}"));
        let weights = artifact.weights();
        for matrix in weights.matrices() {
            update(&mut hash, matrix.scheme.name(), matrix.bytes);
        }
        for vector in weights.vectors() {
            // As numbers: one file keeps norms in bf16, another made from it in f32.
            update(&mut hash, "", bytemuck::cast_slice(&vector.decode()));
        }
        ModelIdentity(hash.finalize().into())
    }
}

/// Lengths stand before what they measure, so that no two models give the same bytes to hash. The tensor's name is no
/// part of it: a folder and the GGUF file made from it are one model.
fn update(hash: &mut Sha256, scheme: &str, bytes: &[u8]) {
    hash.update((scheme.len() as u64).to_le_bytes());
    hash.update(scheme);
    hash.update((bytes.len() as u64).to_le_bytes());
    if bytes.len() <= PIECES * PIECE_BYTES {
        hash.update(bytes);
        return;
    }
    let last = bytes.len() - PIECE_BYTES;
    for piece in 0..PIECES {
        hash.update(&bytes[last / (PIECES - 1) * piece..][..PIECE_BYTES]);
    }
}

/// The first bytes, as people compare them.
impl std::fmt::Display for ModelIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for ModelIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ModelIdentity({self})")
    }
}
