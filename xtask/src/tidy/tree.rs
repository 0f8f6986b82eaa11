//! The files that the checks look at: everything of ours, nothing that a build wrote.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::source::Source;

/// Folders that hold no work of ours.
const NOT_OURS: &[&str] = &["target", ".git", "artifacts", "coverage", "__pycache__"];

/// A repository's files, read once. Paths are relative to its root, with `/`.
pub(super) struct Tree {
    pub(super) root: PathBuf,
    /// All files, sorted.
    pub(super) paths: Vec<String>,
    /// The Rust files among them.
    pub(super) rust: Vec<Source>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut paths = Vec::new();
        walk(root, "", &mut paths)?;
        paths.sort();
        let rust = paths
            .iter()
            .filter(|path| path.ends_with(".rs"))
            .map(|path| {
                let text =
                    fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
                Ok(Source::new(path, &text))
            })
            .collect::<Result<_>>()?;
        Ok(Self { root: root.to_owned(), paths, rust })
    }

    /// A tree that a test makes up. Only Rust files have a text.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let paths = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let rust = files
            .iter()
            .filter(|(path, _)| path.ends_with(".rs"))
            .map(|(path, text)| Source::new(path, text));
        Self { root: PathBuf::new(), paths, rust: rust.collect() }
    }

    /// A file's text; empty if there is none.
    pub(super) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }
}

fn walk(root: &Path, folder: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder)).with_context(|| format!("cannot list {folder:?}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if !entry.file_type()?.is_dir() {
            paths.push(path);
        } else if !NOT_OURS.contains(&name.as_str()) {
            walk(root, &path, paths)?;
        }
    }
    Ok(())
}
