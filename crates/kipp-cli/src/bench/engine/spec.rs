//! `kipp bench spec`: a text decoded plainly, with every draft checked, and with drafts only where they pay; one after the
//! other in each run, so that the three meet the same machine. All must say the same.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use kipp::TokenId;
use kipp::engine::{NewDrafter, Request, Speculation, StepReport};
use kipp::kv::BLOCK_TOKENS;
use kipp::model::{Forward, ModelOptions};
use kipp::speculate::{Drafter, MAX_DRAFT_TOKENS};
use kipp::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::super::work::Bound;
use super::replay::{Replay, Script};
use super::requests::{Answer, Requests};
use super::result::{CaseRun, Column};
use super::texts::{Size, Text};
use super::{EngineArgs, EngineBench, Judged, Subject};
use crate::args::{self, StepArgs};
use crate::open;
use crate::outcome::UsageError;
use crate::speculation::{Choice, Drafters, SpecArgs, SpecKind, Target};

/// Flags of `kipp bench spec`. Its variable of who drafts is its own: what `kipp run` is set to is nothing to measure.
#[derive(Args, Debug)]
#[command(mut_arg("spec", |arg| arg.env("KIPP_BENCH_SPEC")))]
pub(crate) struct SpecBenchArgs {
    #[command(flatten)]
    engine: EngineArgs,
    /// Tokens to decode of each text
    #[arg(short = 'n', long, value_name = "N", env = "KIPP_DECODE", default_value = "256", value_parser = args::bench_tokens)]
    decode: usize,
    /// Say what this file says, whatever the model would: acceptance is then that of the text, and time that of the
    /// model. May be given several times; without it the model goes on by itself after three texts of this program
    #[arg(long, value_name = "FILE", env = "KIPP_REPLAY")]
    replay: Vec<PathBuf>,
    #[command(flatten)]
    speculation: SpecArgs,
    #[command(flatten)]
    step: StepArgs,
}

/// What the flags come to.
pub(crate) struct SpecPlan {
    choice: Choice,
    tokenizer: Tokenizer,
    texts: Vec<Text>,
}

impl SpecPlan {
    /// Positions of the longest text.
    fn context_tokens(&self) -> usize {
        self.texts.iter().map(|text| text.tokens.len()).max().unwrap_or(0)
    }

    /// Who drafts, as names of cases have it.
    fn spec(&self) -> &'static str {
        match self.choice.kind {
            SpecKind::Off => "off",
            SpecKind::Ngram => "ngram",
            SpecKind::Draft => "draft",
        }
    }
}

impl EngineBench for SpecBenchArgs {
    const WHAT: &'static str = "bench spec";
    const BOUND: Bound = Bound::Memory;
    const COLUMNS: &'static [Column] = &[
        Column { figure: "plain_tok_s", header: "plain tok/s", decimals: 2 },
        Column { figure: "ungated_ratio", header: "ungated", decimals: 2 },
        Column { figure: "gated_ratio", header: "gated", decimals: 2 },
        Column { figure: "acceptance", header: "accepted", decimals: 2 },
        Column { figure: "gated_acceptance", header: "accepted, gated", decimals: 2 },
        Column { figure: "tokens_a_step", header: "tokens a step", decimals: 2 },
        Column { figure: "duty", header: "duty", decimals: 2 },
    ];
    const JUDGED: Judged = Judged::Ratio("gated_ratio");
    type Plan = SpecPlan;

    fn args(&self) -> &EngineArgs {
        &self.engine
    }

    fn plan(&self, subject: &Subject) -> Result<SpecPlan> {
        let choice = self.speculation.choice(SpecKind::Ngram)?;
        if choice.kind == SpecKind::Off {
            return Err(UsageError::new("--spec", "off leaves nothing to measure").into());
        }
        let size = Size { decode: self.decode, context_tokens: subject.spec.context() };
        size.check()?;
        let tokenizer =
            open::tokenizer(subject.artifact.tokenizer_files())?.with_rows(subject.spec.vocab_size)?;
        let texts = match &self.replay[..] {
            [] => Text::own(&tokenizer, size)?,
            files => files.iter().map(|path| Text::file(path, &tokenizer, size)).collect::<Result<_>>()?,
        };
        Ok(SpecPlan { choice, tokenizer, texts })
    }

    fn room(&self, plan: &SpecPlan) -> ModelOptions {
        let longest = plan.context_tokens();
        let max_rows = self.step.step_tokens.min(longest).max(1 + MAX_DRAFT_TOKENS);
        // A block for drafts past the end, and the warm-up's.
        let kv_blocks = longest.div_ceil(BLOCK_TOKENS) + max_rows.div_ceil(BLOCK_TOKENS) + 2;
        ModelOptions { kv: self.engine.attention.kv, kv_blocks, max_rows }
    }

    fn measure(
        &self,
        plan: &SpecPlan,
        subject: &Subject,
        mut forward: Box<dyn Forward>,
    ) -> Result<Vec<CaseRun>> {
        let (options, context_tokens) = (self.room(plan), plan.context_tokens());
        let target = Target { tokenizer: &plan.tokenizer, options, context_tokens };
        let drafters = Drafters::open(&self.speculation, &plan.choice, &self.engine.backend, target)?;
        let Some(drafters) = drafters else { bail!("nobody drafts") };
        let replayed = if self.replay.is_empty() { "" } else { "replay-" };
        let script = Script::default();
        if !self.replay.is_empty() {
            forward = Box::new(Replay::new(forward, script.clone()));
        }
        let mut cases = Vec::new();
        for text in &plan.texts {
            let name = format!("spec-{}-{replayed}{}", plan.spec(), text.name);
            let ways = [None, Some(always(&drafters.new)), Some(drafters.where_paying())];
            let mut decoded = Vec::new();
            for speculation in ways {
                script.set((!self.replay.is_empty()).then(|| Arc::clone(&text.tokens)));
                let (one, back) = self.decode(subject, forward, text, speculation)?;
                forward = back;
                decoded.push(one);
            }
            if let Some(failure) = drafters.failure() {
                bail!("{name}: the draft model failed: {failure}");
            }
            let [plain, ungated, gated] = &decoded[..] else { bail!("three ways were decoded") };
            for (other, way) in [(ungated, "every draft checked"), (gated, "drafts where they pay")] {
                if let Some(at) = plain.first_difference(other) {
                    bail!("{name}: with {way} token {at} differs from plain decoding");
                }
            }
            cases.push(CaseRun::new(name, &figures(plain, ungated, gated)));
        }
        Ok(cases)
    }

    fn settings(&self, plan: &SpecPlan) -> Value {
        let prompts = plan.texts.iter().map(|text| (text.name.clone(), text.prompt_tokens.into()));
        json!({
            "spec": plan.spec(),
            "draft_model": plan.choice.draft_model,
            "replay": !self.replay.is_empty(),
            "prompt_tokens": prompts.collect::<serde_json::Map<String, Value>>(),
            "generated_tokens": self.decode,
            "draft_tokens": MAX_DRAFT_TOKENS,
            "step_tokens": self.step.step_tokens,
            "sampling": "greedy, end tokens ignored",
            "warm_up": "before each way, a prompt of one step and two steps of decode in an engine of their own",
            "pair": "plain, ungated and gated decoding, one after the other in each run, each in an engine of its own",
            "runs": self.engine.runs,
        })
    }
}

impl SpecBenchArgs {
    /// The end of a text, in an engine that knows nothing yet.
    fn decode(
        &self,
        subject: &Subject,
        forward: Box<dyn Forward>,
        text: &Text,
        speculation: Option<Speculation>,
    ) -> Result<(Decoded, Box<dyn Forward>)> {
        let max_rows = forward.max_rows();
        let mut requests = Requests::open(forward, max_rows, text.tokens.len())?;
        requests.warm_up(subject.spec.vocab_size, max_rows)?;
        let mut requests = Requests::open(requests.into_forward(), max_rows, text.tokens.len())?;
        let prompt = text.tokens[..text.prompt_tokens].to_vec();
        let answer = requests.answer(Request { speculation, ..Request::new(prompt, self.decode) })?;
        let steps = requests.take_steps().into_iter().filter(|step| step.prefill_rows == 0).collect();
        Ok((Decoded { answer, steps }, requests.into_forward()))
    }
}

/// A text that was decoded in one of the three ways.
struct Decoded {
    answer: Answer,
    /// Those after the prompt.
    steps: Vec<StepReport>,
}

impl Decoded {
    /// Tokens a second of those after the first, which belongs to the prompt.
    fn tok_s(&self) -> f64 {
        self.later_tokens() / self.answer.stats.decode.as_secs_f64()
    }

    fn later_tokens(&self) -> f64 {
        self.answer.tokens.len().saturating_sub(1) as f64
    }

    /// The part of the drafted tokens that were right; not a number without any.
    fn acceptance(&self) -> f64 {
        self.answer.stats.accepted_tokens as f64 / self.answer.stats.drafted_tokens as f64
    }

    fn first_difference(&self, other: &Decoded) -> Option<usize> {
        let (ours, theirs): (&[TokenId], &[TokenId]) = (&self.answer.tokens, &other.answer.tokens);
        let differs = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs);
        differs.or((ours.len() != theirs.len()).then_some(ours.len().min(theirs.len())))
    }
}

fn figures(plain: &Decoded, ungated: &Decoded, gated: &Decoded) -> [(&'static str, f64); 9] {
    let steps = |decoded: &Decoded| decoded.steps.len() as f64;
    let drafting = gated.steps.iter().filter(|step| step.draft_rows > 0).count() as f64;
    [
        ("plain_tok_s", plain.tok_s()),
        ("ungated_ratio", ungated.tok_s() / plain.tok_s()),
        ("gated_ratio", gated.tok_s() / plain.tok_s()),
        ("acceptance", ungated.acceptance()),
        ("gated_acceptance", gated.acceptance()),
        ("ungated_tokens_a_step", ungated.later_tokens() / steps(ungated)),
        ("tokens_a_step", gated.later_tokens() / steps(gated)),
        ("duty", drafting / steps(gated)),
        ("gated_tok_s", gated.tok_s()),
    ]
}

/// Every draft is checked, of as many tokens as the gate would allow at most.
fn always(new: &NewDrafter) -> Speculation {
    let new = Arc::clone(new);
    let short = move |choice| -> Box<dyn Drafter> { Box::new(Short(new(choice))) };
    Speculation::Always(Arc::new(short))
}

/// Drafts of the length that the gate allows.
struct Short(Box<dyn Drafter>);

impl Drafter for Short {
    fn draft(&mut self, history: &[TokenId], max_tokens: usize, draft: &mut Vec<TokenId>) {
        self.0.draft(history, max_tokens.min(MAX_DRAFT_TOKENS), draft);
    }

    fn accepted(&mut self, drafted: usize, accepted: usize) {
        self.0.accepted(drafted, accepted);
    }

    fn is_free(&self) -> bool {
        self.0.is_free()
    }
}
