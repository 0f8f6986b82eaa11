//! Rows of activations on a backend, made by the operation that the forward pass makes them with: an embedding of random
//! ids. So nothing here needs a way into a backend that the forward pass does not have.

use anyhow::Result;
use kipp::ModelSpec;
use kipp::artifact::Matrix;
use kipp::backend::cpu::CpuBackend;
use kipp::backend::{Backend, KvShape};
use kipp::batch::{Ask, Batch, Outputs};
use kipp::kv::{BLOCK_TOKENS, BlockId, KvScheme};
use kipp::model::Rope;
use kipp_kernels::Scheme;
use kipp_kernels::conformance::numbers;

type Rows = <CpuBackend as Backend>::Rows;
type Step = <CpuBackend as Backend>::Step;
type KvStore = <CpuBackend as Backend>::KvStore;

/// Rows of the table that ids are taken from.
const TABLE_ROWS: usize = 64;

/// A step of one sequence, and the keys and values that it sees.
pub(super) struct Sequence {
    pub(super) step: Step,
    pub(super) kv: KvStore,
    /// Layers of the store.
    pub(super) layers: usize,
}

impl Sequence {
    /// `rows` rows after `depth` positions, over `layers` layers whose keys and values are random.
    pub(super) fn new(
        backend: &mut CpuBackend,
        spec: &ModelSpec,
        scheme: KvScheme,
        [depth, rows, layers]: [usize; 3],
    ) -> Result<Sequence> {
        let blocks = (depth + rows).div_ceil(BLOCK_TOKENS);
        let ModelSpec { n_kv_heads, head_dim, .. } = *spec;
        let mut kv = backend.kv_store(KvShape { scheme, blocks, layers, n_kv_heads, head_dim })?;
        // Memory that was never written is one page of zeros, and always in the cache.
        let values = numbers(layers * 2 * BLOCK_TOKENS * spec.kv_width(), 3);
        let table: Vec<BlockId> = (0..blocks as BlockId).collect();
        for block in &table {
            backend.write_block(&mut kv, *block, &values);
        }
        let mut batch = Batch::default();
        let ids: Vec<u32> = (0..rows).map(|row| (row % TABLE_ROWS) as u32).collect();
        batch.push(&ids, depth, &table, Ask::Nothing);
        let step = backend.begin(&mut kv, &batch, &Rope::new(spec))?;
        Ok(Sequence { step, kv, layers })
    }

    /// The step's rows of random activations.
    pub(super) fn rows(&self, backend: &mut CpuBackend, rows: usize, width: usize) -> Result<Rows> {
        let values = numbers(TABLE_ROWS * width, 7);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let matrix =
            Matrix { name: "activations", scheme: Scheme::F32, rows: TABLE_ROWS, cols: width, bytes: &bytes };
        let table = backend.matrix(&matrix)?;
        backend.seal();
        let mut x = backend.rows(rows, width)?;
        backend.embed(&self.step, &table, &mut x);
        Ok(x)
    }

    /// Ends the step. Until then a backend may keep the calling thread on one core, and probes would run on it alone.
    pub(super) fn end(mut self, backend: &mut CpuBackend) -> Result<()> {
        backend.finish(&mut self.step)?;
        Ok(backend.wait(self.step, &mut Outputs::default())?)
    }
}
