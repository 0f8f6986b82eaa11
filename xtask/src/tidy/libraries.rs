//! What a library must not do: print, read the environment, end the process.

use super::source::{Source, has_word};
use super::tree::Tree;

/// The library crates.
const LIBRARIES: &[&str] = &["crates/kipp-kernels/src/", "crates/kipp/src/", "crates/kipp-server/src/"];

/// Macros and paths that only a program may use.
const FORBIDDEN: &[&str] = &[
    "println!",
    "eprintln!",
    "print!",
    "eprint!",
    "dbg!",
    "std::env",
    "env::var",
    "process::exit",
    "process::abort",
];

pub(super) fn quiet(tree: &Tree) -> Vec<String> {
    let ours = |source: &&Source| LIBRARIES.iter().any(|library| source.path.starts_with(library));
    tree.rust.iter().filter(ours).flat_map(faults).collect()
}

fn faults(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, line) in source.product.iter().enumerate() {
        if let Some(word) = FORBIDDEN.iter().find(|word| uses(line, word)) {
            faults.push(format!("{}: {word} in a library: let the program do it", source.place(index)));
        }
    }
    faults
}

fn uses(line: &str, forbidden: &str) -> bool {
    match forbidden.strip_suffix('!') {
        Some(name) => has_word(line, name) && line.contains(forbidden),
        None => has_word(line, forbidden),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_tests_may_and_libraries_may_not() {
        let text = "//! A.\nuse std::env;\nfn f() { eprintln!(); }\n/// println!()\n#[cfg(test)]\nmod tests { fn g() { println!(); } }\n";
        let found = quiet(&Tree::of(&[("crates/kipp/src/a.rs", text), ("crates/kipp-cli/src/a.rs", text)]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].starts_with("crates/kipp/src/a.rs:3: eprintln!"), "{found:?}");
    }
}
