//! The engine itself under the same load, in a process of its own: what HTTP, JSON and the sockets cost is the difference.

use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use kipp::TokenId;
use kipp::engine::{ChannelSink, Engine, EngineHandle, EngineOptions, Event, Request, SystemClock};
use kipp::sampling::{SamplingFields, SamplingParams};
use kipp::tokenizer::Tokenizer;

use super::super::engine::{CaseRun, EngineRun};
use super::super::process;
use super::super::single::{SingleBackend, peak_resident_bytes};
use super::answer::{Answer, Ask, Client, Counts, Fault, Piece, Target};
use super::frame::ServerProcess;
use super::{ServeBenchArgs, measure_cases};
use crate::outcome::Outcome;
use crate::{load, open, report};

/// Flags of the hidden `kipp bench bare`.
#[derive(Args, Debug)]
pub(crate) struct BareArgs {
    /// Which run of the measurement this is
    #[arg(long)]
    run: u64,
    /// Those of `kipp bench serve`
    #[command(flatten)]
    args: ServeBenchArgs,
}

/// One run; prints its JSON.
pub(crate) fn bare(args: &BareArgs) -> Result<Outcome> {
    process::end_with_stdin()?;
    let BareArgs { run, args } = args;
    let started = Instant::now();
    let (target, backend) = BareEngine::open(args)?;
    let load_ms = Some(started.elapsed().as_secs_f64() * 1e3);
    let cases: Vec<CaseRun> = measure_cases(args, &target, *run)?;
    let process = ServerProcess {
        server: "bare engine".to_owned(),
        load_ms,
        peak_resident_bytes: peak_resident_bytes(),
        backend: Some(backend),
    };
    report::json(&EngineRun { cases, process })?;
    Ok(Outcome::Done)
}

/// Starts the run of this measurement in a process of its own.
pub(super) fn run_in_process(run: u64) -> Result<EngineRun<ServerProcess>> {
    process::under("the bare engine", &["bare", &format!("--run={run}")])
}

/// The engine on its thread, set up as `kipp serve` does.
struct BareEngine {
    engine: EngineHandle,
    tokenizer: Tokenizer,
    temperature: f64,
}

impl BareEngine {
    fn open(args: &ServeBenchArgs) -> Result<(BareEngine, SingleBackend)> {
        let artifact = open::artifact(&args.target)?;
        let spec = load::spec(&artifact, &args.context.attention)?;
        let kv = args.context.attention.kv;
        let context = load::context_limit(&artifact, &spec, &args.context)?;
        let mut room = args.step.options(kv, context.tokens);
        room.kv_blocks = args.pool.serving_blocks(&artifact, &spec, kv, context.tokens)?;
        let tokenizer = open::tokenizer(artifact.tokenizer_files())?.with_rows(spec.vocab_size)?;
        let forward = load::forward(&artifact, spec, &args.backend, room)?.forward;
        let backend = SingleBackend::of(&*forward);
        let options = EngineOptions {
            step_tokens: args.step.step_tokens,
            end_tokens: artifact.stop_tokens().to_vec(),
            tokenizer: Some(tokenizer.clone()),
            ..EngineOptions::new(context.tokens)
        };
        let engine = Engine::open(forward, Box::new(SystemClock::default()), options)?;
        let engine = EngineHandle::start(engine).context("a thread for the engine")?;
        Ok((BareEngine { engine, tokenizer, temperature: args.temperature }, backend))
    }

    fn answer(&self, ask: &Ask) -> Result<Answer, Fault> {
        let failed = |error: &dyn std::fmt::Display| Fault::Engine(error.to_string());
        let sampling = SamplingFields { temperature: self.temperature, ..SamplingFields::default() };
        let prompt: Vec<TokenId> = self.tokenizer.encode_with_control(&ask.prompt);
        let mut counts = Counts { prompt_tokens: prompt.len(), ..Counts::default() };
        let request = Request {
            sampling: SamplingParams::parse(sampling).map_err(|error| failed(&error))?,
            seed: ask.seed,
            choices: ask.choices,
            ignore_eos: true,
            ..Request::new(prompt, ask.tokens)
        };
        let (sink, events) = ChannelSink::new();
        self.engine.submit(request, Box::new(sink)).map_err(|error| failed(&error))?;
        let (mut pieces, mut unfinished) = (Vec::new(), ask.choices);
        while unfinished > 0 {
            let event = events.recv().map_err(|error| failed(&error))?;
            let at = Instant::now();
            match event {
                Event::Started { cached_tokens, .. } => counts.cached_tokens = cached_tokens,
                Event::Tokens { choice, tokens } => {
                    counts.completion_tokens += tokens.len();
                    if tokens.iter().any(|token| !token.text.is_empty()) {
                        pieces.push(Piece { choice, at });
                    }
                }
                Event::Finished { choice, text, .. } => {
                    unfinished -= 1;
                    if !text.is_empty() {
                        pieces.push(Piece { choice, at });
                    }
                }
                Event::Failed(failure) => return Err(failed(&failure)),
                Event::Prompt { .. } => {}
            }
        }
        Ok(Answer { pieces, counts: Some(counts), fault: None })
    }
}

impl Target for BareEngine {
    fn client(&self) -> Box<dyn Client + '_> {
        Box::new(BareClient(self))
    }

    fn is_here(&self) -> bool {
        true
    }
}

struct BareClient<'a>(&'a BareEngine);

impl Client for BareClient<'_> {
    fn ask(&mut self, ask: &Ask) -> Answer {
        self.0.answer(ask).unwrap_or_else(|fault| Answer { fault: Some(fault), ..Answer::default() })
    }
}
