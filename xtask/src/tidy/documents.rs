//! Links in documents lead to files that exist, and the README works for whoever cloned the repository, wherever.

use super::tree::Tree;

/// First folders of absolute paths, which differ from machine to machine.
const ROOTS: &[&str] =
    &["/home/", "/root/", "/usr/", "/opt/", "/tmp/", "/mnt/", "/var/", "/srv/", "/etc/", "/Users/", "C:\\"];

pub(super) fn links(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for path in tree.paths.iter().filter(|path| path.ends_with(".md")) {
        let text = tree.text(path);
        let exists = |target: &str| {
            let folder = tree.root.join(path).parent().map(|folder| folder.join(target));
            folder.is_some_and(|file| file.exists())
        };
        faults.extend(broken(path, &text, exists));
        if path == "README.md" {
            faults.extend(absolute(path, &text));
        }
    }
    faults
}

/// Targets of `[text](target)` outside code that are no address, no anchor of the same file, and do not exist.
fn broken(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        for part in line.split("](").skip(1).filter(|_| !in_code) {
            let target = part.split([')', ' ', '#']).next().unwrap_or("");
            let elsewhere = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if !elsewhere && (target.starts_with('/') || !exists(target)) {
                faults.push(format!("{path}:{}: the link to {target:?} leads nowhere", index + 1));
            }
        }
    }
    faults
}

fn absolute(path: &str, text: &str) -> Vec<String> {
    let starts = |line: &str, root: &str| {
        line.match_indices(root)
            .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "./~_-".contains(c)))
    };
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(root) = ROOTS.iter().find(|root| starts(line, root)) {
            faults.push(format!("{path}:{}: an absolute path ({root}...)", index + 1));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_and_absolute_paths_are_found() {
        let text =
            "[a](docs/a.md#part) [b](gone.md) [c](https://example.org/x) [d](#here)\n```\nx[0](y)\n```\n";
        assert_eq!(
            broken("README.md", text, |target| target == "docs/a.md"),
            ["README.md:1: the link to \"gone.md\" leads nowhere"]
        );
        assert_eq!(
            absolute("README.md", "see /tmp/model and models/tmp/ and https://x.org/home/\n").len(),
            1
        );
        assert_eq!(absolute("README.md", "see models/tmp/x and https://x.org/home/\n").len(), 0);
    }
}
