//! The invariants of ARCHITECTURE.md and CONTRIBUTING.md that a program can check. Each check names the file, the line
//! and what to do; `cargo test -p xtask` runs them as well as `cargo xtask ci`.

mod documents;
mod layers;
mod libraries;
mod manifests;
mod paths;
mod rooms;
mod safety;
mod shape;
mod source;
mod tree;

use std::path::Path;

use anyhow::{Result, bail};

use crate::steps::{Context, Report};
use tree::Tree;

/// One invariant: what it demands, and where it is broken.
struct Check {
    demands: &'static str,
    find: fn(&Tree) -> Vec<String>,
}

const CHECKS: &[Check] = &[
    Check { demands: "a Rust file is short and opens with //!", find: shape::files },
    Check { demands: "a file name says what the file is for", find: shape::names },
    Check { demands: "an ignored test says why", find: shape::ignored_tests },
    Check {
        demands: "unsafe stands in the named files only, each with its SAFETY sentence",
        find: safety::unsafe_code,
    },
    Check { demands: "libraries print nothing, read no environment, never exit", find: libraries::quiet },
    Check { demands: "the rooms of crates/kipp/src use only rooms below them", find: layers::arrows },
    Check { demands: "crates depend on each other in one direction", find: manifests::own_crates },
    Check { demands: "a dependency says in the root manifest why it is there", find: manifests::reasons },
    Check { demands: "every fuzz target is declared in fuzz/Cargo.toml", find: manifests::fuzz_targets },
    Check { demands: "the tree and ARCHITECTURE.md name the same rooms", find: rooms::named },
    Check { demands: "ARCHITECTURE.md gives the order of rooms that is checked", find: layers::told },
    Check {
        demands: "links in documents lead somewhere; README.md has no absolute path",
        find: documents::links,
    },
];

/// The step of CI.
pub(crate) fn step(context: &Context) -> Result<Report> {
    let mut report = Report::default();
    let faults = faults(&context.root)?;
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    report.say(format!("{} invariants hold", CHECKS.len()));
    Ok(report)
}

/// Every broken invariant of a tree, one line each.
fn faults(root: &Path) -> Result<Vec<String>> {
    let tree = Tree::read(root)?;
    let mut lines = Vec::new();
    for check in CHECKS {
        for fault in (check.find)(&tree) {
            lines.push(format!("{fault}\n      ({})", check.demands));
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_keeps_its_invariants() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let faults = faults(&root)?;
        assert!(faults.is_empty(), "\n{}", faults.join("\n"));
        Ok(())
    }
}
