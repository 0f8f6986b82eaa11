//! `kipp serve`: the engine behind HTTP. From flags to a model, an engine and a listening socket; what is spoken there is
//! `kipp-server`'s matter.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{ArgAction, Args, ValueEnum};
use kipp::artifact::Artifact;
use kipp::chat::ChatFormat;
use kipp::engine::{Engine, EngineHandle, EngineOptions, SystemClock};
use kipp::kv::BLOCK_TOKENS;
use kipp::sampling::SamplingFields;
use kipp::sampling::constraint::ConstraintCompiler;
use kipp_server::{Log, LogLine, Patience, Server, ServerInfo, TokenCounts};
use serde_json::json;

use crate::args::{self, BackendArgs, BackendName, ContextArgs, ModelArg, PoolArgs, StepArgs};
use crate::load::{self, Loaded, Loading};
use crate::outcome::{Outcome, UsageError};
use crate::{input, interrupt, open, report};

/// Flags of `kipp serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Address to listen on; anything but this machine itself should have a key
    #[arg(long, value_name = "HOST", env = "KIPP_HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port; 0 takes a free one, which is printed
    #[arg(long, value_name = "N", env = "KIPP_PORT", default_value_t = 8000)]
    port: u16,
    /// Name that clients call the model by; may be given several times, the first is the one in answers
    /// [default: the model's id]
    #[arg(long, value_name = "NAME", env = "KIPP_SERVED_MODEL_NAME", action = ArgAction::Append)]
    served_model_name: Vec<String>,
    /// Take requests for any model name
    #[arg(long, env = "KIPP_ANY_MODEL", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    any_model: bool,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    limits: LimitArgs,
    /// Refuse fields that are not known, instead of ignoring them
    #[arg(long, env = "KIPP_STRICT_FIELDS", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    strict_fields: bool,
    /// Tell the metrics by another server's names too, for routers that look for those
    #[arg(long, value_enum, value_name = "SERVER", env = "KIPP_METRICS_COMPAT")]
    metrics_compat: Option<MetricsCompat>,
    /// How the log on standard error is written
    #[arg(long, value_enum, value_name = "FORM", env = "KIPP_LOG", default_value = "text")]
    log: LogForm,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    step: StepArgs,
    #[command(flatten)]
    pool: PoolArgs,
}

/// Who may call.
#[derive(Args, Debug)]
#[command(next_help_heading = "Access")]
struct AccessArgs {
    /// Key that clients must send; may be given several times
    #[arg(long, value_name = "KEY", env = "KIPP_API_KEY", hide_env_values = true, action = ArgAction::Append)]
    api_key: Vec<String>,
    /// File with a key on each line
    #[arg(long, value_name = "FILE", env = "KIPP_API_KEY_FILE")]
    api_key_file: Option<PathBuf>,
    /// Origin whose web pages may call, such as http://localhost:3000; may be given several times
    #[arg(long, value_name = "ORIGIN", env = "KIPP_CORS_ORIGIN", action = ArgAction::Append)]
    cors_origin: Vec<String>,
}

/// How much, and how long.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// Requests that wait at most; the next one is told to come back
    #[arg(long, value_name = "N", env = "KIPP_MAX_QUEUE", default_value_t = 256)]
    max_queue: usize,
    /// Seconds that running answers have, once the server is told to end
    #[arg(long, value_name = "N", env = "KIPP_DRAIN_SECONDS", default_value_t = 30)]
    drain_seconds: u64,
    /// MiB of a request's body at most
    #[arg(long, value_name = "N", env = "KIPP_MAX_BODY_MIB", default_value_t = 32)]
    max_body_mib: u32,
    /// Seconds that the head of a request may take to arrive
    #[arg(long, value_name = "N", env = "KIPP_HEADER_SECONDS", default_value_t = 10)]
    header_seconds: u64,
    /// Seconds that its body may take
    #[arg(long, value_name = "N", env = "KIPP_BODY_SECONDS", default_value_t = 30)]
    body_seconds: u64,
    /// Seconds that a connection may have nothing to say, or not read its answer
    #[arg(long, value_name = "N", env = "KIPP_IDLE_SECONDS", default_value_t = 60)]
    idle_seconds: u64,
}

/// What `--metrics-compat` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MetricsCompat {
    /// vLLM's names
    Vllm,
}

/// What `--log` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogForm {
    /// Lines for people
    Text,
    /// A JSON object a line
    Json,
}

/// Serves until it is told to end.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Outcome> {
    if matches!(args.backend.backend, BackendName::Oracle) {
        let reason = "the oracle computes every answer anew and cannot serve; kipp run takes it";
        return Err(UsageError::new("--backend", reason).into());
    }
    let keys = keys(&args.access)?;
    // Before the model is loaded: a port that is taken is told at once.
    let (listener, address) = listen(&args.host, args.port)?;
    if !address.ip().is_loopback() && keys.is_empty() {
        report::note(&format!(
            "WARNING: {address} can be reached from other machines, and there is no key: whoever reaches it can use \
             the model. Give --api-key or --api-key-file"
        ));
    }
    let log = log(args.log);
    let loading = kipp_server::Loading::start(&listener).context("answering while the model is loaded")?;
    let (engine, info) = prepare(args, keys, log)?;
    drop(loading);
    let server = Server::new(engine, info);
    let seconds = Duration::from_secs;
    let LimitArgs { header_seconds, idle_seconds, drain_seconds, .. } = args.limits;
    let patience = Patience {
        header: seconds(header_seconds),
        idle: seconds(idle_seconds),
        drain: seconds(drain_seconds),
    };
    let graceful = interrupt::graceful();
    report::text(&format!("http://{address}\n"))?;
    report::note(&format!("listening on http://{address}"));
    server.run(listener, patience, interrupt::requested).context("serving")?;
    drop(graceful);
    Ok(Outcome::Done)
}

/// Keys of the flags and of the file.
fn keys(access: &AccessArgs) -> anyhow::Result<Vec<String>> {
    let mut keys = access.api_key.clone();
    if let Some(path) = &access.api_key_file {
        let text = input::text_file(path)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        keys.extend(lines.map(str::to_owned));
        if keys.is_empty() {
            bail!("{}: no key in this file", path.display());
        }
    }
    match keys.iter().any(|key| key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic())) {
        true => Err(UsageError::new("--api-key", "a key has visible ASCII characters only").into()),
        false => Ok(keys),
    }
}

fn listen(host: &str, port: u16) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let addresses: Vec<SocketAddr> = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => return Err(UsageError::new("--host", error.to_string()).into()),
    };
    let listener =
        TcpListener::bind(&addresses[..]).with_context(|| format!("listening on {host}:{port}"))?;
    let address = listener.local_addr().context("the socket's address")?;
    Ok((listener, address))
}

fn log(form: LogForm) -> Log {
    Arc::new(move |line| report::note(&written(form, &line)))
}

fn written(form: LogForm, line: &LogLine) -> String {
    match (form, line) {
        (LogForm::Text, LogLine::Note(text)) => text.clone(),
        (LogForm::Text, LogLine::Request { id, method, endpoint, status, duration_ms, tokens, complete }) => {
            let tokens = tokens.map_or_else(String::new, |tokens| {
                let TokenCounts { prompt, cached, completion } = tokens;
                format!(" {prompt} ({cached} cached) + {completion} tokens")
            });
            let end = if *complete { "" } else { " broken off" };
            format!("{method} {endpoint} {status} {duration_ms:.1} ms{tokens}{end} {id}")
        }
        (LogForm::Json, LogLine::Note(text)) => {
            json!({"time": unix_seconds(), "event": "note", "message": text}).to_string()
        }
        (LogForm::Json, LogLine::Request { id, method, endpoint, status, duration_ms, tokens, complete }) => {
            json!({
                "time": unix_seconds(), "event": "request", "request_id": id, "method": method,
                "endpoint": endpoint, "status": status, "duration_ms": duration_ms,
                "prompt_tokens": tokens.map(|tokens| tokens.prompt),
                "cached_tokens": tokens.map(|tokens| tokens.cached),
                "completion_tokens": tokens.map(|tokens| tokens.completion),
                "complete": complete,
            })
            .to_string()
        }
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Loads the model and gives its engine a thread.
fn prepare(args: &ServeArgs, keys: Vec<String>, log: Log) -> anyhow::Result<(EngineHandle, ServerInfo)> {
    let artifact = open::artifact(&args.model.model)?;
    let spec = load::spec(&artifact, &args.context.attention)?;
    let context = load::context_limit(&artifact, &spec, &args.context)?;
    context.tell();
    let kv = args.context.attention.kv;
    let mut options = args.step.options(kv, context.tokens);
    options.kv_blocks = args.pool.serving_blocks(&artifact, &spec, kv, context.tokens)?;
    report::note(&format!("keys and values: {} tokens in all", options.kv_blocks * BLOCK_TOKENS));
    let loading = Loading::start(&artifact, &spec, &args.backend);
    let tokenizer = open::tokenizer(artifact.tokenizer_files())?.with_rows(spec.vocab_size)?;
    let chat = ChatFormat::open(artifact.tokenizer_files(), &tokenizer).context("the chat template")?;
    let end_tokens = artifact.stop_tokens().to_vec();
    let constraints = match end_tokens.is_empty() {
        true => None,
        false => Some(ConstraintCompiler::new(&tokenizer, &end_tokens).context("structured output")?),
    };
    let Loaded { forward, .. } = loading.with_room(&args.backend, options)?;
    let engine = Engine::open(
        forward,
        Box::new(SystemClock::default()),
        EngineOptions {
            step_tokens: args.step.step_tokens,
            max_waiting: args.limits.max_queue,
            end_tokens: end_tokens.clone(),
            tokenizer: Some(tokenizer.clone()),
            ..EngineOptions::new(context.tokens)
        },
    )?;
    let names = match args.served_model_name.as_slice() {
        [] => vec![artifact.id()],
        names => names.to_vec(),
    };
    let info = ServerInfo {
        names,
        any_model: args.any_model,
        created: unix_seconds() as u64,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        context_tokens: context.tokens,
        tokenizer,
        end_tokens,
        chat,
        constraints,
        sampling: sampling(&artifact),
        keys,
        cors_origins: args.access.cors_origin.clone(),
        strict_fields: args.strict_fields,
        vllm_metrics: args.metrics_compat == Some(MetricsCompat::Vllm),
        max_body_bytes: (args.limits.max_body_mib as usize).saturating_mul(1 << 20),
        body_seconds: args.limits.body_seconds,
        log,
    };
    Ok((EngineHandle::start(engine).context("a thread for the engine")?, info))
}

/// The model's own defaults; where its files say nothing, a plain draw, as OpenAI's interface has it.
fn sampling(artifact: &Artifact) -> SamplingFields {
    let (model, plain) = (artifact.generation(), SamplingFields::default());
    SamplingFields {
        temperature: match model.do_sample {
            Some(false) => 0.0,
            _ => model.temperature.unwrap_or(plain.temperature),
        },
        top_k: model.top_k.map_or(plain.top_k, i64::from),
        top_p: model.top_p.unwrap_or(plain.top_p),
        min_p: model.min_p.unwrap_or(plain.min_p),
        repetition_penalty: model.repetition_penalty.unwrap_or(plain.repetition_penalty),
        ..plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_lines_of_text_or_of_json() {
        let line = LogLine::Request {
            id: "req-1".to_owned(),
            method: "POST".to_owned(),
            endpoint: "/v1/completions".to_owned(),
            status: 200,
            duration_ms: 1.25,
            tokens: Some(TokenCounts { prompt: 20, cached: 16, completion: 5 }),
            complete: true,
        };
        let text = "POST /v1/completions 200 1.2 ms 20 (16 cached) + 5 tokens req-1";
        assert_eq!(written(LogForm::Text, &line), text);
        let document: serde_json::Value = serde_json::from_str(&written(LogForm::Json, &line)).unwrap();
        assert_eq!((&document["status"], &document["request_id"]), (&json!(200), &json!("req-1")));
        assert_eq!((&document["completion_tokens"], &document["complete"]), (&json!(5), &json!(true)));
    }

    #[test]
    fn keys_are_visible_characters() {
        let access = |key: &str| AccessArgs {
            api_key: vec![key.to_owned()],
            api_key_file: None,
            cors_origin: Vec::new(),
        };
        assert!(keys(&access("")).is_err() && keys(&access("a b")).is_err());
        assert_eq!(keys(&access("sk-1")).unwrap(), ["sk-1"]);
    }
}
