//! Where typed lines are remembered: the folder for state that the XDG base directories name, on every system, since a
//! chat is a program of terminals.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "kipp/chat-history";

/// The file; `None` where the environment names no home.
pub(super) fn path() -> Option<PathBuf> {
    path_in(std::env::var_os("XDG_STATE_HOME"), std::env::home_dir())
}

/// A state folder that is not absolute counts as absent, as the specification has it.
fn path_in(state: Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    let state = state.map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || home.filter(|path| path.is_absolute()).map(|home| home.join(".local/state"));
    Some(state.or_else(home)?.join(FILE))
}

/// Creates the file's folder, for its owner alone.
pub(super) fn create_folder(file: &Path) -> io::Result<()> {
    let Some(folder) = file.parent().filter(|folder| !folder.exists()) else { return Ok(()) };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_folder_or_the_homes() {
        let path =
            |state: Option<&str>, home: Option<&str>| path_in(state.map(Into::into), home.map(Into::into));
        let expected = |path: &str| Some(PathBuf::from(path));
        assert_eq!(path(Some("/s"), Some("/h")), expected("/s/kipp/chat-history"));
        assert_eq!(path(None, Some("/h")), expected("/h/.local/state/kipp/chat-history"));
        assert_eq!(path(Some(""), Some("/h")), expected("/h/.local/state/kipp/chat-history"));
        assert_eq!(path(Some("relative"), None), None);
    }
}
