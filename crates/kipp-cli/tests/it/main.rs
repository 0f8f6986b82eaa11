//! The program as a user runs it: one binary, one module a subject. Everything runs offline on the models of this
//! repository.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the whole crate is tests")]

mod bench;
mod bench_serve;
mod chat;
mod chatting;
mod convert;
mod engine_bench;
mod interrupt;
mod numbers;
mod run;
mod saved;
mod serve;
mod show;
mod speculation;
mod tokenize;
mod usage;
mod verify;

use std::path::PathBuf;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

/// Flags under which greedy ids must equal the reference's.
const EXACT: [&str; 4] = ["--activations", "f32", "--kv", "f32"];

/// The root of the repository, which every command runs in.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The program with these arguments, without the caller's own `KIPP_*` settings.
fn kipp(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kipp"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KIPP_") {
            command.env_remove(name);
        }
    }
    command.current_dir(root()).args(args);
    command
}

/// What a command that succeeds prints.
fn stdout(args: &[&str]) -> String {
    let out = kipp(args).output().unwrap();
    assert_eq!(code(&out), 0, "{args:?}: {}", stderr(&out));
    String::from_utf8(out.stdout).unwrap()
}

/// The one JSON document that a command prints.
fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

/// What a command that fails says; it must fail with this code and print no result.
fn refusal(args: &[&str], expected: i32) -> String {
    let out = kipp(args).output().unwrap();
    assert_eq!(code(&out), expected, "{args:?}: {}", stderr(&out));
    assert!(out.stdout.is_empty(), "{args:?} printed a result");
    stderr(&out)
}

fn code(out: &Output) -> i32 {
    out.status.code().unwrap()
}

fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The cases of `testdata/kipp-tiny/manifest.json`.
fn golden_cases() -> Vec<Value> {
    let text = std::fs::read_to_string(root().join("testdata/kipp-tiny/manifest.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["cases"].as_array().unwrap().clone()
}
