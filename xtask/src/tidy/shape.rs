//! What every file must look like: short, introduced, named for what it holds.

use super::source::Source;
use super::tree::Tree;

/// A file that one can read in one sitting.
const MOST_LINES: usize = 450;

/// Files that may be longer, and why. Tables of data only.
const LONG: &[(&str, &str)] = &[];

/// Names that say nothing of what a file holds.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc", "manager"];

pub(super) fn files(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for source in &tree.rust {
        let lines = source.lines.len();
        if lines > MOST_LINES && !LONG.iter().any(|(path, _)| *path == source.path) {
            faults.push(format!("{}: {lines} lines, at most {MOST_LINES}: divide it by reason", source.path));
        }
        if !source.lines.first().is_some_and(|line| line.starts_with("//!")) {
            faults.push(format!("{}: does not open with //! saying what the file is for", source.path));
        }
    }
    for (path, why) in LONG {
        if tree.rust.iter().any(|source| source.path == *path && source.lines.len() <= MOST_LINES) {
            faults.push(format!("{path}: excepted from the line limit ({why}), but within it"));
        }
    }
    faults
}

pub(super) fn names(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for path in &tree.paths {
        let empty = path.split('/').map(|part| part.split('.').next().unwrap_or(part)).find(|part| {
            part.split(['_', '-']).any(|word| EMPTY_NAMES.contains(&word.to_lowercase().as_str()))
        });
        if let Some(name) = empty {
            faults.push(format!("{path}: {name:?} names no reason: call it after what it holds"));
        }
    }
    faults
}

pub(super) fn ignored_tests(tree: &Tree) -> Vec<String> {
    let bare = |source: &Source| -> Vec<String> {
        let found = source.code.iter().enumerate().filter(|(_, line)| line.contains("#[ignore]"));
        found.map(|(index, _)| format!("{}: #[ignore] without a reason", source.place(index))).collect()
    };
    tree.rust.iter().flat_map(bare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_silent_and_badly_named_files_are_found() {
        let long = format!("//! Long.\n{}", "\n".repeat(450));
        let tree = Tree::of(&[
            ("src/a.rs", "fn a() {}\n#[ignore]\n"),
            ("src/b.rs", &long),
            ("src/kv_utils.rs", "//! K.\n"),
        ]);
        assert_eq!(files(&tree).len(), 2, "{:?}", files(&tree));
        assert_eq!(
            names(&tree),
            ["src/kv_utils.rs: \"kv_utils\" names no reason: call it after what it holds"]
        );
        assert_eq!(ignored_tests(&tree), ["src/a.rs:2: #[ignore] without a reason"]);
    }
}
