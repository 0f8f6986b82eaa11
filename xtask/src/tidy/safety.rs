//! Where `unsafe` may stand, and that each use carries the sentence that makes it sound.

use super::source::{Source, has_word};
use super::tree::Tree;

/// The only places with `unsafe`. A path that ends with `/` is a folder.
const ALLOWED: &[&str] = &[
    "crates/kipp-kernels/src/isa/",
    "crates/kipp-kernels/src/columns.rs",
    "crates/kipp/src/artifact/map.rs",
    "crates/kipp/src/backend/cpu/threads.rs",
];

pub(super) fn unsafe_code(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for source in &tree.rust {
        let allowed = ALLOWED.iter().any(|place| {
            if place.ends_with('/') { source.path.starts_with(place) } else { source.path == *place }
        });
        for (index, line) in source.code.iter().enumerate().filter(|(_, line)| has_word(line, "unsafe")) {
            if !allowed {
                faults.push(format!("{}: unsafe is not allowed in this file", source.place(index)));
            } else if demands_sentence(source, index, line) && !has_sentence(source, index) {
                faults.push(format!(
                    "{}: unsafe without a `// SAFETY:` sentence above it",
                    source.place(index)
                ));
            }
        }
    }
    faults
}

/// A block or an impl asserts something; an `unsafe fn`, trait or type only passes the duty on.
fn demands_sentence(source: &Source, index: usize, line: &str) -> bool {
    let after = line.split_once("unsafe").map_or("", |(_, after)| after.trim_start());
    let next = if after.is_empty() {
        source.code.get(index + 1).map_or("", |line| line.trim_start())
    } else {
        after
    };
    next.starts_with('{') || has_word(next.split(['{', '<', ' ']).next().unwrap_or(""), "impl")
}

/// A SAFETY comment on this line, or directly above the statement or item that the line belongs to.
fn has_sentence(source: &Source, index: usize) -> bool {
    if source.lines[index].contains("SAFETY:") {
        return true;
    }
    let mut in_comment = false;
    for above in (0..index).rev() {
        let (line, code) = (source.lines[above].trim(), source.code[above].trim());
        if code.is_empty() && line.starts_with("//") {
            in_comment = true;
            if line.contains("SAFETY:") {
                return true;
            }
        } else if in_comment
            || line.is_empty()
            || (!code.starts_with("#[") && code.ends_with([';', '{', '}']))
        {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(path: &str, text: &str) -> Vec<String> {
        unsafe_code(&Tree::of(&[(path, text)]))
    }

    const MAP: &str = "crates/kipp/src/artifact/map.rs";

    #[test]
    fn unsafe_elsewhere_is_found() {
        assert_eq!(faults_of("crates/kipp/src/kv/pool.rs", "// SAFETY: no.\nunsafe { f() }\n").len(), 1);
        assert_eq!(faults_of("crates/kipp/src/kv/pool.rs", "#![deny(unsafe_code)] // unsafe\n"), [""; 0]);
    }

    #[test]
    fn each_block_and_impl_needs_its_sentence() {
        assert_eq!(faults_of(MAP, "// SAFETY: a fact.\nlet a =\n    unsafe { f() };\n"), [""; 0]);
        assert_eq!(
            faults_of(
                MAP,
                "// SAFETY: a fact,\n// in two lines.\n#[allow(unsafe_code)]\nunsafe impl Send for A {}\n"
            ),
            [""; 0]
        );
        assert_eq!(faults_of(MAP, "// SAFETY: a fact.\nunsafe { f() };\nunsafe { g() };\n").len(), 1);
        assert_eq!(faults_of(MAP, "// SAFETY: a fact.\nlet b = 1;\nunsafe impl Send for A {}\n").len(), 1);
        assert_eq!(faults_of(MAP, "/// # Safety\n/// The caller.\npub unsafe fn f() {}\n"), [""; 0]);
    }
}
