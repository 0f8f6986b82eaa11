//! The flags about the model and what evaluates it, shared by every command that opens one.

use clap::{ArgAction, Args, ValueEnum};
use kipp::ModelSpec;
use kipp::artifact::Artifact;
use kipp::backend::BackendError;
use kipp::kv::{BLOCK_TOKENS, KvScheme};
use kipp::model::ModelOptions;
use kipp_kernels::{Activations, KvLayout};

use super::value;
use crate::memory;
use crate::outcome::UsageError;

/// The model that is part of the program.
pub(crate) const EMBEDDED_MODEL: &str = "kipp-tiny";

/// Which model.
#[derive(Args, Clone, Debug)]
pub(crate) struct ModelArg {
    /// A .gguf file, a Hugging Face folder, or kipp-tiny, which is part of the program
    #[arg(short, long, value_name = "MODEL", env = "KIPP_MODEL", default_value = EMBEDDED_MODEL)]
    pub(crate) model: String,
}

/// How the result is printed.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct JsonArg {
    /// Print one JSON document instead
    #[arg(long, env = "KIPP_JSON", value_parser = value::switch, action = ArgAction::SetTrue)]
    pub(crate) json: bool,
}

/// What `--backend` takes. All devices have their name here, so that one that this build lacks is refused by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// The best that this machine has
    Auto,
    /// The processor
    Cpu,
    /// Plain loops, slow: the specification itself
    Oracle,
    /// Apple GPUs
    Metal,
    /// Other GPUs
    Vulkan,
    /// NVIDIA GPUs
    Cuda,
}

/// What evaluates the model.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Backend")]
pub(crate) struct BackendArgs {
    /// Device; auto says what it chose, and an explicit choice never falls back
    #[arg(long, value_enum, value_name = "NAME", env = "KIPP_BACKEND", default_value = "auto")]
    pub(crate) backend: BackendName,
    /// Threads [default: one for each physical core with a CPU that the process may run on, and no more than the CPU
    /// time of its control group allows]
    #[arg(long, value_name = "N", env = "KIPP_THREADS", value_parser = value::threads, allow_hyphen_values = true)]
    pub(crate) threads: Option<usize>,
    /// Kernel class, or matmul=CLASS,attention=CLASS [default: the best that this machine runs]
    #[arg(long, value_name = "CLASS", env = "KIPP_KERNELS", value_parser = value::kernels)]
    pub(crate) kernels: Option<value::Classes>,
    /// Coding of activations: s8, bf16 or f32 [default: s8 for quantized weights, bf16 for bf16, f32 for f16 and f32]
    #[arg(long, value_name = "CODING", env = "KIPP_ACTIVATIONS", value_parser = value::activations)]
    pub(crate) activations: Option<Activations>,
    /// Make it an error that a fast kernel was not taken
    #[arg(long, env = "KIPP_REQUIRE_FAST", value_parser = value::switch, action = ArgAction::SetTrue)]
    pub(crate) require_fast: bool,
}

/// How a long input is cut; for commands that evaluate one as a person gave it.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Backend")]
pub(crate) struct StepArgs {
    /// Tokens evaluated in one step
    #[arg(long, value_name = "N", env = "KIPP_STEP_TOKENS", default_value = "512", value_parser = value::step_tokens, allow_hyphen_values = true)]
    pub(crate) step_tokens: usize,
}

impl StepArgs {
    /// Room for one sequence of `context_tokens`, in steps that are no longer than it.
    pub(crate) fn options(self, kv: KvScheme, context_tokens: usize) -> ModelOptions {
        ModelOptions::for_one_sequence(kv, context_tokens, self.step_tokens.min(context_tokens.max(1)))
    }
}

/// Sequences of the full context that a server's pool holds, if memory allows: shorter ones are the rule, and what they leave
/// keeps known prefixes.
const SERVED_SEQUENCES: usize = 8;

/// How much room keys and values get; for commands that generate.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Context")]
pub(crate) struct PoolArgs {
    /// MiB of keys and values [default: what one sequence needs]
    #[arg(long, value_name = "N", env = "KIPP_KV_MIB", value_parser = value::kv_mib, allow_hyphen_values = true)]
    pub(crate) kv_mib: Option<usize>,
}

impl PoolArgs {
    /// Blocks that the MiB hold, where some were named.
    pub(crate) fn held_blocks(self, spec: &ModelSpec, kv: KvScheme) -> Option<usize> {
        Some(self.kv_mib?.saturating_mul(1 << 20) / block_bytes(spec, kv))
    }

    /// Blocks of a server's pool: what the flag says, or several sequences as far as half of the free memory holds them.
    pub(crate) fn serving_blocks(
        self,
        artifact: &Artifact,
        spec: &ModelSpec,
        kv: KvScheme,
        context_tokens: usize,
    ) -> Result<usize, UsageError> {
        let needed = self.blocks(spec, kv, context_tokens)?;
        if self.kv_mib.is_some() {
            return Ok(needed);
        }
        let free = memory::free_bytes().map_or(0, |free| free.saturating_sub(artifact.file().bytes));
        let fitting = usize::try_from(free / 2).unwrap_or(usize::MAX) / block_bytes(spec, kv);
        Ok(fitting.min(needed.saturating_mul(SERVED_SEQUENCES)).max(needed))
    }

    /// Blocks of the pool, which must hold one sequence of `context_tokens`.
    pub(crate) fn blocks(
        self,
        spec: &ModelSpec,
        kv: KvScheme,
        context_tokens: usize,
    ) -> Result<usize, UsageError> {
        let needed = context_tokens.div_ceil(BLOCK_TOKENS);
        let (Some(mib), Some(blocks)) = (self.kv_mib, self.held_blocks(spec, kv)) else { return Ok(needed) };
        if blocks < needed {
            let needed_mib = needed.saturating_mul(block_bytes(spec, kv)).div_ceil(1 << 20);
            let reason = format!(
                "{mib} MiB hold {} tokens, but one sequence of {context_tokens} needs {needed_mib} MiB; with a smaller \
                 --max-tokens or --ctx it is shorter",
                blocks * BLOCK_TOKENS
            );
            return Err(UsageError::new("--kv-mib", reason));
        }
        Ok(blocks)
    }

    /// Names the flag where so much memory cannot be had.
    pub(crate) fn explain(self, error: anyhow::Error) -> anyhow::Error {
        let is_memory = matches!(error.downcast_ref(), Some(BackendError::Memory { .. }));
        if self.kv_mib.is_some() && is_memory { error.context("--kv-mib") } else { error }
    }
}

/// Bytes of a block of all layers.
fn block_bytes(spec: &ModelSpec, kv: KvScheme) -> usize {
    let layout = KvLayout { scheme: kv, n_kv_heads: spec.n_kv_heads, head_dim: spec.head_dim };
    layout.block_bytes().saturating_mul(spec.n_layers).max(1)
}

/// What `--rope-scaling` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RopeScaling {
    /// As Qwen's model cards describe it
    Yarn,
    /// None, whatever the file says
    None,
}

/// How long a sequence may be, and how it is kept; for commands that evaluate one as a person gave it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Context")]
pub(crate) struct ContextArgs {
    /// Positions of prompt and completion [default: the smaller of the model's maximum and what half of the free
    /// memory holds]
    #[arg(long, value_name = "N", env = "KIPP_CTX", value_parser = value::context, allow_hyphen_values = true)]
    pub(crate) ctx: Option<usize>,
    #[command(flatten)]
    pub(crate) attention: AttentionArgs,
}

/// How positions are kept and told apart.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Context")]
pub(crate) struct AttentionArgs {
    /// Storage of keys and values: bf16, q8_0 or f32
    #[arg(long, value_name = "SCHEME", env = "KIPP_KV", default_value = "bf16", value_parser = value::kv)]
    pub(crate) kv: KvScheme,
    /// Scaling of the rotary embedding [default: what the file says]
    #[arg(long, value_enum, value_name = "KIND", env = "KIPP_ROPE_SCALING")]
    pub(crate) rope_scaling: Option<RopeScaling>,
    /// How many times YaRN stretches the context; implies --rope-scaling yarn
    #[arg(long, value_name = "F", env = "KIPP_ROPE_FACTOR", value_parser = value::rope_factor, allow_hyphen_values = true)]
    pub(crate) rope_factor: Option<f64>,
}
