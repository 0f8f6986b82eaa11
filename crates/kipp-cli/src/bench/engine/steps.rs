//! `kipp bench steps`: how long a step may be. A long prompt alone tells how fast it is evaluated; the same beside answers
//! tells how long those pause.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use kipp::engine::Request;
use kipp::gates::gate_tokens;
use kipp::kv::BLOCK_TOKENS;
use kipp::model::{Forward, ModelOptions};
use serde_json::{Value, json};

use super::super::statistics::{median, percentile};
use super::super::work::Bound;
use super::requests::{Pending, Requests};
use super::result::{CaseRun, Column};
use super::{EngineArgs, EngineBench, Judged, Subject};
use crate::args;
use crate::outcome::UsageError;

/// Tokens of the prompt: some steps of every length that is worth trying.
const PROMPT_TOKENS: usize = 2048;

/// Answers beside the prompt.
const ANSWERS: usize = 4;

/// Steps of them before the prompt comes, from which the engine learns what a step takes.
const STEPS_BEFORE: usize = 8;

/// Flags of `kipp bench steps`.
#[derive(Args, Debug)]
pub(crate) struct StepsArgs {
    #[command(flatten)]
    engine: EngineArgs,
    /// Rows of a step at most, each a case
    #[arg(long, value_name = "N,...", env = "KIPP_BENCH_STEP_TOKENS", default_value = "32,64,128,256,512,1024,2048", value_delimiter = ',', value_parser = args::value::step_tokens)]
    step_tokens: Vec<usize>,
    /// Tokens of the prompt [default: 2048, or the most that the context holds]
    #[arg(short = 'p', long, value_name = "N", env = "KIPP_PREFILL", value_parser = args::bench_tokens)]
    prefill: Option<usize>,
}

/// What the flags come to.
pub(crate) struct StepsPlan {
    prompt_tokens: usize,
    /// Of each answer: enough for as many steps as the smallest share of a step makes of all prompts.
    answer_tokens: usize,
}

impl StepsPlan {
    fn new(prompt_tokens: usize, least_step_tokens: usize) -> StepsPlan {
        let share = least_step_tokens.saturating_sub(ANSWERS).clamp(1, BLOCK_TOKENS);
        let steps = (prompt_tokens + ANSWERS * BLOCK_TOKENS).div_ceil(share);
        StepsPlan { prompt_tokens, answer_tokens: steps + STEPS_BEFORE + 2 * ANSWERS }
    }

    /// Positions of the longest sequence.
    fn context_tokens(&self) -> usize {
        (self.prompt_tokens + 1).max(BLOCK_TOKENS + self.answer_tokens)
    }
}

impl EngineBench for StepsArgs {
    const WHAT: &'static str = "bench steps";
    const BOUND: Bound = Bound::Compute;
    const COLUMNS: &'static [Column] = &[
        Column { figure: "prefill_tok_s", header: "prefill tok/s", decimals: 1 },
        Column { figure: "beside_tok_s", header: "beside answers", decimals: 1 },
        Column { figure: "itl_ms", header: "ITL ms", decimals: 1 },
        Column { figure: "itl_p99_ms", header: "p99", decimals: 1 },
        Column { figure: "alone_itl_ms", header: "ITL without a prompt", decimals: 1 },
    ];
    const JUDGED: Judged = Judged::Rate("prefill_tok_s");
    type Plan = StepsPlan;

    fn args(&self) -> &EngineArgs {
        &self.engine
    }

    fn plan(&self, subject: &Subject) -> Result<StepsPlan> {
        let least = self.step_tokens.iter().copied().min().unwrap_or(1);
        if least <= ANSWERS {
            let reason = format!("{least} have no room for a prompt beside {ANSWERS} answers");
            return Err(UsageError::new("--step-tokens", reason).into());
        }
        let plan = StepsPlan::new(subject.prompt_tokens(self.prefill, PROMPT_TOKENS, 1)?, least);
        let (needed, context) = (plan.context_tokens(), subject.spec.context());
        if needed > context {
            let reason = format!(
                "in steps of {least} a prompt of {} takes so long that the answers beside it need {needed} positions, \
                 and the model has {context}",
                plan.prompt_tokens
            );
            let flag = if self.prefill.is_some() { "--prefill" } else { "--step-tokens" };
            return Err(UsageError::new(flag, reason).into());
        }
        Ok(plan)
    }

    fn room(&self, plan: &StepsPlan) -> ModelOptions {
        let kv_blocks = (ANSWERS + 2) * (plan.context_tokens().div_ceil(BLOCK_TOKENS) + 1);
        let max_rows = self.step_tokens.iter().copied().max().unwrap_or(1);
        ModelOptions { kv: self.engine.attention.kv, kv_blocks, max_rows }
    }

    fn measure(
        &self,
        plan: &StepsPlan,
        subject: &Subject,
        mut forward: Box<dyn Forward>,
    ) -> Result<Vec<CaseRun>> {
        let vocab_size = subject.spec.vocab_size;
        let mut cases = Vec::new();
        for &step_tokens in &self.step_tokens {
            let mut requests = Requests::open(forward, step_tokens, plan.context_tokens())?;
            requests.warm_up(vocab_size, step_tokens.min(plan.prompt_tokens))?;
            let figures = beside(plan, vocab_size, &mut requests)?;
            cases.push(CaseRun::new(format!("steps{step_tokens}"), &figures));
            forward = requests.into_forward();
        }
        Ok(cases)
    }

    fn settings(&self, plan: &StepsPlan) -> Value {
        json!({
            "prompt_tokens": plan.prompt_tokens,
            "step_tokens": self.step_tokens,
            "answers": ANSWERS,
            "ids": "kipp::gates::gate_tokens",
            "sampling": "greedy",
            "warm_up": "another prompt of one step, and two steps of decode, in the same engine",
            "pauses": "between the tokens of each answer, from the submission of the prompt to its first token; without a \
                prompt, between the first tokens of all answers and that submission",
            "runs": self.engine.runs,
        })
    }
}

fn beside(plan: &StepsPlan, vocab_size: usize, requests: &mut Requests) -> Result<[(&'static str, f64); 5]> {
    let tokens = plan.prompt_tokens;
    let ids = gate_tokens(vocab_size, tokens + ANSWERS * BLOCK_TOKENS);
    let (prompt, short) = ids.split_at(tokens);
    let salted = |salt: &str| Request { cache_salt: salt.into(), ..Request::new(prompt.to_vec(), 1) };

    let alone = requests.answer(salted("alone"))?.stats;
    let answers = short
        .chunks(BLOCK_TOKENS)
        .map(|short| requests.submit(Request::new(short.to_vec(), plan.answer_tokens)))
        .collect::<Result<Vec<_>>>()?;
    while answers.iter().any(|answer| answer.len_tokens() < STEPS_BEFORE) {
        ensure!(requests.step(), "the answers ended before the prompt came");
    }
    let submitted = Instant::now();
    let pending = requests.submit(salted("beside"))?;
    while pending.len_tokens() == 0 {
        ensure!(requests.step(), "the answers ended before the prompt was evaluated");
    }
    let first_token = *pending.token_times().first().context("no token")?;
    let times: Vec<Vec<Instant>> = answers.iter().map(Pending::token_times).collect();
    ensure!(
        times.iter().all(|times| times.len() < plan.answer_tokens),
        "an answer ended before the prompt was evaluated"
    );
    // Steps before that evaluate prompts, too: those of the answers.
    let all_answer = times.iter().filter_map(|times| times.first()).max().context("no answer")?;
    let (mut before, mut during) = (Vec::new(), Vec::new());
    for pair in times.iter().flat_map(|times| times.windows(2)) {
        let pause_ms = (pair[1] - pair[0]).as_secs_f64() * 1e3;
        if pair[1] > submitted {
            during.push(pause_ms);
        } else if pair[0] >= *all_answer {
            before.push(pause_ms);
        }
    }
    Ok([
        ("prefill_tok_s", tokens as f64 / (alone.queue + alone.prefill).as_secs_f64()),
        ("beside_tok_s", tokens as f64 / (first_token - submitted).as_secs_f64()),
        ("itl_ms", median(&during).unwrap_or(f64::NAN)),
        ("itl_p99_ms", percentile(&during, 0.99)),
        ("alone_itl_ms", median(&before).unwrap_or(f64::NAN)),
    ])
}
