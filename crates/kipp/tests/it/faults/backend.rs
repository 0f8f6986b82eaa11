//! The CPU backend with one fault. Rotation, storing and attention each get a step of their own, made from a batch that
//! the fault changed; everything else is done by the true step.

use std::collections::BTreeMap;

use kipp::artifact::{BindingError, Matrix};
use kipp::backend::cpu::{CpuBackend, CpuRows, CpuStep};
use kipp::backend::{Backend, BackendError, BackendInfo, KvShape, Product};
use kipp::batch::{Batch, Outputs, Segment};
use kipp::kv::{BLOCK_TOKENS, BlockId};
use kipp::model::Rope;

use super::Fault;

type CpuMatrix = <CpuBackend as Backend>::Matrix;
type CpuKvStore = <CpuBackend as Backend>::KvStore;

pub(super) struct FaultyBackend {
    inner: CpuBackend,
    fault: Fault,
    n_kv_heads: usize,
    /// The tables of the step before.
    tables: Vec<Vec<BlockId>>,
    /// How far each sequence, known by its first block, ever came.
    ends: BTreeMap<BlockId, usize>,
}

pub(super) struct FaultyStep {
    own: CpuStep,
    rotate: CpuStep,
    store: CpuStep,
    attend: CpuStep,
}

impl FaultyBackend {
    pub(super) fn new(inner: CpuBackend, n_kv_heads: usize, fault: Fault) -> FaultyBackend {
        FaultyBackend { inner, fault, n_kv_heads, tables: Vec::new(), ends: BTreeMap::new() }
    }

    fn rotation(&self, batch: &mut Batch) {
        if self.fault == Fault::PositionsOffByOne {
            for s in batch.segments.iter_mut().filter(|s| s.start > 0) {
                s.start += 1;
                // Only its angles are used, but each position must have a slot.
                s.table.push(s.table[0]);
            }
        }
    }

    /// One segment a row, so that each can go to any slot of any block.
    fn storing(&self, batch: &mut Batch) {
        let mut rows = Vec::new();
        for segment in &batch.segments {
            let count = segment.rows.len();
            for (i, (mut block, mut slot)) in segment.slots().enumerate() {
                let position = segment.start + i;
                match self.fault {
                    // Reading one slot beside what was written is writing one slot beside what is read.
                    Fault::WrongReadSlot => slot = (slot + 1) % BLOCK_TOKENS,
                    Fault::MissedRollover if slot == 0 && position > 0 => {
                        block = segment.table[position / BLOCK_TOKENS - 1];
                    }
                    Fault::LastRowLost if i > 0 && i + 1 == count && slot > 0 => slot -= 1,
                    _ => {}
                }
                let row = segment.rows.start + i;
                rows.push(Segment { rows: row..row + 1, start: slot, table: vec![block] });
            }
        }
        batch.segments = rows;
    }

    fn attending(&mut self, batch: &mut Batch) {
        match self.fault {
            Fault::WrongReadBlock => {
                for table in batch.segments.iter_mut().map(|s| &mut s.table).filter(|t| t.len() > 1) {
                    table[1] = table[0];
                }
            }
            Fault::MaskOffByOne => {
                for s in &mut batch.segments {
                    s.start = (s.start + 1).min(s.table.len() * BLOCK_TOKENS - s.rows.len());
                }
            }
            Fault::NeighboursTable => {
                for pair in batch.segments.chunk_by_mut(|a, b| a.table.len() == b.table.len()) {
                    if let [a, b, ..] = pair {
                        std::mem::swap(&mut a.table, &mut b.table);
                    }
                }
            }
            Fault::StaleTable => {
                let now: Vec<Vec<BlockId>> = batch.segments.iter().map(|s| s.table.clone()).collect();
                for (s, before) in batch.segments.iter_mut().zip(&self.tables) {
                    let known = before.len().min(s.table.len());
                    s.table[..known].copy_from_slice(&before[..known]);
                }
                self.tables = now;
            }
            Fault::NoSuchBlock => {
                for table in batch.segments.iter_mut().skip(2).map(|s| &mut s.table) {
                    table[0] = BlockId::MAX;
                }
            }
            Fault::RollbackForgotten => {
                for s in &mut batch.segments {
                    let end = self.ends.entry(s.table[0]).or_default();
                    *end = if s.start == 0 { s.rows.len() } else { (s.start + s.rows.len()).max(*end) };
                    let last = *end;
                    s.start = (last - s.rows.len()).min(s.table.len() * BLOCK_TOKENS - s.rows.len());
                }
            }
            _ => {}
        }
    }

    /// The key and value heads in another order, which is the same as mapping query heads to them wrongly.
    fn heads_turned(&self, matrix: &Matrix<'_>) -> Option<Vec<u8>> {
        let kv = ["attn_k.", "attn_v.", "k_proj.", "v_proj."].iter().any(|part| matrix.name.contains(part));
        (self.fault == Fault::WrongKvHead && kv).then(|| {
            let mut bytes = matrix.bytes.to_vec();
            bytes.rotate_left(matrix.bytes.len() / self.n_kv_heads);
            bytes
        })
    }
}

impl Backend for FaultyBackend {
    type Matrix = CpuMatrix;
    type Vector = Vec<f32>;
    type Rows = CpuRows;
    type KvStore = CpuKvStore;
    type Step = FaultyStep;

    fn describe(&self) -> BackendInfo {
        self.inner.describe()
    }

    fn check_finite(&mut self, matrix: &Matrix<'_>) -> Result<(), BindingError> {
        self.inner.check_finite(matrix)
    }

    fn matrix(&mut self, matrix: &Matrix<'_>) -> Result<CpuMatrix, BackendError> {
        match self.heads_turned(matrix) {
            Some(bytes) => self.inner.matrix(&Matrix { bytes: &bytes, ..*matrix }),
            None => self.inner.matrix(matrix),
        }
    }

    fn seal(&mut self) {
        self.inner.seal();
    }

    fn vector(&mut self, values: &[f32]) -> Result<Vec<f32>, BackendError> {
        self.inner.vector(values)
    }

    fn rows(&mut self, max_rows: usize, width: usize) -> Result<CpuRows, BackendError> {
        self.inner.rows(max_rows, width)
    }

    fn kv_store(&mut self, shape: KvShape) -> Result<CpuKvStore, BackendError> {
        self.inner.kv_store(shape)
    }

    fn begin(&mut self, kv: &mut CpuKvStore, batch: &Batch, rope: &Rope) -> Result<FaultyStep, BackendError> {
        let own = self.inner.begin(kv, batch, rope)?;
        let plain = Batch { zero: Vec::new(), copy: Vec::new(), ..batch.clone() };
        let [mut rotate, mut store, mut attend] = [plain.clone(), plain.clone(), plain];
        self.rotation(&mut rotate);
        self.storing(&mut store);
        self.attending(&mut attend);
        let mut begin = |batch| self.inner.begin(kv, &batch, rope);
        Ok(FaultyStep { own, rotate: begin(rotate)?, store: begin(store)?, attend: begin(attend)? })
    }

    fn embed(&mut self, step: &FaultyStep, table: &CpuMatrix, x: &mut CpuRows) {
        self.inner.embed(&step.own, table, x);
    }

    fn rms_norm(&mut self, x: &CpuRows, weight: &Vec<f32>, eps: f32, y: &mut CpuRows) {
        self.inner.rms_norm(x, weight, eps, y);
    }

    fn linear(&mut self, x: &CpuRows, products: &mut [Product<'_, Self>]) {
        let mut products: Vec<Product<'_, CpuBackend>> = products
            .iter_mut()
            .map(|product| Product { matrix: product.matrix, out: &mut *product.out })
            .collect();
        self.inner.linear(x, &mut products);
    }

    fn norm_rope(&mut self, step: &FaultyStep, x: &mut CpuRows, weight: &Vec<f32>, eps: f32) {
        self.inner.norm_rope(&step.rotate, x, weight, eps);
    }

    fn write_kv(&mut self, step: &FaultyStep, kv: &mut CpuKvStore, layer: usize, k: &CpuRows, v: &CpuRows) {
        let (k, v) = if self.fault == Fault::KeysAndValuesSwapped { (v, k) } else { (k, v) };
        self.inner.write_kv(&step.store, kv, layer, k, v);
    }

    fn attention(
        &mut self,
        step: &FaultyStep,
        kv: &CpuKvStore,
        layer: usize,
        q: &CpuRows,
        out: &mut CpuRows,
    ) {
        let layer = layer.saturating_sub(usize::from(self.fault == Fault::WrongLayer));
        self.inner.attention(&step.attend, kv, layer, q, out);
    }

    fn swiglu(&mut self, gate: &mut CpuRows, up: &CpuRows) {
        self.inner.swiglu(gate, up);
    }

    fn add(&mut self, x: &mut CpuRows, y: &CpuRows) {
        self.inner.add(x, y);
    }

    fn gather(&mut self, step: &FaultyStep, x: &CpuRows, out: &mut CpuRows) {
        self.inner.gather(&step.own, x, out);
    }

    fn outputs(&mut self, step: &mut FaultyStep, hidden: &CpuRows, head: &CpuMatrix) {
        self.inner.outputs(&mut step.own, hidden, head);
    }

    fn finish(&mut self, step: &mut FaultyStep) -> Result<(), BackendError> {
        self.inner.finish(&mut step.own)
    }

    fn wait(&mut self, step: FaultyStep, outputs: &mut Outputs) -> Result<(), BackendError> {
        self.inner.wait(step.own, outputs)
    }

    fn read_block(&self, kv: &CpuKvStore, block: BlockId) -> Vec<f32> {
        self.inner.read_block(kv, block)
    }

    fn write_block(&mut self, kv: &mut CpuKvStore, block: BlockId, values: &[f32]) {
        self.inner.write_block(kv, block, values);
    }
}
