//! Ctrl-C: what was generated so far is kept, the exit code is 130, and no half-written file stays.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{code, root, stderr};

fn spawn(args: &[&str]) -> Child {
    Command::new(assert_cmd::cargo::cargo_bin!("kipp"))
        .args(args)
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn the_text_so_far_is_kept() {
    // The oracle takes longer with every token: this would run for minutes.
    let mut child = spawn(&["run", "-n", "2000", "--ignore-eos", "--backend", "oracle", "Once upon a time"]);
    let mut first = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    interrupt(&child);
    let out = child.wait_with_output().unwrap();
    assert_eq!(code(&out), 130, "{}", stderr(&out));
    assert_eq!(&first, b", there ");
    assert!(stderr(&out).contains("decode"), "figures of what was done: {}", stderr(&out));
}

#[test]
fn the_json_document_is_whole() {
    let mut child =
        spawn(&["run", "--json", "-n", "2000", "--ignore-eos", "--backend", "oracle", "Once upon a time"]);
    // The note on the context is the last one before the oracle starts, which takes no time to load.
    let mut notes = BufReader::new(child.stderr.take().unwrap());
    let mut note = String::new();
    while !note.starts_with("context:") {
        note.clear();
        assert!(notes.read_line(&mut note).unwrap() > 0, "ended before it began");
    }
    std::thread::sleep(Duration::from_secs(1));
    interrupt(&child);
    let out = child.wait_with_output().unwrap();
    assert_eq!(code(&out), 130);
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["finish_reason"], "interrupted");
}

/// Plain Rust takes a minute for a step of so many rows: nothing of it is kept, and nobody waits for its end.
#[test]
fn a_long_step_is_given_up() {
    let prompt = "word ".repeat(600);
    let mut child = spawn(&["run", "--json", "-n", "4", "--kernels", "scalar", "--threads", "1", &prompt]);
    let mut notes = BufReader::new(child.stderr.take().unwrap());
    let mut note = String::new();
    while !note.starts_with("backend:") {
        note.clear();
        assert!(notes.read_line(&mut note).unwrap() > 0, "ended before it began");
    }
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&child);
    let out = child.wait_with_output().unwrap();
    assert_eq!(code(&out), 130);
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["finish_reason"], "interrupted");
    assert!(report["timings"]["prefill_tok_s"].is_null(), "no row of the step counts: {report}");
}

/// However the command ends, the run that it started ends too.
#[cfg(target_os = "linux")]
#[test]
fn a_run_of_a_bench_ends_with_its_parent() {
    let state = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default().to_owned();
        let mut fields = after_name.split_whitespace().map(str::to_owned);
        (fields.next(), fields.next())
    };
    let started_by = |parent: u32| {
        let parent = Some(parent.to_string());
        let pids =
            std::fs::read_dir("/proc").unwrap().filter_map(|it| it.unwrap().file_name().into_string().ok());
        pids.filter(|pid| pid.parse::<u32>().is_ok()).find(|pid| state(pid).1 == parent)
    };
    let wait = |what: &dyn Fn() -> Option<String>| {
        let deadline = Instant::now() + Duration::from_secs(120);
        while Instant::now() < deadline {
            if let Some(found) = what() {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it never happened");
    };
    for signal in ["-INT", "-KILL"] {
        let slow = ["--kernels", "scalar", "--threads", "1", "-p", "1500", "-n", "0"];
        let mut parent = spawn(&[&["bench", "run"], &slow[..]].concat());
        let run = wait(&|| started_by(parent.id()));
        let sent = Command::new("kill").args([signal, &parent.id().to_string()]).status().unwrap();
        assert!(sent.success());
        parent.wait().unwrap();
        // Where nobody collects it, it stays as a zombie.
        wait(&|| matches!(state(&run).0.as_deref(), None | Some("Z")).then(String::new));
    }
}

/// Waits until a file of the folder other than `known` has bytes, and says its name.
fn written_file(folder: &Path, known: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(120);
    while Instant::now() < deadline {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name != known && entry.metadata().is_ok_and(|found| found.len() > 0) {
                return name;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no file was begun");
}

#[test]
fn no_half_written_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (list, out) = (folder.path().join("ids"), folder.path().join("out.f32"));
    std::fs::write(&list, "436 ".repeat(1500)).unwrap();
    let (list, out) = (list.to_str().unwrap(), out.to_str().unwrap());
    // A row of logits a step, so that the file grows for minutes.
    let oracle = ["--backend", "oracle", "--step-tokens", "1"];
    let child = spawn(&[&["logits", "--all", "--ids", list, "-o", out], &oracle[..]].concat());
    let begun = written_file(folder.path(), "ids");
    assert_ne!(begun, "out.f32", "a file has its name once it is whole");
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the ids stay");
}
