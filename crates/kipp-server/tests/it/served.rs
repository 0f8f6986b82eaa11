//! A server with kipp-tiny on a free port, for one test.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kipp::artifact::Artifact;
use kipp::backend::cpu::{CpuBackend, CpuOptions};
use kipp::chat::ChatFormat;
use kipp::engine::{Engine, EngineHandle, EngineOptions, SystemClock};
use kipp::kv::{BLOCK_TOKENS, KvScheme};
use kipp::model::{Model, ModelOptions};
use kipp::sampling::SamplingFields;
use kipp::sampling::constraint::ConstraintCompiler;
use kipp::tokenizer::Tokenizer;
use kipp_server::{LogLine, Patience, Server, ServerInfo};
use serde_json::Value;

use crate::client::{self, Answer};

/// The context of the model.
pub(crate) const CONTEXT_TOKENS: usize = 2048;

/// Blocks of the pool: four sequences of the whole context.
const BLOCKS: usize = 4 * CONTEXT_TOKENS / BLOCK_TOKENS;

/// What a test changes.
pub(crate) struct Settings {
    pub(crate) engine: EngineOptions,
    pub(crate) info: ServerInfo,
    pub(crate) patience: Patience,
}

/// A running server; dropping it ends it.
pub(crate) struct Served {
    pub(crate) port: u16,
    drain: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(crate) log: Arc<Mutex<Vec<LogLine>>>,
}

/// A server with the usual settings.
pub(crate) fn served() -> Served {
    served_with(|_| {})
}

/// A server with other settings.
pub(crate) fn served_with(change: impl FnOnce(&mut Settings)) -> Served {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/kipp-tiny");
    let artifact = Artifact::open(folder).unwrap();
    let tokenizer = Tokenizer::from_source(&artifact.tokenizer_source().unwrap()).unwrap();
    let tokenizer = tokenizer.with_rows(artifact.spec().vocab_size).unwrap();
    let end_tokens = artifact.stop_tokens().to_vec();
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&log);
    let info = ServerInfo {
        names: vec!["kipp-tiny".to_owned()],
        any_model: false,
        created: 1_800_000_000,
        version: "0.0.0".to_owned(),
        context_tokens: CONTEXT_TOKENS,
        chat: ChatFormat::open(artifact.tokenizer_files(), &tokenizer).unwrap(),
        constraints: Some(ConstraintCompiler::new(&tokenizer, &end_tokens).unwrap()),
        tokenizer: tokenizer.clone(),
        end_tokens: end_tokens.clone(),
        sampling: SamplingFields::default(),
        keys: Vec::new(),
        cors_origins: Vec::new(),
        strict_fields: false,
        vllm_metrics: false,
        max_body_bytes: 4 << 20,
        body_seconds: 5,
        log: Arc::new(move |line| lines.lock().unwrap().push(line)),
    };
    let mut settings = Settings {
        engine: EngineOptions {
            end_tokens,
            tokenizer: Some(tokenizer),
            ..EngineOptions::new(CONTEXT_TOKENS)
        },
        info,
        patience: Patience {
            header: Duration::from_secs(5),
            idle: Duration::from_secs(30),
            drain: Duration::from_secs(30),
        },
    };
    change(&mut settings);
    let Settings { engine: options, info, patience } = settings;
    let backend = CpuBackend::new(CpuOptions { threads: Some(1), ..CpuOptions::default() }).unwrap();
    let room = ModelOptions { kv: KvScheme::F32, kv_blocks: BLOCKS, max_rows: 512 };
    let model = Model::load(&artifact, artifact.spec().clone(), backend, room, &mut |_, _| {}).unwrap();
    let engine = Engine::open(Box::new(model), Box::new(SystemClock::default()), options).unwrap();
    let server = Server::new(EngineHandle::start(engine).unwrap(), info);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let drain = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&drain);
    let thread = std::thread::spawn(move || {
        server.run(listener, patience, || told.load(Ordering::Relaxed)).unwrap();
    });
    Served { port, drain, thread: Some(thread), log }
}

impl Served {
    pub(crate) fn get(&self, path: &str) -> Answer {
        client::request(self.port, "GET", path, &[], None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        client::request(self.port, "POST", path, &[], Some(body.to_string().as_bytes()))
    }

    /// The document that a request gets which must succeed.
    pub(crate) fn ok(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        answer.json()
    }

    /// The parameter that a request names which must be refused.
    pub(crate) fn refused(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body);
        let shown: String = body.to_string().chars().take(200).collect();
        assert_eq!(answer.status, 400, "{path} {shown}: {}", answer.text());
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
        answer.json()["error"]["param"].clone()
    }

    /// A number of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Waits until nothing runs and no block is held.
    pub(crate) fn wait_until_quiet(&self, limit: Duration) {
        let started = Instant::now();
        loop {
            let running = self.metric("kipp_requests_running") + self.metric("kipp_requests_waiting");
            if running == 0.0 && self.metric("kipp_kv_blocks{state=\"used\"}") == 0.0 {
                return;
            }
            assert!(started.elapsed() < limit, "still running: {running}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Tells the server to end; it may go on for a while.
    pub(crate) fn drain(&self) {
        self.drain.store(true, Ordering::Relaxed);
    }

    /// Whether the server has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.drain();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}
