//! The CPU as a [`Backend`]: prepared tiles, a thread pool, and the kernel class that was chosen at start. All lane code
//! is in `kipp-kernels`; here work is divided.

mod affinity;
mod attend;
mod cores;
mod kv_store;
mod linear;
mod memory;
mod threads;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use kipp_kernels::kernels::{self, KernelClass, Kernels};
use kipp_kernels::{Activations, Scheme};

pub use cores::default_threads;

use self::affinity::Elsewhere;
use self::kv_store::CpuKvStore;
use self::linear::{CodedInput, CpuMatrix};
use self::memory::WeightMemory;
use self::threads::Pool;
use super::{Backend, BackendError, BackendInfo, KvShape, Product};
use crate::answer::answer;
use crate::artifact::{self, BindingError};
use crate::batch::{Answer, Ask, Batch, Outputs, Segment};
use crate::kv::BlockId;
use crate::model::Rope;
use crate::sampling::logprobs;

/// Rows of logits at once: enough to read the output head once for many rows, little enough that 151,936 logits a row
/// stay below 20 MB.
const LOGIT_ROWS: usize = 32;

/// Parts that each thread gets of the rows of an elementwise operation, so that one that is disturbed does not keep the
/// others waiting.
const PARTS_A_THREAD: usize = 4;

/// Values of a part at least: some two microseconds of the cheapest operation, more than it costs to start a region.
const PART_VALUES: usize = 16 << 10;

/// File bytes that a thread looks through at a time for weights that are not finite: some hundred parts of a large
/// matrix, each long enough that taking it costs nothing.
const CHECK_BYTES: usize = 256 << 10;

/// What a user may choose of the CPU backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads; [`default_threads`] when absent.
    pub threads: Option<usize>,
    /// The kernel class; the best that this machine runs when absent.
    pub class: Option<KernelClass>,
    /// The class of attention alone; that of the rest when absent.
    pub attention: Option<KernelClass>,
    /// How activations are coded; each scheme's own way when absent.
    pub activations: Option<Activations>,
}

/// The CPU.
pub struct CpuBackend {
    kernels: &'static dyn Kernels,
    attention: &'static dyn Kernels,
    activations: Option<Activations>,
    /// The coding that each loaded scheme got, for `describe`.
    codings: BTreeMap<Scheme, Activations>,
    pool: Pool,
    /// Where the calling thread goes back to after the step.
    caller: Option<Elsewhere>,
    weights: WeightMemory,
    coded: CodedInput,
    attention_scratch: attend::Scratch,
    /// `[LOGIT_ROWS, vocab_size]`
    logits: CpuRows,
}

impl CpuBackend {
    /// Chooses kernels and starts the threads.
    pub fn new(options: CpuOptions) -> Result<CpuBackend, BackendError> {
        let class = options.class.unwrap_or_else(KernelClass::best);
        let kernels = kernels_of(class)?;
        let attention = kernels_of(options.attention.unwrap_or(class))?;
        let pool = Pool::new(options.threads.unwrap_or_else(default_threads));
        Ok(CpuBackend {
            kernels,
            attention,
            activations: options.activations,
            codings: BTreeMap::new(),
            attention_scratch: attend::Scratch::default(),
            pool,
            caller: None,
            weights: WeightMemory::default(),
            coded: CodedInput::default(),
            logits: CpuRows { data: Vec::new(), rows: 0, width: 0 },
        })
    }

    /// Calls `work` for each row of `out`. Threads take runs of rows; a part that is done sooner than a thread is called
    /// is not worth calling one for.
    fn for_each_row(&mut self, out: &mut CpuRows, work: impl Fn(usize, &mut [f32]) + Sync) {
        let width = out.width.max(1);
        let parts_wanted = self.pool.threads() * PARTS_A_THREAD;
        let part_rows = out.rows.div_ceil(parts_wanted).max(PART_VALUES / width).max(1);
        let parts = out.filled_mut().chunks_mut(part_rows * width).enumerate();
        self.pool.for_each(parts, |_, (part, values)| {
            for (row, values) in values.chunks_exact_mut(width).enumerate() {
                work(part * part_rows + row, values);
            }
        });
    }
}

impl CpuBackend {
    /// Answers rows whose logits are there: each thread some rows, or spans of the only one.
    fn answers(&mut self, asks: &[(usize, Ask)], hidden: &CpuRows, first: usize) -> Vec<Answer> {
        let logits = &self.logits;
        if let [(_, ask)] = asks
            && *ask != Ask::Hidden
        {
            let pool = &mut self.pool;
            let mut on_all_threads = |logits: &[f32], each: &(dyn Fn(&[f32]) -> f64 + Sync)| {
                let spans = logits.chunks(logprobs::SPAN);
                let mut results = vec![0.0; spans.len()];
                pool.for_each(spans.zip(&mut results), |_, (span, result)| *result = each(span));
                results
            };
            return vec![answer(*ask, logits.row(0), &mut on_all_threads)];
        }
        let mut answers: Vec<Answer> = vec![Answer::Argmax(0); asks.len()];
        self.pool.for_each(answers.iter_mut().zip(asks).enumerate(), |_, (i, (slot, (_, ask)))| {
            *slot = match ask {
                Ask::Hidden => Answer::Hidden(hidden.row(first + i).to_vec()),
                ask => answer(*ask, logits.row(i), &mut logprobs::in_turn),
            };
        });
        answers
    }
}

/// The kernels of a class, or what this machine could run instead.
fn kernels_of(class: KernelClass) -> Result<&'static dyn Kernels, BackendError> {
    kernels::select(class).ok_or_else(|| {
        let available: Vec<&str> = KernelClass::available().iter().map(|class| class.name()).collect();
        BackendError::Class { class: class.name(), available: available.join(", ") }
    })
}

/// `[rows, width]`, in a buffer for the most rows a step may have.
pub struct CpuRows {
    data: Vec<f32>,
    rows: usize,
    width: usize,
}

impl CpuRows {
    fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.width..][..self.width]
    }

    fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.data[row * self.width..][..self.width]
    }

    fn filled(&self) -> &[f32] {
        &self.data[..self.rows * self.width]
    }

    fn filled_mut(&mut self) -> &mut [f32] {
        &mut self.data[..self.rows * self.width]
    }
}

/// What the operations of one step share.
pub struct CpuStep {
    batch: Batch,
    /// Physical block and slot of each row.
    slots: Vec<(BlockId, usize)>,
    /// `[rows, head_dim / 2]`
    cos: Vec<f32>,
    /// `[rows, head_dim / 2]`
    sin: Vec<f32>,
    answers: Vec<(usize, Answer)>,
}

impl Backend for CpuBackend {
    type Matrix = CpuMatrix;
    type Vector = Vec<f32>;
    type Rows = CpuRows;
    type KvStore = CpuKvStore;
    type Step = CpuStep;

    fn describe(&self) -> BackendInfo {
        let codings =
            self.codings.iter().map(|(scheme, coding)| format!("{}:{}", scheme.name(), coding.name()));
        BackendInfo {
            name: "cpu",
            kernels: match (self.kernels.class(), self.attention.class()) {
                (class, attention) if class == attention => class.name().to_owned(),
                (class, attention) => format!("matmul={},attention={}", class.name(), attention.name()),
            },
            activations: codings.collect::<Vec<_>>().join(" "),
            threads: self.pool.threads(),
            demoted: Vec::new(),
        }
    }

    fn check_finite(&mut self, matrix: &artifact::Matrix<'_>) -> Result<(), BindingError> {
        let row_bytes = (matrix.bytes.len() / matrix.rows.max(1)).max(1);
        let part_rows = (CHECK_BYTES / row_bytes).max(1);
        // Neighbouring rows are one long row: groups never cross rows.
        let first_bad = AtomicUsize::new(usize::MAX);
        let parts = matrix.bytes.chunks(part_rows * row_bytes).enumerate();
        self.pool.for_each(parts, |_, (part, bytes)| {
            if let Some(at) = matrix.scheme.find_non_finite(bytes) {
                first_bad.fetch_min(part * part_rows * matrix.cols + at, Ordering::Relaxed);
            }
        });
        match first_bad.into_inner() {
            usize::MAX => Ok(()),
            index => Err(BindingError::NotFinite { tensor: matrix.name.into(), index }),
        }
    }

    fn matrix(&mut self, matrix: &artifact::Matrix<'_>) -> Result<CpuMatrix, BackendError> {
        // The coarsest coding is lowered to the scheme's own.
        let coding = self.kernels.coding(matrix.scheme, self.activations.unwrap_or(Activations::S8));
        self.codings.insert(matrix.scheme, coding.activations());
        CpuMatrix::prepare(matrix, coding, &mut self.pool, &mut self.weights)
    }

    fn seal(&mut self) {
        self.weights.close();
    }

    fn vector(&mut self, values: &[f32]) -> Result<Vec<f32>, BackendError> {
        Ok(values.to_vec())
    }

    fn rows(&mut self, max_rows: usize, width: usize) -> Result<CpuRows, BackendError> {
        let bytes = max_rows.saturating_mul(width).saturating_mul(size_of::<f32>());
        let mut data = Vec::new();
        let refused = |_| BackendError::Memory { what: format!("{max_rows} rows of activations"), bytes };
        data.try_reserve_exact(max_rows.saturating_mul(width)).map_err(refused)?;
        data.resize(max_rows * width, 0.0);
        Ok(CpuRows { data, rows: 0, width })
    }

    fn kv_store(&mut self, shape: KvShape) -> Result<CpuKvStore, BackendError> {
        CpuKvStore::new(shape)
    }

    fn begin(&mut self, kv: &mut CpuKvStore, batch: &Batch, rope: &Rope) -> Result<CpuStep, BackendError> {
        // Where a step was left by a panic, the thread still has to go back to where it was before that one.
        self.caller = self.caller.take().or_else(|| self.pool.visit_core());
        kv.prepare_blocks(&batch.zero, &batch.copy);
        let (rows, pairs) = (batch.tokens.len(), rope.pairs());
        let (mut cos, mut sin) = (vec![0.0; rows * pairs], vec![0.0; rows * pairs]);
        let angles = cos.chunks_exact_mut(pairs).zip(sin.chunks_exact_mut(pairs));
        let angles = batch.positions().zip(angles);
        self.pool.for_each(angles, |_, (position, (cos, sin))| rope.fill(position, cos, sin));
        let slots = batch.segments.iter().flat_map(Segment::slots).collect();
        Ok(CpuStep { batch: batch.clone(), slots, cos, sin, answers: Vec::new() })
    }

    fn embed(&mut self, step: &CpuStep, table: &CpuMatrix, x: &mut CpuRows) {
        x.rows = step.batch.tokens.len();
        self.for_each_row(x, |row, out| table.decode_row(step.batch.tokens[row] as usize, out));
    }

    fn rms_norm(&mut self, x: &CpuRows, weight: &Vec<f32>, eps: f32, y: &mut CpuRows) {
        y.rows = x.rows;
        let kernels = self.kernels;
        self.for_each_row(y, |row, out| kernels.rms_norm(x.row(row), weight, eps, out));
    }

    fn linear(&mut self, x: &CpuRows, products: &mut [Product<'_, Self>]) {
        for product in products.iter_mut() {
            product.out.rows = x.rows;
        }
        linear::multiply(self.kernels, &mut self.pool, &mut self.coded, x, products);
    }

    fn norm_rope(&mut self, step: &CpuStep, x: &mut CpuRows, weight: &Vec<f32>, eps: f32) {
        let (kernels, pairs) = (self.kernels, weight.len() / 2);
        self.for_each_row(x, |row, out| {
            let (cos, sin) = (&step.cos[row * pairs..][..pairs], &step.sin[row * pairs..][..pairs]);
            for head in out.chunks_exact_mut(weight.len()) {
                kernels.norm_rope(head, weight, eps, cos, sin);
            }
        });
    }

    fn write_kv(&mut self, step: &CpuStep, kv: &mut CpuKvStore, layer: usize, k: &CpuRows, v: &CpuRows) {
        kv.write(self.kernels, &mut self.pool, layer, &step.slots, [k.filled(), v.filled()]);
    }

    fn attention(&mut self, step: &CpuStep, kv: &CpuKvStore, layer: usize, q: &CpuRows, out: &mut CpuRows) {
        out.rows = q.rows;
        let scratch = &mut self.attention_scratch;
        let inputs = attend::Inputs { step, kv, layer, q };
        attend::attention(self.attention, &mut self.pool, scratch, inputs, out);
    }

    fn swiglu(&mut self, gate: &mut CpuRows, up: &CpuRows) {
        let kernels = self.kernels;
        self.for_each_row(gate, |row, gate| kernels.swiglu(gate, up.row(row)));
    }

    fn add(&mut self, x: &mut CpuRows, y: &CpuRows) {
        let kernels = self.kernels;
        self.for_each_row(x, |row, x| kernels.add(x, y.row(row)));
    }

    fn gather(&mut self, step: &CpuStep, x: &CpuRows, out: &mut CpuRows) {
        out.rows = 0;
        for (row, _) in step.batch.asking() {
            out.data[out.rows * out.width..][..out.width].copy_from_slice(x.row(row));
            out.rows += 1;
        }
    }

    fn outputs(&mut self, step: &mut CpuStep, hidden: &CpuRows, head: &CpuMatrix) {
        let asking: Vec<(usize, Ask)> = step.batch.asking().collect();
        for (chunk, asks) in asking.chunks(LOGIT_ROWS).enumerate() {
            let rows = chunk * LOGIT_ROWS..chunk * LOGIT_ROWS + asks.len();
            if asks.iter().any(|(_, ask)| *ask != Ask::Hidden) {
                self.head_product(hidden, rows.clone(), head);
            }
            let answers = self.answers(asks, hidden, rows.start);
            step.answers.extend(asks.iter().map(|(row, _)| *row).zip(answers));
        }
    }

    fn abandon(&mut self, _step: CpuStep) {
        self.caller.take().into_iter().for_each(Elsewhere::go_back);
    }

    fn finish(&mut self, _step: &mut CpuStep) -> Result<(), BackendError> {
        self.caller.take().into_iter().for_each(Elsewhere::go_back);
        Ok(())
    }

    fn wait(&mut self, step: CpuStep, outputs: &mut Outputs) -> Result<(), BackendError> {
        outputs.answers = step.answers;
        Ok(())
    }

    fn read_block(&self, kv: &CpuKvStore, block: BlockId) -> Vec<f32> {
        kv.read_block(block)
    }

    fn write_block(&mut self, kv: &mut CpuKvStore, block: BlockId, values: &[f32]) {
        kv.write_block(self.kernels, &mut self.pool, block, values);
    }
}
