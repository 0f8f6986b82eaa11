//! `cargo xtask`: what CI runs, and all it runs. `cargo xtask ci` before every push, `cargo xtask full` for the long
//! forms; `--only NAME` runs one step. `cargo xtask versus` measures Kipp and llama.cpp in turn.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program for a terminal

mod cargo_steps;
mod clients;
mod exec;
mod fuzz;
mod gates;
mod install;
mod json;
mod neon;
mod page;
mod peer;
mod pool;
mod replicas;
mod schemathesis;
mod served;
mod siege;
mod smoke;
mod soak;
mod steps;
mod tidy;
mod versus;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use steps::{Context, Step};

/// Quick ones first, so that a slip shows early.
const CI: &[Step] = &[
    Step { name: "fmt", shows: "the code is formatted", run: cargo_steps::fmt, may_skip: &[] },
    Step { name: "tidy", shows: "the invariants hold", run: tidy::step, may_skip: &[] },
    Step { name: "clippy", shows: "no lint warns", run: cargo_steps::clippy, may_skip: &[] },
    Step { name: "docs", shows: "the documentation builds", run: cargo_steps::docs, may_skip: &[] },
    Step { name: "build", shows: "the build does not warn", run: cargo_steps::build, may_skip: &[] },
    Step {
        name: "deny",
        shows: "licences, duplicates and origins of dependencies",
        run: cargo_steps::deny,
        may_skip: &["advisories"],
    },
    Step { name: "smoke", shows: "the README's first command talks", run: smoke::step, may_skip: &[] },
    Step {
        name: "gates",
        shows: "the numbers are those of the references, in every kernel class",
        run: gates::step,
        may_skip: &[gates::OTHER_CLASSES],
    },
    Step {
        name: "neon",
        shows: "the numbers are the same on an emulated Arm processor",
        run: neon::step,
        may_skip: &[neon::ALL_OF_IT, neon::RUNNING],
    },
    Step {
        name: "soak",
        shows: "an engine under load answers as alone and does not grow",
        run: soak::step,
        may_skip: &["memory"],
    },
    Step {
        name: "schemathesis",
        shows: "the server answers as its document says",
        run: schemathesis::step,
        may_skip: &[],
    },
    Step {
        name: "siege",
        shows: "a server with 64 clients, good and bad, answers as alone, does not grow, and refuses cheaply",
        run: siege::step,
        may_skip: &["memory"],
    },
    Step {
        name: "clients",
        shows: "clients that others wrote work unmodified",
        run: clients::step,
        may_skip: &[],
    },
    Step {
        name: "replicas",
        shows: "replicas behind a gateway share the work and lose none of it",
        run: replicas::step,
        may_skip: &[],
    },
    Step {
        name: "page",
        shows: "the page works in a browser, for everybody",
        run: page::step,
        may_skip: &[],
    },
    Step { name: "fuzz", shows: "no hostile input breaks a reader", run: fuzz::step, may_skip: &[] },
];

/// Steps of the full run only.
const FULL: &[Step] = &[
    Step { name: "llama-build", shows: "llama.cpp, the peer, is built", run: peer::build, may_skip: &[] },
    Step {
        name: "llama-files",
        shows: "Kipp and llama.cpp run each other's files",
        run: peer::files,
        may_skip: &[],
    },
    Step {
        name: "llama-agree",
        shows: "llama.cpp chooses the tokens that Kipp does",
        run: peer::agree,
        may_skip: &[],
    },
    Step {
        name: "true-shape",
        shows: "speed at the shape of Qwen3-0.6B",
        run: peer::true_shape,
        may_skip: &[],
    },
];

const USAGE: &str = "usage: cargo xtask ci|full [--only STEP]";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["versus", rest @ ..] = &args[..] {
        return versus::run(rest, &context(false)?);
    }
    let (full, only) = match args[..] {
        ["ci"] => (false, None),
        ["full"] => (true, None),
        ["ci", "--only", name] => (false, Some(name)),
        ["full", "--only", name] => (true, Some(name)),
        _ => bail!("{USAGE}, or {}", versus::USAGE),
    };
    let all: Vec<&Step> = CI.iter().chain(if full { FULL } else { &[] }).collect();
    let chosen: Vec<&Step> =
        all.iter().copied().filter(|step| only.is_none_or(|name| name == step.name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = all.iter().map(|step| step.name).collect();
        bail!("no such step; the steps are {}", names.join(", "));
    }
    steps::run(&chosen, &context(full)?)
}

fn context(full: bool) -> Result<Context> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .context("where is the repository?")?;
    let build_folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder));
    Ok(Context { root, build_folder, full })
}
