//! The gates: what must hold for a model on a backend before its answers count. Shipped in the program as `kipp verify`,
//! so that anyone can hold them on their own machine.

mod compare;
mod expected;
mod fingerprint;
mod invariance;
mod operators;
mod oracle;
mod reference;

pub use compare::{Comparison, nmse};
pub use expected::Expected;
pub use fingerprint::{FINGERPRINT, Frozen, frozen as frozen_fingerprints, measure as measure_fingerprint};
pub use reference::{Reference, ReferenceError};

use kipp_kernels::Activations;

use crate::artifact::Artifact;
use crate::backend::BackendError;
use crate::backend::cpu::{CpuBackend, CpuOptions};
use crate::batch::{Answer, Ask, Batch, Outputs};
use crate::kv::{KvPool, KvScheme};
use crate::model::{Forward, LoadError, Model, ModelOptions};
use crate::session::{Session, SessionError};
use crate::spec::ModelSpec;
use crate::token::TokenId;

/// Fixed ids that the gates evaluate: no multiple of a block, a step or a lane.
pub const GATE_TOKENS: usize = 133;

/// One gate's verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// What was held against what.
    pub name: String,
    /// What the value must not exceed.
    pub bound: f64,
    /// What was measured; values that differ, where bits must be equal.
    pub value: f64,
    /// What else a reader wants to know.
    pub detail: String,
    /// `value <= bound`, and whatever else the gate asks.
    pub passed: bool,
}

impl Gate {
    fn at_most(name: impl Into<String>, bound: f64, value: f64, detail: impl Into<String>) -> Gate {
        // A NaN passes no bound.
        Gate { name: name.into(), bound, value, detail: detail.into(), passed: value <= bound }
    }
}

/// Why gates cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The model could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The model failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The KV cache does not hold what the gates evaluate, or the model failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The reference cannot be read.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The context does not hold the gates' tokens.
    #[error("the gates evaluate {needed} positions, the context holds {context}")]
    Context {
        /// Positions.
        needed: usize,
        /// What there is.
        context: usize,
    },
}

/// A way to load the model under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// How activations are coded; the backend's own choice when absent.
    pub activations: Option<Activations>,
    /// How keys and values are stored.
    pub kv: KvScheme,
    /// Threads; the user's choice when absent.
    pub threads: Option<usize>,
    /// Rows a step.
    pub max_rows: usize,
    /// Blocks of the KV store.
    pub kv_blocks: usize,
}

/// Loads variants of the model under test.
pub type Loader<'a> = dyn Fn(Variant) -> Result<Box<dyn Forward>, LoadError> + 'a;

/// Loads variants of an artifact on the CPU; `options` is what the user chose.
pub fn on_cpu<'a>(
    artifact: &'a Artifact,
    spec: &'a ModelSpec,
    options: CpuOptions,
) -> impl Fn(Variant) -> Result<Box<dyn Forward>, LoadError> + 'a {
    move |variant| {
        let threads = variant.threads.or(options.threads);
        let backend = CpuBackend::new(CpuOptions { threads, activations: variant.activations, ..options })?;
        let Variant { kv, kv_blocks, max_rows, .. } = variant;
        let room = ModelOptions { kv, kv_blocks, max_rows };
        Ok(Box::new(Model::load(artifact, spec.clone(), backend, room, &mut |_, _| {})?))
    }
}

/// What the gates are run on.
pub struct Subject<'a> {
    /// The file, for the oracle.
    pub artifact: &'a Artifact,
    /// The artifact's dimensions, with what flags changed of them.
    pub spec: &'a ModelSpec,
    /// Loads the model under test.
    pub load: &'a Loader<'a>,
    /// The activation coding under test; the backend's own choice when absent.
    pub activations: Option<Activations>,
    /// The KV scheme under test.
    pub kv: KvScheme,
}

impl Subject<'_> {
    /// The variant that the user asked for, with room for `sequences` of `tokens` positions.
    fn variant(&self, tokens: usize, sequences: usize) -> Variant {
        Variant {
            activations: self.activations,
            kv: self.kv,
            threads: None,
            max_rows: tokens * sequences,
            kv_blocks: tokens.div_ceil(crate::kv::BLOCK_TOKENS) * sequences,
        }
    }
}

/// Runs the operator suite of the CPU's kernels, where `cpu` says which were chosen, then the gates of the whole model
/// against what was `expected` of it. `seen` gets each verdict as it falls.
pub fn run(
    subject: &Subject<'_>,
    cpu: Option<CpuOptions>,
    expected: &Expected<'_>,
    seen: &mut dyn FnMut(&Gate),
) -> Result<Vec<Gate>, GateError> {
    let mut gates = cpu.map_or_else(Vec::new, operators::gates);
    gates.iter().for_each(&mut *seen);
    gates.extend(hold(subject, expected, seen)?);
    Ok(gates)
}

/// Runs the gates of a whole model, those of the oracle included; `reference` holds logits of another implementation,
/// `seen` gets each verdict as it falls.
pub fn run_model(
    subject: &Subject<'_>,
    reference: Option<&Reference>,
    seen: &mut dyn FnMut(&Gate),
) -> Result<Vec<Gate>, GateError> {
    let expected = Expected::compute(subject.artifact, subject.spec, reference)?;
    let mut gates = expected.gates().to_vec();
    gates.iter().for_each(&mut *seen);
    gates.extend(hold(subject, &expected, seen)?);
    Ok(gates)
}

fn hold(
    subject: &Subject<'_>,
    expected: &Expected<'_>,
    seen: &mut dyn FnMut(&Gate),
) -> Result<Vec<Gate>, GateError> {
    let mut gates = Vec::new();
    let mut add = |new: Vec<Gate>| {
        new.iter().for_each(&mut *seen);
        gates.extend(new);
    };
    if let Some(reference) = expected.reference {
        add(reference::gates(subject, reference)?);
    }
    oracle::gates(subject, expected, &mut add)?;
    add(invariance::gates(subject)?);
    add(fingerprint::gates(subject)?);
    Ok(gates)
}

/// The same ids on every machine: a linear congruential sequence (Knuth's MMIX constants), its upper half reduced to
/// the vocabulary.
pub fn gate_tokens(vocab_size: usize, count: usize) -> Vec<TokenId> {
    let mut state = 0x4b69_7070_u64;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % vocab_size as u64) as TokenId
        })
        .collect()
}

/// Logits of every position, evaluated in steps of `chunk` tokens. `[tokens][vocab_size]`
fn all_logits(model: &mut dyn Forward, tokens: &[TokenId], chunk: usize) -> Result<Vec<Vec<f32>>, GateError> {
    let pool = KvPool::new(model.kv_blocks());
    let mut session = Session::new(model, &pool);
    let mut logits = Vec::with_capacity(tokens.len());
    for step in tokens.chunks(chunk) {
        logits.extend(logits_of(session.evaluate(step, |_| Ask::Logits)?));
    }
    Ok(logits)
}

fn logits_of(answers: impl IntoIterator<Item = Answer>) -> impl Iterator<Item = Vec<f32>> {
    answers.into_iter().filter_map(|answer| match answer {
        Answer::Logits(logits) => Some(logits),
        _ => None,
    })
}

/// The logits that a batch asked for, by row.
fn evaluate(model: &mut dyn Forward, batch: &Batch) -> Result<Vec<Vec<f32>>, BackendError> {
    let mut outputs = Outputs::default();
    model.submit(batch)?;
    model.wait(&mut outputs)?;
    Ok(logits_of(outputs.answers.into_iter().map(|(_, answer)| answer)).collect())
}
