//! What this program was built from; `build.rs` of the crate told it.

use anyhow::{Context, Result};
use kipp::artifact::sha256_file;
use serde::Serialize;

/// The build.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Build {
    /// Empty outside a repository.
    pub(super) commit: String,
    /// Files that differed from the commit, as `git status` names them; those under bench/results do not count.
    pub(super) changes: String,
    pub(super) version: &'static str,
    pub(super) profile: &'static str,
    opt_level: &'static str,
    /// Overflow checks and assertions, which no release has.
    pub(super) debug_assertions: bool,
    target: &'static str,
    target_features: &'static str,
    rustc: &'static str,
    rustflags: &'static str,
    program_sha256: String,
}

impl Build {
    /// Hashes the program as it lies on the disk.
    pub(super) fn of_this_program() -> Result<Build> {
        let program = std::env::current_exe().context("where is this program?")?;
        let program_sha256 = sha256_file(&program).with_context(|| program.display().to_string())?;
        Ok(Build {
            commit: env!("KIPP_BUILD_COMMIT").to_owned(),
            changes: env!("KIPP_BUILD_CHANGES").to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            profile: env!("KIPP_BUILD_PROFILE"),
            opt_level: env!("KIPP_BUILD_OPT_LEVEL"),
            debug_assertions: cfg!(debug_assertions),
            target: env!("KIPP_BUILD_TARGET"),
            target_features: env!("KIPP_BUILD_TARGET_FEATURES"),
            rustc: env!("KIPP_BUILD_RUSTC"),
            rustflags: env!("KIPP_BUILD_RUSTFLAGS"),
            program_sha256,
        })
    }

    /// A release of a known state.
    #[cfg(test)]
    pub(super) fn clean_release() -> Build {
        Build {
            commit: "0123456789abcdef".to_owned(),
            changes: String::new(),
            version: "0.0.0",
            profile: "release",
            opt_level: "3",
            debug_assertions: false,
            target: "",
            target_features: "",
            rustc: "",
            rustflags: "",
            program_sha256: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_build_knows_itself() {
        let build = Build::of_this_program().unwrap();
        assert_eq!(build.debug_assertions, build.profile != "release");
        assert_eq!(build.program_sha256.len(), 64);
        assert!(build.rustc.starts_with("rustc "), "{}", build.rustc);
        assert!(build.commit.is_empty() || build.commit.len() >= 40, "{}", build.commit);
    }
}
