//! From an artifact and flags to something that evaluates: dimensions as the flags change them, the context that fits,
//! the backend, and the progress of a long load.

use std::thread::JoinHandle;

use anyhow::{Context, bail};
use kipp::ModelSpec;
use kipp::artifact::Artifact;
use kipp::backend::BackendInfo;
use kipp::backend::cpu::{CpuBackend, CpuOptions};
use kipp::backend::oracle::OracleForward;
use kipp::kv::{BLOCK_TOKENS, KvPool, KvScheme};
use kipp::model::{Forward, ModelOptions, PreparedWeights};
use kipp_kernels::{Activations, KernelClass, KvLayout, select};
use serde::Serialize;

use crate::args::value::Classes;
use crate::args::{AttentionArgs, BackendArgs, BackendName, ContextArgs, EMBEDDED_MODEL, RopeScaling};
use crate::outcome::UsageError;
use crate::progress::Progress;
use crate::{memory, report};

/// The dimensions of a model, with its rotary embedding scaled as the flags say.
pub(crate) fn spec(artifact: &Artifact, flags: &AttentionArgs) -> anyhow::Result<ModelSpec> {
    let spec = artifact.spec().clone();
    match (flags.rope_scaling, flags.rope_factor) {
        (None, None) => Ok(spec),
        (Some(RopeScaling::None), None) => Ok(ModelSpec { rope_scaling: None, ..spec }),
        (Some(RopeScaling::None), Some(_)) => {
            Err(UsageError::new("--rope-factor", "contradicts --rope-scaling none").into())
        }
        (Some(RopeScaling::Yarn), None) if spec.rope_scaling.is_some() => Ok(spec),
        (Some(RopeScaling::Yarn), None) => {
            Err(UsageError::new("--rope-scaling", "yarn needs --rope-factor, since the file names none")
                .into())
        }
        (_, Some(factor)) => {
            spec.with_yarn(factor).map_err(|error| UsageError::new("--rope-factor", error.to_string()).into())
        }
    }
}

/// How many positions a sequence may have, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContextLimit {
    pub(crate) tokens: usize,
    reason: String,
}

impl ContextLimit {
    /// Says it on standard error.
    pub(crate) fn tell(&self) {
        report::note(&format!("context: {} tokens ({})", self.tokens, self.reason));
    }
}

/// What `--ctx` says, or the smaller of the model's maximum and what half of the free memory holds.
pub(crate) fn context_limit(
    artifact: &Artifact,
    spec: &ModelSpec,
    flags: &ContextArgs,
) -> anyhow::Result<ContextLimit> {
    let maximum = spec.context();
    if let Some(tokens) = flags.ctx {
        if tokens > maximum {
            let reason = format!(
                "{tokens} is more than the model's {maximum} positions; --rope-scaling yarn --rope-factor F stretches them"
            );
            return Err(UsageError::new("--ctx", reason).into());
        }
        return Ok(ContextLimit { tokens, reason: "--ctx".to_owned() });
    }
    // The weights are about to be prepared in memory; what they take is no longer free then.
    let free = memory::free_bytes().map(|free| free.saturating_sub(artifact.file().bytes));
    Ok(default_context(maximum, token_bytes(spec, flags.attention.kv), free))
}

fn default_context(maximum: usize, token_bytes: usize, free_bytes: Option<u64>) -> ContextLimit {
    let Some(free) = free_bytes else {
        let tokens = maximum.min(UNKNOWN_MEMORY_CONTEXT);
        return ContextLimit {
            tokens,
            reason: "this system does not tell its free memory; --ctx changes it".to_owned(),
        };
    };
    let fits = usize::try_from(free / 2).unwrap_or(usize::MAX) / token_bytes.max(1);
    if fits >= maximum {
        return ContextLimit { tokens: maximum, reason: "the model's maximum".to_owned() };
    }
    let reason = format!(
        "half of the free memory, {}, holds no more; the model's maximum is {maximum}",
        report::bytes(free / 2)
    );
    // One position at least, so that a machine under pressure gets the backend's own error.
    ContextLimit { tokens: fits.max(1), reason }
}

/// The context where nobody tells the free memory: a long conversation, and half a gigabyte of keys and values on the
/// smallest Qwen3.
const UNKNOWN_MEMORY_CONTEXT: usize = 4096;

/// Bytes of keys and values that a position takes.
fn token_bytes(spec: &ModelSpec, kv: KvScheme) -> usize {
    let layout = KvLayout { scheme: kv, n_kv_heads: spec.n_kv_heads, head_dim: spec.head_dim };
    (layout.block_bytes() * spec.n_layers).div_ceil(BLOCK_TOKENS)
}

/// A model that is ready to evaluate one sequence.
pub(crate) struct Loaded {
    pub(crate) forward: Box<dyn Forward>,
    pub(crate) pool: KvPool,
}

/// Prepares a model.
pub(crate) fn forward(
    artifact: &Artifact,
    spec: ModelSpec,
    flags: &BackendArgs,
    options: ModelOptions,
) -> anyhow::Result<Loaded> {
    Weights::prepare(artifact, spec, flags)?.with_room(flags, options)
}

/// Weights that are being prepared on a thread of their own, while the caller sees to the prompt. A caller that gives up
/// does not wait for them.
pub(crate) enum Loading {
    Started(JoinHandle<anyhow::Result<Weights>>),
    Done(anyhow::Result<Weights>),
}

impl Loading {
    /// Starts it; where the system has no thread left, does it at once.
    pub(crate) fn start(artifact: &Artifact, spec: &ModelSpec, flags: &BackendArgs) -> Loading {
        let prepare = {
            let (artifact, spec, flags) = (artifact.clone(), spec.clone(), flags.clone());
            move || Weights::prepare(&artifact, spec, &flags)
        };
        match std::thread::Builder::new().name("kipp-load".to_owned()).spawn(prepare) {
            Ok(thread) => Loading::Started(thread),
            Err(_) => Loading::Done(Weights::prepare(artifact, spec.clone(), flags)),
        }
    }

    /// Waits for the weights and makes room.
    pub(crate) fn with_room(self, flags: &BackendArgs, options: ModelOptions) -> anyhow::Result<Loaded> {
        let weights = match self {
            Loading::Started(thread) => {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?
            }
            Loading::Done(weights) => weights?,
        };
        weights.with_room(flags, options)
    }
}

/// Weights on their device, before it is known how much room the sequence needs.
pub(crate) enum Weights {
    Cpu(Box<PreparedWeights<CpuBackend>>),
    Oracle(Artifact, ModelSpec),
}

impl Weights {
    fn prepare(artifact: &Artifact, spec: ModelSpec, flags: &BackendArgs) -> anyhow::Result<Weights> {
        check_flags(artifact, flags)?;
        match flags.backend {
            BackendName::Auto | BackendName::Cpu => Ok(Weights::Cpu(Box::new(cpu(artifact, spec, flags)?))),
            BackendName::Oracle => {
                // Other backends check each matrix as they prepare it; the oracle prepares nothing.
                artifact.check_finite()?;
                Ok(Weights::Oracle(artifact.clone(), spec))
            }
            BackendName::Metal => Err(absent("metal")),
            BackendName::Vulkan => Err(absent("vulkan")),
            BackendName::Cuda => Err(absent("cuda")),
        }
    }

    /// Makes room, and tells which backend it became.
    fn with_room(self, flags: &BackendArgs, options: ModelOptions) -> anyhow::Result<Loaded> {
        let forward: Box<dyn Forward> = match self {
            Weights::Cpu(weights) => Box::new(weights.with_room(options)?),
            Weights::Oracle(artifact, spec) => Box::new(OracleForward::new(&artifact, spec, options)),
        };
        let info = forward.describe();
        let BackendInfo { name, kernels, activations, threads, .. } = &info;
        report::note(&format!("backend: {name} ({kernels}, activations {activations}, {threads} threads)"));
        for demoted in &info.demoted {
            report::note(&format!("note: {demoted}"));
        }
        if flags.require_fast && !info.demoted.is_empty() {
            bail!("--require-fast: {}", info.demoted.join("; "));
        }
        let pool = KvPool::new(forward.kv_blocks());
        Ok(Loaded { forward, pool })
    }
}

fn absent(device: &str) -> anyhow::Error {
    UsageError::new("--backend", format!("this build has no {device} backend; it has cpu and oracle")).into()
}

/// The oracle computes in f32 without kernels; a flag that it cannot follow is refused rather than ignored.
fn check_oracle_flags(flags: &BackendArgs) -> Result<(), UsageError> {
    if flags.kernels.is_some() {
        return Err(UsageError::new("--kernels", "the oracle has no kernels"));
    }
    match flags.activations {
        None | Some(Activations::F32) => Ok(()),
        Some(_) => Err(UsageError::new("--activations", "the oracle computes in f32")),
    }
}

/// Refuses flags that contradict each other, or the model.
pub(crate) fn check_flags(artifact: &Artifact, flags: &BackendArgs) -> Result<(), UsageError> {
    if flags.backend == BackendName::Oracle {
        check_oracle_flags(flags)?;
    }
    check_activations(artifact, flags)?;
    check_require_fast(flags)
}

/// A coding coarser than a scheme's own is not taken: asked for where no matrix takes it, it is refused.
fn check_activations(artifact: &Artifact, flags: &BackendArgs) -> Result<(), UsageError> {
    let Some(asked) = flags.activations.filter(|_| flags.backend != BackendName::Oracle) else {
        return Ok(());
    };
    let weights = artifact.weights();
    if weights.matrices().any(|matrix| asked.for_scheme(matrix.scheme) == asked) {
        return Ok(());
    }
    let scheme = artifact.scheme();
    let reason = format!(
        "{} is not taken by any weights of this model, which are {}: their input is {} at most",
        asked.name(),
        scheme.name(),
        scheme.activations().name()
    );
    Err(UsageError::new("--activations", reason))
}

/// What is forced below the fastest is not fast.
fn check_require_fast(flags: &BackendArgs) -> Result<(), UsageError> {
    if !flags.require_fast {
        return Ok(());
    }
    if flags.backend == BackendName::Oracle {
        return Err(UsageError::new(
            "--require-fast",
            "contradicts --backend oracle, which has no fast kernels",
        ));
    }
    let (Classes { matmul, attention }, best) = (flags.kernels.unwrap_or_default(), KernelClass::best());
    match [matmul, attention].into_iter().flatten().find(|class| *class != best) {
        None => Ok(()),
        Some(class) => {
            let (class, best) = (class.name(), best.name());
            let reason = format!("contradicts --kernels: {class} is not the fastest here, which is {best}");
            Err(UsageError::new("--require-fast", reason))
        }
    }
}

/// Says so where threads must wait for each other.
pub(crate) fn tell_many_threads(threads: Option<usize>) {
    let cpus = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    if let Some(threads) = threads.filter(|threads| *threads > cpus) {
        report::note(&format!("note: {threads} threads share {cpus} CPUs, and wait for each other"));
    }
}

/// What the flags choose of the CPU backend. A class that this machine cannot run is wrong usage: nothing falls back.
pub(crate) fn cpu_options(flags: &BackendArgs) -> Result<CpuOptions, UsageError> {
    let Classes { matmul, attention } = flags.kernels.unwrap_or_default();
    let asked = [matmul, attention].into_iter().flatten();
    if let Some(class) = asked.into_iter().find(|class| select(*class).is_none()) {
        let available: Vec<&str> = KernelClass::available().iter().map(|class| class.name()).collect();
        let reason =
            format!("{} cannot run on this machine, which runs {}", class.name(), available.join(", "));
        return Err(UsageError::new("--kernels", reason));
    }
    // Attention alone in the best class where only the products are forced lower.
    let attention = attention.or(Some(KernelClass::best()));
    Ok(CpuOptions { threads: flags.threads, class: matmul, attention, activations: flags.activations })
}

fn cpu(
    artifact: &Artifact,
    spec: ModelSpec,
    flags: &BackendArgs,
) -> anyhow::Result<PreparedWeights<CpuBackend>> {
    tell_many_threads(flags.threads);
    let backend = CpuBackend::new(cpu_options(flags)?)?;
    let mut progress = Progress::new("loading {bar:30} {bytes}/{total_bytes} {eta}");
    let weights = PreparedWeights::load(artifact, spec, backend, &mut |done, total| {
        progress.update(done as u64, total as u64);
    });
    progress.finish();
    weights.with_context(|| match artifact.file().path {
        Some(path) => path.display().to_string(),
        None => EMBEDDED_MODEL.to_owned(),
    })
}

/// The model, as reports name it.
#[derive(Serialize)]
pub(crate) struct ModelReport {
    id: String,
    registered: &'static str,
    scheme: &'static str,
}

impl ModelReport {
    /// Never waits for the hash of a large file.
    pub(crate) fn new(artifact: &Artifact) -> ModelReport {
        ModelReport {
            id: artifact.id(),
            registered: artifact.quick_registration().as_str(),
            scheme: artifact.scheme().name(),
        }
    }
}

/// The backend, as reports name it.
#[derive(Serialize)]
pub(crate) struct BackendReport {
    name: &'static str,
    pub(crate) kernels: String,
    threads: usize,
}

impl BackendReport {
    pub(crate) fn new(forward: &dyn Forward) -> BackendReport {
        let info = forward.describe();
        BackendReport { name: info.name, kernels: info.kernels, threads: info.threads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_is_the_maximum_or_what_half_of_the_free_memory_holds() {
        assert_eq!(default_context(2048, 1000, Some(1 << 40)).tokens, 2048);
        let tight = default_context(40_960, 1000, Some(2_000_000));
        assert_eq!(tight.tokens, 1000);
        assert!(tight.reason.contains("half of the free memory") && tight.reason.contains("40960"));
        assert_eq!(default_context(2048, 1000, Some(0)).tokens, 1);
        assert_eq!(default_context(40_960, 1000, None).tokens, UNKNOWN_MEMORY_CONTEXT);
        assert_eq!(default_context(2048, 1000, None).tokens, 2048);
    }
}
