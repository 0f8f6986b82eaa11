//! Kipp's own server as a process: started on a free port with the flags of the measurement, and gone with whoever started
//! it, because the system closes the pipe that it reads.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use super::super::process;
use super::ServeBenchArgs;
use super::endpoint::{Endpoint, Manner, Url};
use crate::args::value::Classes;
use crate::outcome::Outcome;
use crate::serve::{self, ServeArgs};

/// What it said last, for whoever asks why it ended.
const KEPT_BYTES: usize = 4096;

/// Flags of the hidden `kipp bench serving`.
#[derive(Args, Debug)]
pub(crate) struct ServingArgs {
    #[command(flatten)]
    serve: ServeArgs,
}

/// `kipp serve`, until standard input ends.
pub(crate) fn serving(args: &ServingArgs) -> Result<Outcome> {
    process::end_with_stdin()?;
    serve::run(&args.serve)
}

/// A server that runs.
pub(super) struct Serving {
    child: Child,
    said: Arc<Mutex<Vec<u8>>>,
    listening: Option<JoinHandle<()>>,
    pub(super) endpoint: Endpoint,
    pub(super) load_ms: f64,
}

impl Serving {
    /// Starts it, and waits until it takes requests.
    pub(super) fn start(args: &ServeBenchArgs, manner: &Manner) -> Result<Serving> {
        let started = Instant::now();
        let program = std::env::current_exe().context("where is this program?")?;
        let mut command = Command::new(&program);
        command.args(["bench", "serving", "--host", "127.0.0.1", "--port", "0"]).args(flags(args));
        // A key in the environment is for servers that others reach.
        command
            .env_remove("KIPP_API_KEY")
            .env_remove("KIPP_API_KEY_FILE")
            .env_remove("KIPP_SERVED_MODEL_NAME");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| program.display().to_string())?;
        let said = Arc::default();
        let listening = child.stderr.take().map(|stderr| listen(stderr, Arc::clone(&said)));
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).context("the server's address")?;
        }
        if line.is_empty() {
            let _ = child.wait();
            if let Some(listening) = listening {
                let _ = listening.join();
            }
            let said = said.lock().unwrap_or_else(PoisonError::into_inner);
            bail!("kipp serve: {}", String::from_utf8_lossy(&said).trim_end());
        }
        let load_ms = started.elapsed().as_secs_f64() * 1e3;
        let manner = Manner { key: None, ..manner.clone() };
        let endpoint = Endpoint::open(Url::parse(line.trim())?, None, &manner)?;
        Ok(Serving { child, said, listening, endpoint, load_ms })
    }

    /// The most memory that it had resident, where the system tells.
    pub(super) fn peak_resident_bytes(&self) -> Option<u64> {
        let path = PathBuf::from(format!("/proc/{}/status", self.child.id()));
        super::super::single::peak_resident_of(&std::fs::read_to_string(path).ok()?)
    }

    /// Whether it still runs; what it said last otherwise.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("the server's process")? {
            let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            bail!("kipp serve ended with {status}: {}", String::from_utf8_lossy(&said).trim_end());
        }
        Ok(())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let told = Instant::now();
        while told.elapsed() < Duration::from_secs(2) && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Only where the end of its input was not enough; it may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

/// Takes what the server says, so that it never waits for a reader, and keeps the end.
fn listen(mut stderr: ChildStderr, said: Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = stderr.read(&mut piece) {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            said.extend(&piece[..read]);
            let before = said.len().saturating_sub(KEPT_BYTES);
            said.drain(..before);
        }
    })
}

/// The measurement's flags about the model as `kipp serve` takes them. Variables are inherited, and flags beat them.
fn flags(args: &ServeBenchArgs) -> Vec<String> {
    let mut flags = vec![format!("--model={}", args.target)];
    let mut add = |flag: &str, value: Option<String>| {
        flags.extend(value.map(|value| format!("{flag}={value}")));
    };
    let (attention, backend) = (&args.context.attention, &args.backend);
    add("--ctx", args.context.ctx.map(|tokens| tokens.to_string()));
    add("--kv", Some(attention.kv.name().to_owned()));
    add("--rope-scaling", attention.rope_scaling.and_then(value_name));
    add("--rope-factor", attention.rope_factor.map(|factor| factor.to_string()));
    add("--backend", value_name(backend.backend));
    add("--threads", backend.threads.map(|threads| threads.to_string()));
    add("--kernels", backend.kernels.map(classes));
    add("--activations", backend.activations.map(|coding| coding.name().to_owned()));
    add("--step-tokens", Some(args.step.step_tokens.to_string()));
    add("--kv-mib", args.pool.kv_mib.map(|mib| mib.to_string()));
    if backend.require_fast {
        flags.push("--require-fast".to_owned());
    }
    flags
}

fn value_name(value: impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_owned())
}

fn classes(classes: Classes) -> String {
    let named = [("matmul", classes.matmul), ("attention", classes.attention)];
    let parts = named.into_iter().filter_map(|(part, class)| Some(format!("{part}={}", class?.name())));
    parts.collect::<Vec<_>>().join(",")
}
