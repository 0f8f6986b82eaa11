//! Tells the program what it was built from, for the records of `kipp bench`: commit, tree, profile, target, compiler.
//! Needs git only where there is a repository; a build outside one says so.

#![allow(clippy::print_stdout, reason = "how a build script speaks to cargo")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    let (commit, changes) = repository(&root).unwrap_or_default();
    tell("COMMIT", &commit);
    tell("CHANGES", &changes);
    tell("PROFILE", &variable("PROFILE"));
    tell("OPT_LEVEL", &variable("OPT_LEVEL"));
    tell("TARGET", &variable("TARGET"));
    tell("RUSTFLAGS", &variable("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " "));
    tell("TARGET_FEATURES", &variable("CARGO_CFG_TARGET_FEATURE"));
    tell("RUSTC", &output(Command::new(variable("RUSTC")).arg("--version")).unwrap_or_default());
    for path in ["crates", "models/kipp-tiny", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn tell(name: &str, value: &str) {
    println!("cargo::rustc-env=KIPP_BUILD_{name}={}", value.replace('\n', ", "));
}

/// The commit, and what differs from it; results of measurements do not count. `None` outside a repository of our own.
fn repository(root: &Path) -> Option<(String, String)> {
    let git = |args: &[&str]| output(Command::new("git").arg("-C").arg(root).args(args));
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // A commit changes the branch's file, or HEAD itself where no branch is checked out.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let path = root.join(git(&["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let commit = git(&["rev-parse", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--", ":/", ":(top,exclude)bench/results"])?;
    Some((commit, changes))
}

/// What a command that succeeds prints.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
