//! Ending a step before its end: a prompt's step takes a minute where a processor is slow, and nobody who gave up should
//! wait for it. A flag, because a library reads no signals and a step is one call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::BackendError;

/// Tells models to stop. Once raised it stays raised, and nothing that looks at it evaluates any more.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Ends the step that runs after about half a layer, and every later one at once: each with
    /// [`BackendError::Interrupted`]. What such a step wrote means nothing.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// An error once it was raised.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        if self.0.load(Ordering::Relaxed) { Err(BackendError::Interrupted) } else { Ok(()) }
    }
}
