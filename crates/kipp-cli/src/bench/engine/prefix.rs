//! `kipp bench prefix`: the time to the first token of a long prompt that nobody knows, and of the same one again.

use anyhow::{Result, ensure};
use clap::Args;
use kipp::engine::Request;
use kipp::gates::gate_tokens;
use kipp::kv::BLOCK_TOKENS;
use kipp::model::{Forward, ModelOptions};
use serde_json::{Value, json};

use super::super::work::Bound;
use super::requests::{Answer, Requests};
use super::result::{CaseRun, Column};
use super::{EngineArgs, EngineBench, Judged, Subject};
use crate::args::{self, StepArgs};

/// A conversation with a few documents in it.
const PROMPT_TOKENS: usize = 6890;

/// Whole blocks are adopted, and the last token is always evaluated.
const LEAST_TOKENS: usize = BLOCK_TOKENS + 1;

/// Flags of `kipp bench prefix`.
#[derive(Args, Debug)]
pub(crate) struct PrefixArgs {
    #[command(flatten)]
    engine: EngineArgs,
    /// Tokens of the prompt [default: 6890, or the most that the context holds]
    #[arg(short = 'p', long, value_name = "N", env = "KIPP_PREFILL", value_parser = args::bench_tokens)]
    prefill: Option<usize>,
    #[command(flatten)]
    step: StepArgs,
}

impl EngineBench for PrefixArgs {
    const WHAT: &'static str = "bench prefix";
    const BOUND: Bound = Bound::Compute;
    const COLUMNS: &'static [Column] = &[
        Column { figure: "cold_ms", header: "cold ms", decimals: 1 },
        Column { figure: "warm_ms", header: "warm ms", decimals: 1 },
        Column { figure: "ratio", header: "cold / warm", decimals: 1 },
        Column { figure: "adopted_tokens", header: "adopted", decimals: 0 },
        Column { figure: "cold_tok_s", header: "cold tok/s", decimals: 1 },
    ];
    const JUDGED: Judged = Judged::Ratio("ratio");
    /// Tokens of the prompt.
    type Plan = usize;

    fn args(&self) -> &EngineArgs {
        &self.engine
    }

    fn plan(&self, subject: &Subject) -> Result<usize> {
        Ok(subject.prompt_tokens(self.prefill, PROMPT_TOKENS, LEAST_TOKENS)?)
    }

    fn room(&self, tokens: &usize) -> ModelOptions {
        let max_rows = self.step.step_tokens.min(tokens + 1);
        // The warm-up's blocks stay known, and a block more keeps them from being evicted.
        let kv_blocks = (tokens + 1).div_ceil(BLOCK_TOKENS) + max_rows.div_ceil(BLOCK_TOKENS) + 2;
        ModelOptions { kv: self.engine.attention.kv, kv_blocks, max_rows }
    }

    fn measure(&self, tokens: &usize, subject: &Subject, forward: Box<dyn Forward>) -> Result<Vec<CaseRun>> {
        let tokens = *tokens;
        let vocab_size = subject.spec.vocab_size;
        let max_rows = forward.max_rows();
        let mut requests = Requests::open(forward, max_rows, tokens + 1)?;
        requests.warm_up(vocab_size, max_rows)?;
        let prompt = gate_tokens(vocab_size, tokens);
        let cold = requests.answer(Request::new(prompt.clone(), 1))?;
        let warm = requests.answer(Request::new(prompt, 1))?;
        ensure!(cold.tokens == warm.tokens, "the known prefix changed the answer");
        ensure!(cold.stats.cached_tokens == 0, "the prompt was known before it was sent");
        let ms = |answer: &Answer| (answer.stats.queue + answer.stats.prefill).as_secs_f64() * 1e3;
        let (cold_ms, warm_ms) = (ms(&cold), ms(&warm));
        let figures = [
            ("cold_ms", cold_ms),
            ("warm_ms", warm_ms),
            ("ratio", cold_ms / warm_ms),
            ("adopted_tokens", warm.stats.cached_tokens as f64),
            ("cold_tok_s", tokens as f64 / cold_ms * 1e3),
        ];
        Ok(vec![CaseRun::new(format!("prefix{tokens}"), &figures)])
    }

    fn settings(&self, tokens: &usize) -> Value {
        json!({
            "prompt_tokens": tokens,
            "generated_tokens": 1,
            "step_tokens": self.step.step_tokens,
            "ids": "kipp::gates::gate_tokens",
            "sampling": "greedy",
            "warm_up": "another prompt of one step, and two steps of decode, in the same process",
            "time": "from the submission of a request to its first token",
            "runs": self.engine.runs,
        })
    }
}
