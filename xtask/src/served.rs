//! A `kipp serve` on a free port of this machine, for as long as somebody needs it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::exec;
use crate::steps::Context;

/// A running server; dropping it ends it.
pub(crate) struct Served {
    process: Child,
    url: String,
}

impl Served {
    /// Starts the release build with kipp-tiny and waits until it takes requests.
    pub(crate) fn start(context: &Context, flags: &[&str]) -> Result<Self> {
        let args = [&["serve", "--port", "0"], flags].concat();
        let mut command = exec::command(context.kipp(), &args, &context.root);
        // Its log is nobody's, and a pipe that nobody reads would fill.
        command.stderr(Stdio::null());
        let shown = exec::shown(&command);
        let mut process = command.spawn().with_context(|| format!("cannot start {shown}"))?;
        let mut url = String::new();
        // It prints its address once the model is loaded.
        let read = process.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut url));
        let served = Self { process, url: url.trim().to_owned() };
        match read {
            Some(Ok(1..)) => Ok(served),
            _ => bail!("`{shown}` ended without an address"),
        }
    }

    /// Whether it has not ended by itself.
    pub(crate) fn is_running(&mut self) -> Result<bool> {
        Ok(self.process.try_wait()?.is_none())
    }

    /// Where it listens, such as `http://127.0.0.1:41234`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
