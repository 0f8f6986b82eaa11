//! The flags that several subcommands share, and how values are read. Every flag has an environment variable `KIPP_` and
//! its name in capitals; flags go before the environment. What a flag means is its command's business.

mod engine;
mod origin;
mod sampling;
pub(crate) mod value;

pub(crate) use engine::{
    AttentionArgs, BackendArgs, BackendName, ContextArgs, EMBEDDED_MODEL, JsonArg, ModelArg, PoolArgs,
    RopeScaling, StepArgs,
};
pub(crate) use origin::Origin;
pub(crate) use sampling::{SamplingArgs, chat_sampling, greedy, new_seed};
pub(crate) use value::{
    bench_runs, bench_sequences, bench_tokens, max_tokens, stride, window, written_scheme,
};
