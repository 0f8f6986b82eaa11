//! `kipp run`: one completion of a prompt, raw or through the chat template.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use kipp::TokenId;
use kipp::artifact::Artifact;
use kipp::engine::{Engine, EngineOptions, Request, SystemClock};
use kipp::model::Interrupt;
use kipp::sampling::SamplingParams;
use kipp::tokenizer::Tokenizer;
use serde::Serialize;

use crate::args::{self, BackendArgs, ContextArgs, JsonArg, ModelArg, PoolArgs, SamplingArgs, StepArgs};
use crate::generate::{Completion, FinishReason, Sink, generate};
use crate::load::{BackendReport, Loaded, Loading, ModelReport};
use crate::outcome::{Outcome, UsageError};
use crate::prompt::{self, SingleTurn};
use crate::saved::{self, Restored, SessionArgs};
use crate::speculation::{Drafters, SpecArgs, SpecKind, Target};
use crate::timings::Timings;
use crate::{input, interrupt, load, open, report};

/// Tokens of a raw completion where nobody says how many: a short story. A base model may never stop by itself.
const RAW_MAX_TOKENS: usize = 256;

/// Flags of `kipp run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The prompt; standard input where absent. Control tokens in a raw prompt count as such
    prompt: Option<String>,
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    json: JsonArg,
    /// Put the prompt through the model's chat template, as one user message
    #[arg(long, env = "KIPP_CHAT", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    chat: bool,
    /// System message, with --chat
    #[arg(long, value_name = "TEXT", env = "KIPP_SYSTEM")]
    system: Option<String>,
    /// Ask the template for an answer without thinking, with --chat
    #[arg(long, env = "KIPP_NO_THINK", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    no_think: bool,
    /// Tokens of the completion at most [default: 256; with --chat what the context holds]
    #[arg(short = 'n', long, value_name = "N", env = "KIPP_MAX_TOKENS", value_parser = args::max_tokens, allow_hyphen_values = true)]
    max_tokens: Option<usize>,
    /// Go on past end tokens
    #[arg(long, env = "KIPP_IGNORE_EOS", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    ignore_eos: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    speculation: SpecArgs,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    step: StepArgs,
    #[command(flatten)]
    pool: PoolArgs,
}

/// The one JSON document of `kipp run --json`.
#[derive(Serialize)]
struct RunReport<'a> {
    text: &'a str,
    tokens: &'a [TokenId],
    prompt_tokens: usize,
    finish_reason: FinishReason,
    timings: Timings,
    model: ModelReport,
    backend: BackendReport,
}

/// Completes the prompt.
pub(crate) fn run(args: RunArgs) -> anyhow::Result<Outcome> {
    let stops = args.sampling.stops()?;
    let drafting = args.speculation.choice(SpecKind::Off)?;
    args.session.check(args.chat)?;
    let text = input::text_or_stdin(args.prompt.clone(), "the prompt")?;
    if text.is_empty() && !args.session.goes_on() {
        return Err(UsageError::new("PROMPT", "must not be empty").into());
    }
    let started = Instant::now();
    let restored = args.session.open()?;
    let artifact = open::artifact(&args.model.model)?;
    let spec = load::spec(&artifact, &args.context.attention)?;
    let saving = args.session.create(&artifact, &spec)?;
    // Asked before the weights take their share of the free memory.
    let context = load::context_limit(&artifact, &spec, &args.context)?;
    context.tell();
    let loading = Loading::start(&artifact, &spec, &args.backend);
    let tokenizer = open::tokenizer(artifact.tokenizer_files())?.with_rows(spec.vocab_size)?;
    let before = restored.as_ref().map_or(&[][..], Restored::tokens);
    let before_tokens = before.len();
    let prompt = [before, &prompt_ids(&args, &artifact, &tokenizer, text)?].concat();
    let max_tokens = room(prompt.len(), context.tokens, &args)?;
    let params = sampling_params(&args, &artifact)?;
    let kv = args.context.attention.kv;
    let context_tokens = prompt.len() + max_tokens;
    let mut options = args.step.options(kv, context_tokens);
    options.kv_blocks = args.pool.blocks(&spec, kv, context_tokens)?;
    let Loaded { mut forward, .. } =
        loading.with_room(&args.backend, options).map_err(|error| args.pool.explain(error))?;
    let pool = restored.map(|restored| restored.pool(&mut *forward, &artifact, &spec)).transpose()?;
    let target = Target { tokenizer: &tokenizer, options, context_tokens };
    let drafters = Drafters::open(&args.speculation, &drafting, &args.backend, target)?;
    let load_time = started.elapsed();

    let backend = BackendReport::new(&*forward);
    let options = EngineOptions {
        step_tokens: args.step.step_tokens,
        end_tokens: artifact.stop_tokens().to_vec(),
        tokenizer: Some(tokenizer.clone()),
        pool,
        ..EngineOptions::new(context_tokens)
    };
    let interrupt = Interrupt::default();
    forward.set_interrupt(interrupt.clone());
    let engine = Engine::open(forward, Box::new(SystemClock::default()), options)?;
    let prompt_tokens = prompt.len();
    let request = Request {
        seed: seed(&args, &params, &prompt),
        sampling: params,
        ignore_eos: args.ignore_eos,
        stops,
        speculation: drafters.as_ref().map(Drafters::where_paying),
        ..Request::new(prompt.clone(), max_tokens)
    };
    let graceful = interrupt::graceful();
    let sink: Sink<'_> = if args.json.json { &mut |_| Ok(()) } else { &mut |piece| report::text(piece.text) };
    let (completion, engine) = generate(engine, &interrupt, request, sink)?;
    drafters.iter().for_each(Drafters::tell_failure);
    Restored::tell(before_tokens, completion.measured.cached_tokens);

    if args.json.json {
        report::json(&RunReport {
            text: &completion.text,
            tokens: &completion.tokens,
            prompt_tokens,
            finish_reason: completion.finish_reason,
            timings: Timings::new(load_time, completion.measured),
            model: ModelReport::new(&artifact),
            backend,
        })?;
    } else {
        end_text(&completion)?;
    }
    // After the answer, which a full disk must not keep from whoever waits for it.
    if let Some(saving) = saving {
        let shown = saved::shown(&tokenizer, &completion.tokens, &completion.text)?;
        saving.keep(engine, &[prompt, shown].concat())?;
    }
    drop(graceful);
    Ok(completion.finish_reason.outcome())
}

fn prompt_ids(
    args: &RunArgs,
    artifact: &Artifact,
    tokenizer: &Tokenizer,
    text: String,
) -> anyhow::Result<Vec<TokenId>> {
    if !args.chat {
        if args.system.is_some() || args.no_think {
            // A note and no refusal: the environment may hold a system message for every chat.
            report::note("note: --system and --no-think count only with --chat");
        }
        return Ok(tokenizer.encode_with_control(&text));
    }
    let turn = SingleTurn { system: args.system.clone(), user: text, no_think: args.no_think };
    Ok(prompt::render(artifact.tokenizer_files(), tokenizer, &turn.into())?.ids)
}

/// Tokens that may be generated: what was asked for, as far as the context holds it.
fn room(prompt_tokens: usize, context_tokens: usize, args: &RunArgs) -> anyhow::Result<usize> {
    let wanted = args.max_tokens.unwrap_or(if args.chat { usize::MAX } else { RAW_MAX_TOKENS });
    let left = context_tokens.saturating_sub(prompt_tokens);
    if prompt_tokens > context_tokens || (left == 0 && wanted > 0) {
        bail!(
            "the prompt has {prompt_tokens} tokens and does not fit: the context is {context_tokens} tokens, \
             completion included"
        );
    }
    Ok(wanted.min(left))
}

/// A raw completion is greedy unless flags say otherwise; a chat takes the model's own defaults.
fn sampling_params(args: &RunArgs, artifact: &Artifact) -> anyhow::Result<SamplingParams> {
    let defaults = if args.chat { args::chat_sampling(artifact) } else { args::greedy() };
    args.sampling.over(defaults).context("sampling")
}

/// What was asked for, or a new one, which is told.
fn seed(args: &RunArgs, params: &SamplingParams, prompt: &[TokenId]) -> u64 {
    match args.sampling.seed {
        Some(seed) => seed,
        None if params.is_greedy() => 0,
        None => args::new_seed(prompt),
    }
}

impl FinishReason {
    fn outcome(self) -> Outcome {
        match self {
            FinishReason::Interrupted => Outcome::Interrupted,
            FinishReason::Stop | FinishReason::Length => Outcome::Done,
        }
    }
}

/// On a terminal the shell's prompt begins on a line of its own; a file or pipe gets the text exactly.
fn end_text(completion: &Completion) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if out.is_terminal() && !completion.text.ends_with('\n') {
        out.write_all(b"\n").and_then(|()| out.flush()).map_err(report::OutputError)?;
    }
    drop(out);
    report::note(&completion.measured.line());
    Ok(())
}
