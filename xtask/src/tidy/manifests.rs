//! What the manifests must say: which of our crates use which, why a dependency is there, which fuzz targets exist.

use super::tree::Tree;

/// Our crates and those of ours that each may use.
const OWN: &[(&str, &[&str])] = &[
    ("crates/kipp-kernels", &[]),
    ("crates/kipp", &["kipp-kernels"]),
    ("crates/kipp-server", &["kipp"]),
    ("crates/kipp-cli", &["kipp", "kipp-kernels", "kipp-server"]), // the names of kernel classes, for its flags
    ("xtask", &[]),
    ("fuzz", &["kipp"]),
];

pub(super) fn own_crates(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for manifest in tree.paths.iter().filter(|path| path.ends_with("/Cargo.toml")) {
        let folder = manifest.trim_end_matches("/Cargo.toml");
        let Some((_, allowed)) = OWN.iter().find(|(own, _)| *own == folder) else {
            faults.push(format!(
                "{manifest}: this crate has no place among our crates (xtask/src/tidy/manifests.rs)"
            ));
            continue;
        };
        faults.extend(foreign(manifest, &tree.text(manifest), allowed));
    }
    faults
}

fn foreign(manifest: &str, text: &str, allowed: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, name) in dependencies(text) {
        let own = name == "kipp" || name.starts_with("kipp-");
        if own && !allowed.contains(&name) {
            faults.push(format!("{manifest}:{}: must not use {name}", index + 1));
        }
    }
    faults
}

/// Names in all dependency tables, with the index of their line.
fn dependencies(text: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut names = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(table) = line.trim().strip_prefix('[') {
            inside = table.trim_end_matches(']').ends_with("dependencies");
        } else if inside && line.contains('=') && !line.trim_start().starts_with('#') {
            names.push((index, line.split(['.', '=', ' ']).next().unwrap_or(line)));
        }
    }
    names
}

pub(super) fn reasons(tree: &Tree) -> Vec<String> {
    without_reason(&tree.text("Cargo.toml"))
}

/// Lines of a root manifest that name a dependency, not one of ours, without `# why` or with any version.
fn without_reason(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let third_party = dependencies(text).into_iter().filter(|(index, _)| !lines[*index].contains("path ="));
    third_party
        .filter(|(index, _)| {
            lines[*index]
                .split_once(" # ")
                .is_none_or(|(_, why)| why.trim().is_empty() || lines[*index].contains("\"*\""))
        })
        .map(|(index, name)| format!("Cargo.toml:{}: {name} has no version with a `# reason`", index + 1))
        .collect()
}

pub(super) fn fuzz_targets(tree: &Tree) -> Vec<String> {
    let manifest = tree.text("fuzz/Cargo.toml");
    let targets = tree.paths.iter().filter_map(|path| path.strip_prefix("fuzz/")?.strip_suffix(".rs"));
    targets
        .filter(|path| {
            path.starts_with("fuzz_targets/") && !manifest.contains(&format!("path = \"{path}.rs\""))
        })
        .map(|path| format!("fuzz/{path}.rs: no [[bin]] in fuzz/Cargo.toml has this path"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_use_none_of_ours() {
        let text = "[package]\nname = \"kipp-kernels\"\n[dependencies]\nlibm.workspace = true\nkipp.workspace = true\n";
        assert_eq!(foreign("a/Cargo.toml", text, &[]), ["a/Cargo.toml:5: must not use kipp"]);
        assert_eq!(foreign("a/Cargo.toml", text, &["kipp"]), [""; 0]);
    }

    #[test]
    fn a_dependency_without_reason_is_found() {
        let text = "[workspace.dependencies]\nkipp = { path = \"a\" }\nlibm = \"0.2\" # same bits\n# text\nserde = \"1\"\n[lints]\na = 1\n";
        assert_eq!(without_reason(text), ["Cargo.toml:5: serde has no version with a `# reason`"]);
    }
}
