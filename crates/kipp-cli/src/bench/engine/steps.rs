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
use super::requests::Requests;
use super::result::{CaseRun, Column};
use super::{EngineArgs, EngineBench, Judged, Subject};
use crate::args;
use crate::outcome::UsageError;

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
    #[arg(long, value_name = "N,...", env = "KIPP_STEP_TOKENS", default_value = "32,64,128,256,512,1024,2048", value_delimiter = ',', value_parser = args::value::step_tokens)]
    step_tokens: Vec<usize>,
    /// Tokens of the prompt [default: 2048, or the most that the context holds]
    #[arg(short = 'p', long, value_name = "N", env = "KIPP_PREFILL", value_parser = args::bench_tokens)]
    prefill: Option<usize>,
}

impl StepsArgs {
    fn prompt_tokens(&self, subject: &Subject) -> Result<usize, UsageError> {
        let most = subject.spec.context().saturating_sub(1);
        match self.prefill {
            None => Ok(2048.min(most)),
            Some(0) => Err(UsageError::new("--prefill", "0 leaves nothing to measure")),
            Some(tokens) if tokens > most => {
                let reason = format!("{tokens} and an answer do not fit the model's {} positions", most + 1);
                Err(UsageError::new("--prefill", reason))
            }
            Some(tokens) => Ok(tokens),
        }
    }

    /// Enough for as many steps as the shortest prompt share makes of the prompt.
    fn answer_tokens(&self, prompt_tokens: usize) -> usize {
        let shortest = self.step_tokens.iter().copied().min().unwrap_or(1);
        let share = shortest.saturating_sub(ANSWERS).clamp(1, BLOCK_TOKENS);
        prompt_tokens.div_ceil(share) + STEPS_BEFORE + 2 * ANSWERS
    }

    fn context(&self, prompt_tokens: usize) -> usize {
        (prompt_tokens + 1).max(BLOCK_TOKENS + self.answer_tokens(prompt_tokens))
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

    fn args(&self) -> &EngineArgs {
        &self.engine
    }

    fn room(&self, subject: &Subject) -> Result<ModelOptions> {
        let prompt_tokens = self.prompt_tokens(subject)?;
        if self.step_tokens.iter().any(|step| *step <= ANSWERS) {
            let reason = format!("a step of {ANSWERS} answers has no room for a prompt");
            return Err(UsageError::new("--step-tokens", reason).into());
        }
        let context_tokens = self.context(prompt_tokens);
        if context_tokens > subject.spec.context() {
            let reason = format!(
                "{prompt_tokens} need answers of {context_tokens} positions beside them, the model has {}",
                subject.spec.context()
            );
            return Err(UsageError::new("--prefill", reason).into());
        }
        let kv_blocks = (ANSWERS + 2) * (context_tokens.div_ceil(BLOCK_TOKENS) + 1);
        let max_rows = self.step_tokens.iter().copied().max().unwrap_or(1);
        Ok(ModelOptions { kv: self.engine.attention.kv, kv_blocks, max_rows })
    }

    fn measure(&self, subject: &Subject, mut forward: Box<dyn Forward>) -> Result<Vec<CaseRun>> {
        let mut cases = Vec::new();
        for &step_tokens in &self.step_tokens {
            let tokens = self.prompt_tokens(subject)?;
            let mut requests = Requests::open(forward, step_tokens, self.context(tokens))?;
            requests.warm_up(subject.spec.vocab_size, step_tokens.min(tokens))?;
            let figures = beside(self, subject, &mut requests)?;
            cases.push(CaseRun::new(format!("steps{step_tokens}"), &figures));
            forward = requests.into_forward();
        }
        Ok(cases)
    }

    fn settings(&self, subject: &Subject) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens(subject).ok(),
            "step_tokens": self.step_tokens,
            "answers": ANSWERS,
            "ids": "kipp::gates::gate_tokens",
            "sampling": "greedy",
            "warm_up": "another prompt of one step, and two steps of decode, in the same engine",
            "pauses": "between the tokens of each answer, from the submission of the prompt to its first token",
            "runs": self.engine.runs,
        })
    }
}

fn beside(args: &StepsArgs, subject: &Subject, requests: &mut Requests) -> Result<[(&'static str, f64); 5]> {
    let tokens = args.prompt_tokens(subject)?;
    let ids = gate_tokens(subject.spec.vocab_size, tokens + ANSWERS * BLOCK_TOKENS);
    let (prompt, short) = ids.split_at(tokens);
    let salted = |salt: &str| Request { cache_salt: salt.into(), ..Request::new(prompt.to_vec(), 1) };

    let alone = requests.answer(salted("alone"))?.stats;
    let answers = short
        .chunks(BLOCK_TOKENS)
        .map(|short| requests.submit(Request::new(short.to_vec(), args.answer_tokens(tokens))))
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
    let (mut before, mut during) = (Vec::new(), Vec::new());
    for answer in &answers {
        let times = answer.token_times();
        ensure!(times.len() < args.answer_tokens(tokens), "an answer ended before the prompt was evaluated");
        for pair in times.windows(2) {
            let gap_ms = (pair[1] - pair[0]).as_secs_f64() * 1e3;
            if pair[1] > submitted { during.push(gap_ms) } else { before.push(gap_ms) }
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
