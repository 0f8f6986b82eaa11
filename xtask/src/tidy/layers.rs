//! The rooms of the engine in their order, bottom to top: a room may use those below it. A strict order leaves no place
//! for a cycle, but for the one between `model` and `backend`, which are one room with two doors.

use std::collections::BTreeMap;

use super::paths::{Path, from_root, written_out};
use super::rooms::MAP;
use super::source::Source;
use super::tree::Tree;

const ENGINE: &str = "crates/kipp/src/";

/// Bottom to top, as ARCHITECTURE.md gives them; rooms in one line may use each other.
const ORDER: &[&[&str]] = &[
    &["token"],
    &["spec"],
    &["checkpoints"],
    &["artifact"],
    &["tokenizer"],
    &["chat"],
    &["kv"],
    &["sampling"],
    &["batch"],
    &["answer"],
    &["oracle"],
    &["backend", "model"],
    &["session"],
    &["speculate"],
    &["engine"],
    &["perplexity"],
    &["convert"],
    &["gates"],
];

/// All that the oracle may name, so that a fault elsewhere cannot hide in it.
const ORACLE_USES: &[&str] = &["token", "spec", "artifact", "kv::KvScheme"];

/// The files below `gates` that may name the oracle: the one that lets it answer batches.
const ORACLE_USERS: &[&str] = &["crates/kipp/src/backend/oracle.rs"];

pub(super) fn arrows(tree: &Tree) -> Vec<String> {
    let engine: Vec<&Source> = tree.rust.iter().filter(|source| source.path.starts_with(ENGINE)).collect();
    let shown =
        engine.iter().find(|source| source.path == format!("{ENGINE}lib.rs")).map(|source| shown_by(source));
    let shown = shown.unwrap_or_default();
    let mut faults = Vec::new();
    for source in engine {
        let modules = modules(&source.path);
        let Some(room) = modules.first() else { continue };
        if height(room).is_none() {
            faults.push(format!("{}: the room {room:?} has no place in the order of rooms", source.path));
            continue;
        }
        for path in from_root(source, modules.len()) {
            if let Some(why) = fault(source, room, &path, &shown) {
                let line = source.lines[path.line].trim();
                faults.push(format!("{}: `{line}`: {why}", source.place(path.line)));
            }
        }
    }
    faults
}

/// The order of rooms that ARCHITECTURE.md gives in its paragraph `Rooms of ...` is the one checked here.
pub(super) fn told(tree: &Tree) -> Vec<String> {
    let document = tree.text(MAP);
    let Some(at) = document.find("\nRooms of ") else { return Vec::new() };
    let paragraph = document[at + 1..].split("\n\n").next().unwrap_or("");
    let told: Vec<&str> =
        paragraph.split('`').skip(1).step_by(2).filter(|word| height(word).is_some()).collect();
    let checked: Vec<&str> = ORDER.iter().flat_map(|rooms| rooms.iter().copied()).collect();
    if told == checked {
        return Vec::new();
    }
    vec![format!("{MAP}: the rooms are told as {}, but checked as {}", told.join(" "), checked.join(" "))]
}

/// `crates/kipp/src/kv/pool.rs` is in the modules kv, pool.
fn modules(path: &str) -> Vec<&str> {
    let inside = path.strip_prefix(ENGINE).unwrap_or(path).trim_end_matches(".rs");
    inside.split('/').filter(|name| !["mod", "lib", "main"].contains(name)).collect()
}

fn height(room: &str) -> Option<usize> {
    ORDER.iter().position(|rooms| rooms.contains(&room))
}

/// What lib.rs re-exports at the root, by room: `ModelSpec` is in `spec`. Names of other crates are in no room.
fn shown_by(library: &Source) -> BTreeMap<String, String> {
    let code = library.product.join("\n");
    let mut shown = BTreeMap::new();
    for (at, _) in code.match_indices("use ") {
        for path in written_out(&code[at + "use ".len()..]) {
            let inside: Vec<_> = path.iter().filter(|name| *name != "crate" && *name != "self").collect();
            if let (Some(room), Some(name)) = (inside.first(), inside.last()) {
                shown.insert((*name).clone(), (*room).clone());
            }
        }
    }
    shown
}

fn fault(source: &Source, room: &str, path: &Path, shown: &BTreeMap<String, String>) -> Option<String> {
    let name = path.segments.first()?;
    let target = if height(name).is_some() { name } else { shown.get(name)? };
    if target == room {
        return None;
    }
    let to = height(target)?;
    let from = height(room)?;
    if to > from {
        return Some(format!("{target} is above {room}"));
    }
    let whole = path.segments.join("::");
    let begins = |allowed: &&str| {
        *allowed == target || whole == **allowed || whole.starts_with(&format!("{allowed}::"))
    };
    if room == "oracle" && !ORACLE_USES.iter().any(begins) {
        return Some(format!("the oracle uses only {}", ORACLE_USES.join(", ")));
    }
    let may_use_oracle = room == "gates" || ORACLE_USERS.contains(&source.path.as_str());
    if target == "oracle" && !may_use_oracle {
        return Some(format!("only gates and {} use the oracle", ORACLE_USERS.join(", ")));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let library = "pub mod spec;\npub use kipp_kernels::Scheme;\npub use session::Session;\npub use spec::ModelSpec;\n";
        let files = [("crates/kipp/src/lib.rs", library), (path, text)];
        arrows(&Tree::of(&files))
    }

    #[test]
    fn an_upward_arrow_is_named_with_its_line() {
        let faults = found("crates/kipp/src/kv/pool.rs", "//! P.\nuse crate::session::Session;\n");
        assert_eq!(
            faults,
            ["crates/kipp/src/kv/pool.rs:2: `use crate::session::Session;`: session is above kv"]
        );
        assert_eq!(found("crates/kipp/src/kv/pool.rs", "use super::super::batch::Batch;\n").len(), 1);
        assert_eq!(found("crates/kipp/src/kv/pool.rs", "use crate::Session;\n").len(), 1);
    }

    #[test]
    fn downward_arrows_and_tests_are_free() {
        let text = "use crate::{Scheme, ModelSpec, token::TokenId};\nuse super::table;\n#[cfg(test)]\nmod tests {\n use crate::gates;\n}\n";
        assert_eq!(found("crates/kipp/src/kv/pool.rs", text), [""; 0]);
        assert_eq!(found("crates/kipp/src/model/forward.rs", "use crate::backend::Backend;"), [""; 0]);
        assert_eq!(found("crates/kipp/src/backend/mod.rs", "use crate::model::Rope;"), [""; 0]);
    }

    #[test]
    fn the_oracle_stands_apart() {
        assert_eq!(
            found("crates/kipp/src/oracle.rs", "use crate::kv::KvScheme;\nuse crate::artifact::Matrix;"),
            [""; 0]
        );
        assert_eq!(found("crates/kipp/src/oracle.rs", "use crate::kv::KvPool;").len(), 1);
        assert_eq!(found("crates/kipp/src/oracle.rs", "use crate::tokenizer::Tokenizer;").len(), 1);
        assert_eq!(found("crates/kipp/src/model/mod.rs", "use crate::oracle;").len(), 1);
        assert_eq!(found("crates/kipp/src/backend/oracle.rs", "use crate::oracle;"), [""; 0]);
    }

    #[test]
    fn a_new_room_needs_a_place() {
        assert_eq!(found("crates/kipp/src/cellar.rs", "//! C.").len(), 1);
    }
}
