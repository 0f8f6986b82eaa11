//! The paths that a piece of Rust code names from `crate` or `super`, with `{...}` groups written out.

use super::source::Source;

/// A path such as `crate::kv::KvScheme` as its segments after the root of the crate, and the index of its line.
pub(super) struct Path {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
}

/// Every path of a file's product code that starts at the root of its crate, whether it says `crate::` or climbs there
/// by `super::`. `depth` is how many modules deep the file is (`src/kv/pool.rs`: 2).
pub(super) fn from_root(source: &Source, depth: usize) -> Vec<Path> {
    let code = source.product.join("\n");
    let mut paths = Vec::new();
    for root in ["crate::", "super::"] {
        for (at, _) in code.match_indices(root) {
            let inside_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let part_of_chain = code[..at].ends_with("super::") || code[..at].ends_with("self::");
            if inside_word || part_of_chain {
                continue;
            }
            let (climbed, rest) = climb(&code[at..]);
            if root == "crate::" || climbed == depth {
                let line = code[..at].matches('\n').count();
                paths.extend(written_out(rest).into_iter().map(|segments| Path { segments, line }));
            }
        }
    }
    paths
}

/// How many `super::` stand here, and what follows them (or the one `crate::`).
fn climb(mut text: &str) -> (usize, &str) {
    if let Some(rest) = text.strip_prefix("crate::") {
        return (0, rest);
    }
    let mut count = 0;
    while let Some(rest) = text.strip_prefix("super::") {
        (text, count) = (rest, count + 1);
    }
    (count, text)
}

/// `a::{b, c::d}` is `a::b` and `a::c::d`. Macros (`a!`) are no paths.
pub(super) fn written_out(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    tree(text, &[], &mut paths);
    paths
}

/// Reads one use tree, adds its paths, and returns what follows it.
fn tree<'a>(text: &'a str, before: &[String], paths: &mut Vec<Vec<String>>) -> &'a str {
    let mut segments = before.to_vec();
    let mut rest = text.trim_start();
    loop {
        if let Some(mut inside) = rest.strip_prefix('{') {
            loop {
                inside = inside.trim_start().trim_start_matches(',').trim_start();
                if let Some(after) = inside.strip_prefix('}') {
                    return after;
                }
                let after = tree(inside, &segments, paths);
                if after.len() == inside.len() {
                    return after;
                }
                inside = after;
            }
        }
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '*')).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if !name.is_empty() {
            segments.push(name.to_owned());
        }
        let Some(next) = after.strip_prefix("::") else {
            let after = renamed(after);
            if segments.len() > before.len() && !after.starts_with('!') {
                paths.push(segments);
            }
            return after;
        };
        rest = next.trim_start();
    }
}

/// Skips ` as name`.
fn renamed(text: &str) -> &str {
    let Some(rest) = text.trim_start().strip_prefix("as ") else { return text };
    rest.trim_start().trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(text: &str, depth: usize) -> Vec<String> {
        let paths = from_root(&Source::new("a.rs", text), depth);
        paths.iter().map(|path| format!("{}:{}", path.line + 1, path.segments.join("::"))).collect()
    }

    #[test]
    fn groups_are_written_out() {
        let text = "use crate::{kv::{KvScheme, table::*}, token::TokenId as Id};\nfn f(x: crate::spec::ModelSpec) {}\n";
        assert_eq!(
            joined(text, 1),
            ["1:kv::KvScheme", "1:kv::table::*", "1:token::TokenId", "2:spec::ModelSpec"]
        );
    }

    #[test]
    fn only_a_climb_to_the_root_counts() {
        let text = "use super::{a::B, c};\nuse super::super::kv::KvPool;\ncrate::inner!();\n";
        assert_eq!(joined(text, 2), ["2:kv::KvPool"]);
        assert_eq!(joined("use super::kv::KvPool;", 1), ["1:kv::KvPool"]);
    }
}
