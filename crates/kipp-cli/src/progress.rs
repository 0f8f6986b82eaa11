//! Progress of long work: a bar on standard error, on a terminal only, once the work turns out to be long.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Work shorter than this shows nothing.
const QUICK: Duration = Duration::from_millis(500);

/// The progress of one piece of work.
pub(crate) struct Progress {
    /// Without colours, so that `NO_COLOR` has nothing to turn off.
    template: &'static str,
    started: Instant,
    bar: Option<ProgressBar>,
    visible: bool,
}

impl Progress {
    /// `template` in the bar library's syntax.
    pub(crate) fn new(template: &'static str) -> Progress {
        Progress { template, started: Instant::now(), bar: None, visible: std::io::stderr().is_terminal() }
    }

    /// How far the work is.
    pub(crate) fn update(&mut self, done: u64, total: u64) {
        if !self.visible || self.started.elapsed() < QUICK {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template(self.template);
            ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_position(done);
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
