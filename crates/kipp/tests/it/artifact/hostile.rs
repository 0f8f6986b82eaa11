//! Malformed files, each wrong in one place, each refused with its own error. They lie in `testdata/hostile/`, so that
//! other readers can be tried with them; `cargo test -p kipp --test it -- --ignored regenerate_hostile` writes them
//! anew from the cases in `cases.rs`, and a test demands that the two agree.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kipp::Scheme;
use kipp::artifact::gguf::GgufError as G;
use kipp::artifact::safetensors::{SafetensorsError as S, SafetensorsFile};
use kipp::artifact::{Artifact, ArtifactError, Bytes};

use super::build;
use super::cases::{Case, gguf_cases, nested_arrays, safetensors_cases};
use super::raw::safetensors;

/// A refusal comes this fast, whatever lengths a file claims.
const LIMIT: Duration = Duration::from_millis(10);

fn folder(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/hostile").join(kind)
}

fn open_gguf(path: &Path) -> G {
    match Artifact::open(path) {
        Err(ArtifactError::Gguf { error, .. }) => error,
        other => panic!("{}: {other:?}", path.display()),
    }
}

fn open_safetensors(path: &Path) -> S {
    SafetensorsFile::parse(Bytes::open(path).unwrap()).map(drop).unwrap_err()
}

fn write_all<E>(kind: &str, cases: &[Case<E>], valid: &[u8]) {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(kind);
    for folder in [&folder(kind), &corpus] {
        std::fs::create_dir_all(folder).unwrap();
        for case in cases {
            std::fs::write(folder.join(format!("{}.{kind}", case.name)), &case.bytes).unwrap();
        }
    }
    // A fuzzer gets further from a file that opens.
    std::fs::write(corpus.join(format!("valid.{kind}")), valid).unwrap();
}

#[test]
#[ignore = "writes testdata/hostile and the fuzzers' corpora"]
fn regenerate_hostile() {
    let weights = build::weights(false);
    write_all("gguf", &gguf_cases(), &build::gguf(&build::metadata(), &weights, Scheme::Q4_0));
    write_all("safetensors", &safetensors_cases(), &build::safetensors(&weights[1..2]));
}

/// Every file is the case's, is refused as the case says, and fast. The time is the best of three, so that a busy
/// machine does not fail the test.
fn check_all<E: Debug + std::fmt::Display>(kind: &str, cases: &[Case<E>], open: impl Fn(&Path) -> E) {
    for case in cases {
        let path = folder(kind).join(format!("{}.{kind}", case.name));
        assert_eq!(std::fs::read(&path).unwrap(), case.bytes, "{}: regenerate the hostile files", case.name);
        let timed = || {
            let start = Instant::now();
            (open(&path), start.elapsed())
        };
        let tries = [timed(), timed(), timed()];
        for (error, _) in &tries {
            assert!((case.expected)(error), "{}: {error:?}", case.name);
            assert!(!error.to_string().contains(char::is_control), "{}: {error}", case.name);
        }
        let best = tries.iter().map(|(_, time)| *time).min().unwrap();
        assert!(best < LIMIT, "{}: {best:?}", case.name);
    }
    let files = std::fs::read_dir(folder(kind)).unwrap().count();
    assert_eq!(files, cases.len(), "{kind}: a file without a case, or two cases of one name");
}

#[test]
fn h09_h10_h11_malformed_gguf_files_are_refused_each_for_its_own_reason() {
    check_all("gguf", &gguf_cases(), open_gguf);
}

#[test]
fn h12_malformed_safetensors_files_are_refused_each_for_its_own_reason() {
    check_all("safetensors", &safetensors_cases(), open_safetensors);
}

#[test]
fn h10_arrays_nested_ten_thousand_deep_do_not_exhaust_the_stack() {
    assert!(matches!(
        Artifact::from_vec(nested_arrays(10_000)),
        Err(ArtifactError::Gguf { error: G::ArrayDepth { .. }, .. })
    ));
}

#[test]
fn h12_what_the_format_allows_loads() {
    let tensors = |header: &str, data: usize| {
        SafetensorsFile::parse(Bytes::from(safetensors(header, data))).unwrap().tensor_count()
    };
    // A tensor without elements, a scalar, entries in any order, blanks after the JSON, metadata.
    assert_eq!(tensors("{}", 0), 0);
    let header = r#"{"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},
        "empty":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]},
        "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"__metadata__":{"format":"pt"}}      "#;
    assert_eq!(tensors(header, 12), 3);
}

/// Opens every hostile file in a process of its own and compares its address space before and after: an allocation that
/// a lying length asked for would show.
#[test]
#[cfg(target_os = "linux")]
fn h09_h10_h12_nothing_is_allocated_that_a_length_only_claims() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "artifact::hostile::open_all_and_watch_memory", "--test-threads=1"])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
}

#[test]
#[ignore = "run by the test above, alone in its process"]
#[cfg(target_os = "linux")]
fn open_all_and_watch_memory() {
    let (gguf, safetensors) = (gguf_cases(), safetensors_cases());
    // A first round, so that the runtime has what it needs for itself.
    open_gguf(&folder("gguf").join("empty.gguf"));
    let before = status_kib("VmPeak");
    for case in &gguf {
        open_gguf(&folder("gguf").join(format!("{}.gguf", case.name)));
    }
    for case in &safetensors {
        open_safetensors(&folder("safetensors").join(format!("{}.safetensors", case.name)));
    }
    let peak = status_kib("VmPeak");
    assert!(peak <= before + 1024, "address space grew from {before} to {peak} KiB");
}

#[cfg(target_os = "linux")]
fn status_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
