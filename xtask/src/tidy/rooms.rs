//! ARCHITECTURE.md and the tree tell the same story: every path that the document lists and every file that it names
//! exists, and every room of the two library crates is named.

use std::collections::BTreeSet;

use super::tree::Tree;

/// The document with the map of the tree, one path at the start of a line.
pub(super) const MAP: &str = "ARCHITECTURE.md";

/// The engine: each of its rooms must be named.
const ENGINE: &str = "crates/kipp/src/";

/// The kernels: each of their folders must be named.
const KERNELS: &str = "crates/kipp-kernels/src/";

/// Folders that must have a line of their own.
const LISTED: &[&str] = &[
    "crates/kipp-kernels/src/",
    "crates/kipp/src/",
    "crates/kipp-server/src/",
    "crates/kipp-cli/src/",
    "xtask/src/",
    "fuzz/",
];

pub(super) fn named(tree: &Tree) -> Vec<String> {
    compare(&tree.text(MAP), &tree.paths)
}

/// Paths and file names in the document without a file, and rooms in the tree without a word.
fn compare(document: &str, paths: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut named = BTreeSet::new();
    let mut listed = BTreeSet::new();
    for (index, line) in document.lines().enumerate() {
        let path = line.split_whitespace().next().unwrap_or("").trim_end_matches('/');
        if ["crates/", "xtask/", "fuzz/"].iter().any(|start| line.starts_with(start)) {
            listed.insert(path);
            named.insert(path.rsplit('/').next().unwrap_or(path));
            if !paths.iter().any(|found| found == path || found.starts_with(&format!("{path}/"))) {
                faults.push(format!("{MAP}:{}: {path} is not in the tree", index + 1));
            }
        }
        for word in line.split('`').skip(1).step_by(2) {
            named.insert(word.trim_end_matches('/').trim_end_matches(".rs"));
            if word.ends_with(".rs")
                && !paths.iter().any(|path| format!("/{path}").ends_with(&format!("/{word}")))
            {
                faults.push(format!("{MAP}:{}: no file is called {word}", index + 1));
            }
        }
    }
    for (room, folder) in rooms(paths) {
        if !named.contains(room.as_str()) {
            faults.push(format!("{folder}{room}: {MAP} does not name this room"));
        }
    }
    for folder in LISTED.iter().filter(|folder| paths.iter().any(|path| path.starts_with(**folder))) {
        if !listed.contains(folder.trim_end_matches('/')) {
            faults.push(format!("{folder}: no line of {MAP} begins with this path"));
        }
    }
    faults
}

/// What must be named: the modules of the engine, the folders of the kernels.
fn rooms(paths: &[String]) -> BTreeSet<(String, &'static str)> {
    let mut rooms = BTreeSet::new();
    for path in paths {
        if let Some(inside) = path.strip_prefix(ENGINE) {
            let room = inside.split(['/', '.']).next().unwrap_or(inside);
            rooms.insert((room.to_owned(), ENGINE));
        }
        if let Some((room, _)) = path.strip_prefix(KERNELS).and_then(|inside| inside.split_once('/')) {
            rooms.insert((room.to_owned(), KERNELS));
        }
    }
    rooms.remove(&("lib".to_owned(), ENGINE));
    rooms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_compared() {
        let paths = [
            "crates/kipp/src/lib.rs",
            "crates/kipp/src/kv/mod.rs",
            "crates/kipp/src/token.rs",
            "crates/kipp/src/spec.rs",
            "crates/kipp-kernels/src/tile/mod.rs",
            "xtask/src/main.rs",
        ];
        let document = "# Map\n`spec.rs` and `tile.rs`\n```\ncrates/kipp/src/\ncrates/kipp/src/kv/  blocks\n\
                        crates/kipp/src/cellar.rs\nxtask/src/ ours\n```\n";
        assert_eq!(
            compare(document, &paths.map(str::to_owned)),
            [
                "ARCHITECTURE.md:2: no file is called tile.rs",
                "ARCHITECTURE.md:6: crates/kipp/src/cellar.rs is not in the tree",
                "crates/kipp/src/token: ARCHITECTURE.md does not name this room",
                "crates/kipp-kernels/src/: no line of ARCHITECTURE.md begins with this path",
            ]
        );
    }
}
