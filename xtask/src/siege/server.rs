//! The server under siege: a process of the release build, its metrics, its memory, its end.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::wire;
use crate::exec;

/// Seconds that a head and a body may take here.
pub(super) const HEADER_SECONDS: u64 = 3;
pub(super) const BODY_SECONDS: u64 = 3;
/// MiB of a body at most here: the server's own default.
pub(super) const MAX_BODY_MIB: u64 = 32;

/// For what was left behind to be free again.
const SOON: Duration = Duration::from_secs(20);

/// Positions of a sequence, and MiB of keys and values, which hold three such sequences: 64 clients want far more than
/// there is.
const CONTEXT: &str = "512";
const KV_MIB: &str = "4";

pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
    log: Arc<Mutex<String>>,
    listening: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(program: &Path, root: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--model", "kipp-tiny", "--port", "0", "--ctx", CONTEXT, "--kv-mib", KV_MIB]);
        command.args([
            format!("--header-seconds={HEADER_SECONDS}"),
            format!("--body-seconds={BODY_SECONDS}"),
            format!("--max-body-mib={MAX_BODY_MIB}"),
        ]);
        command.current_dir(root).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KIPP_") {
                command.env_remove(name);
            }
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {}", exec::shown(&command)))?;
        let log = Arc::default();
        let listening = child.stderr.take().map(|stderr| keep_end(stderr, Arc::clone(&log)));
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let port = line.trim().rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let mut server = Self { child, port: 0, log, listening };
        server.port = port.with_context(|| format!("`kipp serve` gave no address\n{}", server.said()))?;
        Ok(server)
    }

    /// The end of what it said.
    pub(super) fn said(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A number of `/metrics`.
    pub(super) fn metric(&self, name: &str) -> Result<f64> {
        number(&self.metrics()?, name).with_context(|| format!("no {name} in /metrics"))
    }

    pub(super) fn metrics(&self) -> Result<String> {
        let answer = wire::request(self.port, "GET", "/metrics", None)?;
        ensure!(answer.status == 200, "/metrics was answered {}", answer.status);
        Ok(answer.body)
    }

    /// Waits until nothing runs, nothing waits and no block is held.
    pub(super) fn wait_until_quiet(&self) -> Result<()> {
        let started = Instant::now();
        loop {
            let metrics = self.metrics()?;
            let of = |name| number(&metrics, name).with_context(|| format!("no {name} in /metrics"));
            let running = of("kipp_requests_running")? + of("kipp_requests_waiting")?;
            let used = of("kipp_kv_blocks{state=\"used\"}")?;
            if running == 0.0 && used == 0.0 {
                return Ok(());
            }
            ensure!(
                started.elapsed() < SOON,
                "still {running} requests and {used} blocks after all clients left"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// KiB that it has resident now; `None` where the system does not tell.
    pub(super) fn resident_kib(&self) -> Option<u64> {
        resident_kib(self.child.id())
    }

    /// Starts to watch how much it has resident at most.
    pub(super) fn watch(&self) -> Watch {
        let (over, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, peak, id) = (Arc::clone(&over), Arc::clone(&most), self.child.id());
        let thread = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                peak.fetch_max(resident_kib(id).unwrap_or(0), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
        });
        Watch { over, most, thread }
    }

    /// Whether it still runs.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the server ended with {status}\n{}", self.said());
        }
        Ok(())
    }

    /// Tells it to end, which it must do well.
    pub(super) fn end(mut self, root: &Path) -> Result<()> {
        let id = self.child.id().to_string();
        exec::succeed(exec::command("kill", &["-TERM", &id], root))?;
        let told = Instant::now();
        while told.elapsed() < SOON {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the server ended with {status}\n{}", self.said());
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("the server does not end")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

/// The most memory in a while.
pub(super) struct Watch {
    over: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Watch {
    /// KiB.
    pub(super) fn end(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.most.load(Ordering::Relaxed)
    }
}

fn keep_end(mut stderr: impl Read + Send + 'static, log: Arc<Mutex<String>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = stderr.read(&mut piece) {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            *log += &String::from_utf8_lossy(&piece[..read]);
            let before = log.len().saturating_sub(4096);
            let cut = (before..=log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(0);
            log.drain(..cut);
        }
    })
}

fn resident_kib(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The value of a line of `/metrics`.
pub(super) fn number(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_whole_name() {
        let metrics = "# HELP a b\na_total 3\na 2.5\na{state=\"used\"} 4\n";
        assert_eq!(number(metrics, "a"), Some(2.5));
        assert_eq!(number(metrics, "a{state=\"used\"}"), Some(4.0));
        assert_eq!(number(metrics, "b"), None);
    }
}
