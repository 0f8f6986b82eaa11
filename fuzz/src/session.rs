//! A session file of any bytes: parsing it, and restoring an accepted one on a model of fixed shape.

use kipp::ModelSpec;
use kipp::artifact::Bytes;
use kipp::backend::{BackendError, BackendInfo};
use kipp::batch::{Batch, Outputs};
use kipp::kv::{BlockId, KvPool, KvScheme};
use kipp::model::Forward;
use kipp::session::SessionFile;
use sha2::{Digest, Sha256};

/// Blocks of the store.
const BLOCKS: usize = 4;

/// Restores the bytes as they are, and under a length and a checksum of their own, which no fuzzer finds. A restored
/// session saves the same tokens again.
///
/// # Panics
/// Where a restored session is not the one in the file.
pub fn session(bytes: &[u8]) {
    restore(bytes.to_vec());
    let mut sealed = bytes.to_vec();
    if let Some(length) = sealed.get_mut(12..20) {
        length.copy_from_slice(&(bytes.len() as u64 + 32).to_le_bytes());
    }
    let checksum = Sha256::digest(&sealed);
    sealed.extend(checksum);
    restore(sealed);
}

fn restore(bytes: Vec<u8>) {
    let Ok(file) = SessionFile::parse(Bytes::from(bytes)) else { return };
    for kv in KvScheme::ALL {
        let mut model = Shape::new(*kv);
        let pool = KvPool::new(BLOCKS);
        let Ok(session) = file.restore(&mut model, &pool, &file.identity()) else { continue };
        assert_eq!(session.tokens(), file.tokens());
        let published = file.publish(&mut Shape::new(*kv), &KvPool::new(BLOCKS), &file.identity());
        assert!(published.is_ok_and(|tokens| tokens <= file.tokens().len()));
        let mut again = Vec::new();
        assert!(session.save(&file.identity(), &mut again).is_ok());
        assert!(SessionFile::parse(Bytes::from(again)).is_ok_and(|again| again.tokens() == file.tokens()));
    }
}

/// A model that keeps blocks and evaluates nothing.
struct Shape {
    spec: ModelSpec,
    kv: KvScheme,
    blocks: Vec<Vec<f32>>,
}

impl Shape {
    fn new(kv: KvScheme) -> Shape {
        let spec = ModelSpec {
            n_layers: 1,
            hidden_size: 2,
            intermediate_size: 2,
            n_heads: 1,
            n_kv_heads: 1,
            head_dim: 2,
            vocab_size: 300,
            rope_theta: 1e6,
            rms_norm_eps: 1e-6,
            max_position_embeddings: 128,
            tie_word_embeddings: true,
            rope_scaling: None,
        };
        Shape { spec, kv, blocks: vec![vec![0.0; 128]; BLOCKS] }
    }
}

impl Forward for Shape {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn describe(&self) -> BackendInfo {
        let (kernels, activations) = ("none".to_owned(), "f32".to_owned());
        BackendInfo { name: "shape", kernels, activations, threads: 1, demoted: Vec::new() }
    }

    fn kv_scheme(&self) -> KvScheme {
        self.kv
    }

    fn kv_blocks(&self) -> usize {
        BLOCKS
    }

    fn max_rows(&self) -> usize {
        16
    }

    fn submit(&mut self, _batch: &Batch) -> Result<(), BackendError> {
        Ok(())
    }

    fn wait(&mut self, _outputs: &mut Outputs) -> Result<(), BackendError> {
        Ok(())
    }

    fn read_block(&self, block: BlockId) -> Vec<f32> {
        self.blocks[block as usize].clone()
    }

    fn write_block(&mut self, block: BlockId, values: &[f32]) {
        self.blocks[block as usize].copy_from_slice(values);
    }
}
