//! `kipp bench parallel`: tokens a second of requests that are answered together, beside those of the first number of them.

use anyhow::{Result, ensure};
use clap::Args;
use kipp::engine::{MAX_SEQUENCES, Request, StepReport};
use kipp::gates::gate_tokens;
use kipp::kv::BLOCK_TOKENS;
use kipp::model::{Forward, ModelOptions};
use serde_json::{Value, json};

use super::super::work::Bound;
use super::requests::Requests;
use super::result::{CaseRun, Column};
use super::{EngineArgs, EngineBench, Judged, Subject};
use crate::args::{self, StepArgs};
use crate::outcome::UsageError;

/// Tokens of each prompt: a block.
const PROMPT_TOKENS: usize = BLOCK_TOKENS;

/// Flags of `kipp bench parallel`.
#[derive(Args, Debug)]
pub(crate) struct ParallelArgs {
    #[command(flatten)]
    engine: EngineArgs,
    /// Requests at once; the first number is what the others are held against
    #[arg(long, value_name = "N,...", env = "KIPP_PARALLEL", default_value = "1,8", value_delimiter = ',', value_parser = args::bench_sequences)]
    parallel: Vec<usize>,
    /// Tokens of each answer
    #[arg(short = 'n', long, value_name = "N", env = "KIPP_DECODE", default_value = "64", value_parser = args::bench_tokens)]
    decode: usize,
    #[command(flatten)]
    step: StepArgs,
}

impl ParallelArgs {
    fn most(&self) -> usize {
        self.parallel.iter().copied().max().unwrap_or(1)
    }

    /// The longest of them: prompts are evaluated a few at a time, and those that answer first wait for none.
    fn answer_tokens(&self) -> usize {
        self.decode + self.most()
    }

    fn positions(&self) -> usize {
        PROMPT_TOKENS + self.answer_tokens()
    }

    /// A row for each of them at least.
    fn step_tokens(&self) -> usize {
        self.step.step_tokens.max(self.most())
    }
}

impl EngineBench for ParallelArgs {
    const WHAT: &'static str = "bench parallel";
    const BOUND: Bound = Bound::Memory;
    const COLUMNS: &'static [Column] = &[
        Column { figure: "tok_s", header: "tok/s", decimals: 2 },
        Column { figure: "step_ms", header: "step ms", decimals: 2 },
        Column { figure: "ratio", header: "to the first", decimals: 2 },
    ];
    const JUDGED: Judged = Judged::Rate("tok_s");
    type Plan = ();

    fn args(&self) -> &EngineArgs {
        &self.engine
    }

    fn plan(&self, subject: &Subject) -> Result<()> {
        let context = subject.spec.context();
        let (flag, reason) = match self.positions() {
            _ if self.decode < 2 => ("--decode", "fewer than 2 tokens have no step to measure".to_owned()),
            positions if positions > context => {
                ("--decode", format!("needs {positions} positions, the model has {context}"))
            }
            _ if self.most() > MAX_SEQUENCES => {
                ("--parallel", format!("an engine runs {MAX_SEQUENCES} sequences at once at most"))
            }
            _ => return Ok(()),
        };
        Err(UsageError::new(flag, reason).into())
    }

    fn room(&self, (): &()) -> ModelOptions {
        // A block for each to grow into, which admission wants to see.
        let kv_blocks = self.most() * (self.positions().div_ceil(BLOCK_TOKENS) + 1) + 1;
        ModelOptions { kv: self.engine.attention.kv, kv_blocks, max_rows: self.step_tokens() }
    }

    fn measure(&self, (): &(), subject: &Subject, mut forward: Box<dyn Forward>) -> Result<Vec<CaseRun>> {
        let mut cases = Vec::new();
        let mut first = None;
        for &count in &self.parallel {
            let (steps, back) = together(self, subject, forward, count)?;
            forward = back;
            let seconds: f64 = steps.iter().map(|step| step.duration.as_secs_f64()).sum();
            let tok_s = (count * steps.len()) as f64 / seconds;
            let step_ms = seconds / steps.len() as f64 * 1e3;
            let ratio = tok_s / *first.get_or_insert(tok_s);
            let figures = [("tok_s", tok_s), ("step_ms", step_ms), ("ratio", ratio)];
            cases.push(CaseRun::new(format!("parallel{count}"), &figures));
        }
        Ok(cases)
    }

    fn settings(&self, (): &()) -> Value {
        json!({
            "prompt_tokens": PROMPT_TOKENS,
            "counted_tokens": self.decode,
            "generated_tokens": self.answer_tokens(),
            "parallel": self.parallel,
            "step_tokens": self.step_tokens(),
            "ids": "kipp::gates::gate_tokens",
            "sampling": "greedy",
            "counted": "steps in which all requests decode and nothing else runs",
            "warm_up": "a prompt of a block and two steps of decode, in the same engine",
            "runs": self.engine.runs,
        })
    }
}

/// The steps in which `count` requests all decode, in an engine of their own.
fn together(
    args: &ParallelArgs,
    subject: &Subject,
    forward: Box<dyn Forward>,
    count: usize,
) -> Result<(Vec<StepReport>, Box<dyn Forward>)> {
    let mut requests = Requests::open(forward, args.step_tokens(), args.positions())?;
    requests.warm_up(subject.spec.vocab_size, PROMPT_TOKENS)?;
    let ids = gate_tokens(subject.spec.vocab_size, count * PROMPT_TOKENS);
    let pending = ids
        .chunks(PROMPT_TOKENS)
        .map(|prompt| requests.submit(Request::new(prompt.to_vec(), args.answer_tokens())))
        .collect::<Result<Vec<_>>>()?;
    for one in &pending {
        requests.finish(one)?;
    }
    let all = |step: &StepReport| step.decode_rows == count && step.prefill_rows == 0;
    let mut steps: Vec<StepReport> = requests.take_steps().into_iter().filter(all).collect();
    ensure!(steps.len() + 1 >= args.decode, "{count} requests decoded together for {} steps", steps.len());
    steps.truncate(args.decode);
    Ok((steps, requests.into_forward()))
}
