//! `kipp bench serve`: what clients see of a server. Closed and open loads of streamed answers on any OpenAI endpoint: a
//! Kipp of its own, started for each run, or whatever is at a URL; beside it the bare engine, or other servers, in turn.
//!
//! `http` and `body` speak to a socket, `endpoint` and `events` know OpenAI's interface, `load` asks and `answer` is what came
//! when; `figures` sums up; `frame` runs servers in turn between probes, as the other benches do, and keeps records.

mod answer;
mod bare;
mod body;
mod chance;
mod cpu_time;
mod endpoint;
mod events;
mod figures;
mod frame;
mod http;
mod load;
mod own;
mod prompts;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{ArgAction, Args};

use super::engine::CaseRun;
use super::record::RecordArgs;
use super::schedule::Protocol;
use crate::args::{self, BackendArgs, ContextArgs, EMBEDDED_MODEL, PoolArgs, StepArgs};
use crate::outcome::UsageError;
use crate::report;

use answer::Target;
use endpoint::Manner;
use figures::{Measured, Objective, figures};
use http::Patience;
use load::{Case, Plan};
use prompts::Prompts;

pub(crate) use bare::{BareArgs, bare};
pub(crate) use frame::run;
pub(crate) use own::{ServingArgs, serving};

/// Flags of `kipp bench serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeBenchArgs {
    /// http://HOST:PORT of a server that runs; or a model for a kipp serve of its own: a .gguf file, a Hugging Face folder,
    /// or kipp-tiny, which is part of the program
    #[arg(value_name = "URL|MODEL", env = "KIPP_MODEL", default_value = EMBEDDED_MODEL)]
    target: String,
    /// Another server to measure in turn with the first; may be given several times
    #[arg(long, value_name = "URL", env = "KIPP_AGAINST", action = ArgAction::Append)]
    against: Vec<String>,
    /// Measure the engine without its server in turn with the first
    #[arg(long, env = "KIPP_BARE", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    bare: bool,
    /// Clients of a closed load, each with one request at a time; 0 for none
    #[arg(long, value_name = "N,...", env = "KIPP_CLIENTS", default_value = "1,2,4,8", value_delimiter = ',', value_parser = clients)]
    clients: Vec<usize>,
    /// Requests a second of an open load, which arrive at random
    #[arg(long, value_name = "R,...", env = "KIPP_RATE", value_delimiter = ',', value_parser = rate)]
    rate: Vec<f64>,
    /// Choices of the requests of one client, such as 1,2,4,8
    #[arg(long, value_name = "N,...", env = "KIPP_CHOICES", value_delimiter = ',', value_parser = choices)]
    choices: Vec<u32>,
    /// Tokens of each answer
    #[arg(short = 'n', long, value_name = "N", env = "KIPP_DECODE", default_value = "48", value_parser = args::bench_tokens)]
    decode: usize,
    /// Requests of each client of a closed load, one after the other
    #[arg(long, value_name = "N", env = "KIPP_TURNS", default_value = "4", value_parser = args::bench_runs)]
    turns: usize,
    /// Requests of an open load
    #[arg(long, value_name = "N", env = "KIPP_REQUESTS", default_value = "64", value_parser = args::bench_sequences)]
    requests: usize,
    /// Words of each prompt
    #[arg(long, value_name = "N", env = "KIPP_PROMPT_WORDS", default_value = "64", value_parser = args::bench_sequences)]
    prompt_words: usize,
    /// The part of each prompt that all begin with, from 0 to 1
    #[arg(long, value_name = "F", env = "KIPP_COMMON_PREFIX", default_value = "0", value_parser = args::value::probability)]
    common_prefix: f64,
    /// Time to the first token within which a request is good, in ms; with it goodput is told
    #[arg(long, value_name = "MS", env = "KIPP_OBJECTIVE_TTFT_MS", value_parser = milliseconds)]
    objective_ttft_ms: Option<f64>,
    /// Mean time between the tokens of a request within which it is good, in ms
    #[arg(long, value_name = "MS", env = "KIPP_OBJECTIVE_ITL_MS", value_parser = milliseconds)]
    objective_itl_ms: Option<f64>,
    /// Ask for chats instead of completions
    #[arg(long, env = "KIPP_CHAT", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    chat: bool,
    /// Send only fields that OpenAI's own interface has; answers may then end early
    #[arg(long, env = "KIPP_OPENAI_ONLY", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    openai_only: bool,
    /// Seed of prompts, draws and arrivals
    #[arg(long, value_name = "N", env = "KIPP_SEED", default_value = "1", value_parser = args::value::seed, allow_hyphen_values = true)]
    seed: u64,
    /// Temperature that is asked for
    #[arg(long, value_name = "T", env = "KIPP_TEMPERATURE", default_value = "1", value_parser = args::value::temperature, allow_hyphen_values = true)]
    temperature: f64,
    /// Key of the servers at URLs
    #[arg(long, value_name = "KEY", env = "KIPP_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Name of the model at the URLs [default: the first that they have]
    #[arg(long, value_name = "NAME", env = "KIPP_SERVED_MODEL")]
    served_model: Option<String>,
    /// What the server at the URL has loaded; a record names it
    #[arg(long, value_name = "MODEL", env = "KIPP_WEIGHTS")]
    weights: Option<String>,
    /// How the servers at URLs were started, for the record; may be given several times
    #[arg(long, value_name = "COMMAND", env = "KIPP_PEER_COMMAND", action = ArgAction::Append)]
    peer_command: Vec<String>,
    /// Seconds that an answer may take; half as long it may be silent
    #[arg(long, value_name = "N", env = "KIPP_ANSWER_SECONDS", default_value = "600", value_parser = args::bench_sequences)]
    answer_seconds: usize,
    /// Runs
    #[arg(long, value_name = "N", env = "KIPP_RUNS", default_value = "3", value_parser = args::bench_runs)]
    runs: usize,
    /// What happens before the runs [default: cool-start for a record, else nothing]
    #[arg(long, value_enum, value_name = "NAME", env = "KIPP_PROTOCOL")]
    protocol: Option<Protocol>,
    /// Print one JSON document instead, all runs included
    #[arg(long, env = "KIPP_JSON", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    json: bool,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    step: StepArgs,
    #[command(flatten)]
    pool: PoolArgs,
}

impl ServeBenchArgs {
    /// What to measure.
    fn cases(&self) -> Result<Vec<Case>, UsageError> {
        if self.decode == 0 {
            return Err(UsageError::new("--decode", "an answer without a token is none"));
        }
        let closed = self.clients.iter().filter(|clients| **clients > 0);
        let mut cases: Vec<Case> = closed.map(|&clients| Case::Closed { clients }).collect();
        cases.extend(self.choices.iter().map(|&choices| Case::Choices { choices }));
        cases.extend(self.rate.iter().map(|&rate| Case::Open { rate }));
        if cases.is_empty() {
            return Err(UsageError::new(
                "--clients",
                "0 without --rate and --choices leaves nothing to measure",
            ));
        }
        Ok(cases)
    }

    fn protocol(&self) -> Option<Protocol> {
        self.protocol.or(self.record.record.is_some().then_some(Protocol::CoolStart))
    }

    fn manner(&self) -> Manner {
        let answer = Duration::from_secs(self.answer_seconds as u64);
        Manner {
            chat: self.chat,
            openai_only: self.openai_only,
            temperature: self.temperature,
            key: self.api_key.clone(),
            patience: Patience { silence: answer / 2, answer },
        }
    }

    fn plan(&self, run: u64) -> Plan {
        let common_words = (self.common_prefix * self.prompt_words as f64).round() as usize;
        Plan {
            prompts: Prompts { seed: self.seed, words: self.prompt_words, common_words },
            tokens: self.decode,
            turns: self.turns,
            requests: self.requests,
            run,
            case: 0,
        }
    }
}

/// One run: all cases on a target, after a warm-up that is not counted.
fn measure_cases(args: &ServeBenchArgs, target: &dyn Target, run: u64) -> Result<Vec<CaseRun>> {
    let plan = args.plan(run);
    let objective = Objective { ttft_ms: args.objective_ttft_ms, itl_ms: args.objective_itl_ms };
    let warm_up = Plan { turns: 1, case: 0, ..plan }.measure(Case::Closed { clients: 1 }, target);
    // Whoever cannot answer once is not measured; later faults are counted.
    if let Some(fault) = first_fault(&warm_up) {
        bail!("the first request, which warms up: {fault}");
    }
    let mut runs = Vec::new();
    for (at, case) in args.cases()?.into_iter().enumerate() {
        let measured = Plan { case: at as u64 + 1, ..plan }.measure(case, target);
        if let Some(fault) = first_fault(&measured) {
            report::note(&format!("{case}: {fault}"));
        }
        let figures = figures(&measured, &objective);
        if args.common_prefix == 0.0 && knew_prompts(&figures) {
            report::note(&format!(
                "{case}: the server knew these prompts from before; another --seed asks others"
            ));
        }
        runs.push(CaseRun { name: case.to_string(), figures });
    }
    Ok(runs)
}

/// More than the few tokens that every chat begins with.
fn knew_prompts(figures: &BTreeMap<String, f64>) -> bool {
    let of = |name: &str| figures.get(name).copied().unwrap_or(0.0);
    of("cached_tokens_mean") > of("prompt_tokens_mean") / 4.0
}

fn first_fault(measured: &Measured) -> Option<String> {
    measured.observations.iter().find_map(|request| Some(request.answer.fault.as_ref()?.to_string()))
}

fn clients(text: &str) -> Result<usize, String> {
    args::value::whole(text, 0, 1024)
}

fn choices(text: &str) -> Result<u32, String> {
    args::value::whole(text, 1, 128)
}

fn rate(text: &str) -> Result<f64, String> {
    args::value::number(text, |rate| (0.001..=10_000.0).contains(&rate), "from 0.001 to 10000")
}

fn milliseconds(text: &str) -> Result<f64, String> {
    args::value::number(text, |ms| ms > 0.0 && ms.is_finite(), "finite and above 0")
}
