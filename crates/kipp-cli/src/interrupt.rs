//! Ctrl-C. Work that can keep what it has done so far says so with [`graceful`] and looks at [`requested`]; everything
//! else ends at once with exit code 130. A second Ctrl-C always ends at once. Files that are half written are removed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::outcome::INTERRUPTED;

static REQUESTED: AtomicBool = AtomicBool::new(false);
static GRACEFUL: AtomicBool = AtomicBool::new(false);
/// Files to remove when the program ends from within the handler.
static PARTIAL_FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Takes over Ctrl-C for the life of the program.
pub(crate) fn install() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| {
        let first = !REQUESTED.swap(true, Ordering::Relaxed);
        if !(first && GRACEFUL.load(Ordering::Relaxed)) {
            end_at_once();
        }
    })
}

/// Whether the work should end.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Forgets a Ctrl-C that ended the work it was meant for, so that the next one is a first one again.
pub(crate) fn forget() {
    REQUESTED.store(false, Ordering::Relaxed);
}

/// While this lives, the first Ctrl-C only makes [`requested`] true.
pub(crate) struct Graceful(());

/// Promises to look at [`requested`] often.
pub(crate) fn graceful() -> Graceful {
    GRACEFUL.store(true, Ordering::Relaxed);
    Graceful(())
}

impl Drop for Graceful {
    fn drop(&mut self) {
        GRACEFUL.store(false, Ordering::Relaxed);
    }
}

/// Registers a half-written file.
pub(crate) fn remove_on_end(path: &Path) {
    partial_files().push(path.to_owned());
}

/// The file is complete, or already removed.
pub(crate) fn keep_on_end(path: &Path) {
    partial_files().retain(|partial| partial != path);
}

fn partial_files() -> MutexGuard<'static, Vec<PathBuf>> {
    PARTIAL_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program with exit code 130, whatever it is doing.
#[allow(clippy::exit, reason = "the only way out of a signal handler while another thread computes")]
pub(crate) fn end_at_once() -> ! {
    for path in partial_files().drain(..) {
        // Nobody is left to tell, and the file may be gone already.
        let _ = std::fs::remove_file(path);
    }
    std::process::exit(i32::from(INTERRUPTED))
}
