//! The time as an engine sees it. An engine is handed its clock, so that a test can hold it still.

use std::time::{Duration, Instant};

/// A clock that never goes back.
pub trait Clock: Send {
    /// The time since some moment that stays the same.
    fn now(&self) -> Duration;
}

/// The machine's monotonic clock, from the moment this was made.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
