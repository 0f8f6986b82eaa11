//! llama.cpp beside Kipp: the files of each run in the other, and on equal weights they choose the same tokens. Steps of
//! `cargo xtask full`.

mod agree;
mod checkpoint;
mod files;
mod llama;
mod true_shape;

pub(crate) use agree::step as agree;
pub(crate) use files::step as files;
pub(crate) use llama::step as build;
pub(crate) use true_shape::step as true_shape;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cargo_steps::without_warnings;
use crate::exec::{self, Done};
use crate::steps::Context;

/// Where everything of these steps lies.
fn folder(context: &Context) -> PathBuf {
    context.target("peer")
}

/// Runs the release build of the program.
fn kipp(context: &Context, args: &[&str]) -> Result<Done> {
    exec::succeed(exec::command(context.kipp(), args, &context.root))
}

/// Builds the program and writes kipp-tiny as GGUF in a scheme.
fn converted(context: &Context, scheme: &str) -> Result<PathBuf> {
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let out = folder(context).join(format!("kipp-tiny-{scheme}.gguf"));
    kipp(context, &["convert", "models/kipp-tiny", "-o", text(&out)?, "--scheme", scheme])?;
    Ok(out)
}

/// A path as an argument.
fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
