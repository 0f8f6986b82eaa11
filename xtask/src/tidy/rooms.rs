//! ARCHITECTURE.md and the tree tell the same story: every path that the document lists exists, and every room of the
//! two library crates is listed.

use std::collections::BTreeSet;

use super::tree::Tree;

/// The document with the map of the tree, one path at the start of a line.
pub(super) const MAP: &str = "ARCHITECTURE.md";

/// Folders whose direct children must each be listed.
const OPEN: &[&str] = &["crates/kipp-kernels/src/", "crates/kipp/src/"];

/// Folders that must be listed, not their children.
const CLOSED: &[&str] = &["crates/kipp-cli/src/", "xtask/src/", "fuzz/fuzz_targets/"];

pub(super) fn named(tree: &Tree) -> Vec<String> {
    if !tree.paths.iter().any(|path| path == MAP) {
        return Vec::new();
    }
    compare(&tree.text(MAP), &tree.paths)
}

/// Paths in the document without a file, and rooms in the tree without a line.
fn compare(document: &str, paths: &[String]) -> Vec<String> {
    let listed: Vec<(usize, &str)> = document
        .lines()
        .enumerate()
        .filter(|(_, line)| ["crates/", "xtask/", "fuzz/"].iter().any(|start| line.starts_with(start)))
        .filter_map(|(index, line)| Some((index, line.split_whitespace().next()?)))
        .collect();
    let mut faults = Vec::new();
    for (index, path) in &listed {
        let folder = format!("{}/", path.trim_end_matches('/'));
        if !paths.iter().any(|found| found == path || found.starts_with(&folder)) {
            faults.push(format!("{MAP}:{}: {path} is not in the tree", index + 1));
        }
    }
    for room in rooms(paths) {
        if !listed.iter().any(|(_, path)| path.trim_end_matches('/') == room) {
            faults.push(format!("{room}: no line of {MAP} begins with this path"));
        }
    }
    faults
}

/// What must be listed, without a closing slash.
fn rooms(paths: &[String]) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for path in paths {
        for folder in OPEN {
            if let Some(child) = path.strip_prefix(folder).and_then(|inside| inside.split('/').next()) {
                rooms.insert(format!("{folder}{child}"));
            }
        }
        for folder in CLOSED.iter().filter(|folder| path.starts_with(**folder)) {
            rooms.insert(folder.trim_end_matches('/').to_owned());
        }
    }
    rooms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_compared() {
        let paths =
            ["crates/kipp/src/kv/mod.rs", "crates/kipp/src/token.rs", "xtask/src/main.rs"].map(str::to_owned);
        let document =
            "# Map\n```\ncrates/kipp/src/kv/  blocks\ncrates/kipp/src/cellar.rs\nxtask/src/ ours\n```\n";
        assert_eq!(
            compare(document, &paths),
            [
                "ARCHITECTURE.md:4: crates/kipp/src/cellar.rs is not in the tree",
                "crates/kipp/src/token.rs: no line of ARCHITECTURE.md begins with this path"
            ]
        );
    }
}
