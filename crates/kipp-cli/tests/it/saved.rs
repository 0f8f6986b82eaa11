//! `kipp run --session` and `--save-session`: the same tokens as without a break, and every file that is not taken.

use std::path::Path;

use serde_json::Value;

use crate::{ids, json, kipp, refusal, stderr, stdout};

const STORY: &str = "Once upon a time, there was a little girl named Lily. She had a red ball. One day";

/// A folder with a session of `STORY` and 30 tokens, and what was said.
fn saved(flags: &[&str]) -> (tempfile::TempDir, String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("story.session").to_str().unwrap().to_owned();
    let first = ["run", "--json", "-n", "30", "--ignore-eos", "--save-session", &file, STORY];
    let first = json(&[&first[..], flags].concat());
    (folder, file, first)
}

#[test]
fn a_saved_session_goes_on_as_if_it_had_not_ended() {
    let sampled = ["--temperature", "0.9", "--seed", "3"];
    let repetition = ["--repetition-penalty", "1.3"];
    for flags in [&[][..], &["--kv", "q8_0"], &["--kv", "f32"], &sampled, &["--spec", "ngram"], &repetition] {
        let whole = json(&[&["run", "--json", "-n", "60", "--ignore-eos", STORY][..], flags].concat());
        let (folder, file, first) = saved(flags);
        assert_eq!(ids(&first["tokens"]), ids(&whole["tokens"])[..30], "{flags:?}");
        let second = ["run", "--json", "-n", "30", "--ignore-eos", "--session", &file, ""];
        let second = json(&[&second[..], flags].concat());
        assert_eq!(ids(&second["tokens"]), ids(&whole["tokens"])[30..], "{flags:?}");
        let tokens = first["prompt_tokens"].as_u64().unwrap() + 30;
        assert_eq!(second["prompt_tokens"], tokens);
        // Whole blocks are adopted, and one token at least is evaluated.
        assert_eq!(second["timings"]["cached_tokens"], (tokens - 1) / 32 * 32, "{flags:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_session_goes_on_with_more_text_and_is_saved_again() {
    let (folder, file, first) = saved(&[]);
    let more = " Then she saw a big dog.";
    let again = folder.path().join("again.session").to_str().unwrap().to_owned();
    let flags = ["--session", &file, "--save-session", &again, "-n", "12", "--ignore-eos"];
    let second = json(&[&["run", "--json", more], &flags[..]].concat());
    let asked = first["prompt_tokens"].as_u64().unwrap() + 30;
    let added = ids(&json(&["tokenize", "--json", more])["ids"]).len() as u64;
    assert_eq!(second["prompt_tokens"], asked + added);
    let third = json(&["run", "--json", "-n", "0", "--session", &again, ""]);
    assert_eq!(third["prompt_tokens"], asked + added + 12);
    // Over the file that it came from: whole before, whole after.
    stdout(&["run", "-n", "2", "--session", &again, "--save-session", &again, "", "--ignore-eos"]);
    let fourth = json(&["run", "--json", "-n", "0", "--session", &again, ""]);
    assert_eq!(fourth["prompt_tokens"], asked + added + 14);
    let out = kipp(&["run", "-n", "2", "--session", &again, ""]).output().unwrap();
    assert!(stderr(&out).contains(" more cached"), "{}", stderr(&out));
    assert!(stderr(&out).contains("tokens were evaluated again"), "{}", stderr(&out));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_keeps_nobody_from_the_answer() {
    let out = kipp(&["run", "--json", "-n", "3", "--save-session", "/dev/full", STORY]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).contains("/dev/full"), "{}", stderr(&out));
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(ids(&answer["tokens"]).len(), 3);
}

#[test]
fn a_session_of_another_computation_is_refused_by_name() {
    let (_folder, file, _) = saved(&["--kernels", "scalar"]);
    let refused = |flags: &[&str]| refusal(&[&["run", "--session", &file, "hi"], flags].concat(), 1);
    let error = refused(&["--kernels", "scalar", "--kv", "f32"]);
    assert!(error.contains("story.session: ") && error.contains("KV scheme: bf16, here f32"), "{error}");
    if json(&["run", "--json", "-n", "0", "hi"])["backend"]["kernels"] != "scalar" {
        assert!(refused(&[]).contains("another kernel class: scalar, here "), "{}", refused(&[]));
    }
    assert!(refused(&["--backend", "oracle"]).contains("another backend: cpu, here oracle"));
    let error = refused(&["--kernels", "scalar", "-m", "testdata/quantized/kipp-tiny-q8_0.gguf"]);
    assert!(
        error.contains("another scheme of weights or activations: ") && error.contains("q8_0"),
        "{error}"
    );
    let error = refused(&["--kernels", "scalar", "--rope-scaling", "yarn", "--rope-factor", "2"]);
    assert!(
        error.contains("--session: ") && error.contains("another model, or with its positions scaled"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_not_what_was_written_is_refused() {
    let (_folder, file, _) = saved(&[]);
    let whole = std::fs::read(&file).unwrap();
    let refused = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        refusal(&["run", "--session", &file, "hi"], 1)
    };
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    assert!(refused(&damaged).contains("damaged: its checksum"));
    assert!(refused(&whole[..whole.len() / 2]).contains("truncated"));
    assert!(refused(b"no session").contains("not a session file"));
    let mut later = whole;
    later[8] = 9;
    assert!(refused(&later).contains("version 9"));
    std::fs::remove_file(&file).unwrap();
    let error = refusal(&["run", "--session", &file, "hi"], 1);
    assert!(error.contains("error: --session: ") && error.matches("story.session").count() == 1, "{error}");
}

#[test]
fn a_session_ends_where_the_text_that_was_shown_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stopped.session").to_str().unwrap().to_owned();
    let whole = json(&["run", "--json", "-n", "30", STORY]);
    let text = whole["text"].as_str().unwrap();
    // In the middle of the answer, and in the middle of a word.
    let middle = text.len() / 2;
    let stop = text.get(middle..middle + 6).unwrap();
    let flags = ["run", "--json", "-n", "30", "--stop", stop, "--save-session", &file, STORY];
    let stopped = json(&flags);
    let shown = stopped["text"].as_str().unwrap();
    assert!(text.starts_with(shown) && !shown.contains(stop) && !shown.is_empty());
    let tokens = json(&["run", "--json", "-n", "0", "--session", &file, ""]);
    let said = ids(&json(&["tokenize", "--json", &format!("{STORY}{shown}")])["ids"]).len() as i64;
    let saved = tokens["prompt_tokens"].as_i64().unwrap();
    // The model's own tokens of a text may be other ones than the tokenizer's.
    assert!((saved - said).abs() <= 3, "{saved} {said}");
    // The token that the stop string began in gives way to the ones of its shown part.
    assert!(saved <= stopped["prompt_tokens"].as_i64().unwrap() + ids(&stopped["tokens"]).len() as i64);
}

#[test]
fn what_cannot_be_saved_or_gone_on_with_is_told_before_anything_runs() {
    let (folder, file, _) = saved(&[]);
    assert!(
        refusal(&["run", "--session", &file, "--chat", "hi"], 2).contains("--session: is for plain text")
    );
    assert!(
        refusal(&["run", "--save-session", "x", "--chat", "hi"], 2)
            .contains("--save-session: is for plain text")
    );
    let into = |path: &Path| refusal(&["run", "--save-session", path.to_str().unwrap(), "hi"], 1);
    assert!(into(folder.path()).contains("this is a folder"));
    assert!(into(Path::new("/nowhere/x.session")).contains("--save-session: /nowhere/x.session"));
    // A run that fails leaves what was there.
    let before = std::fs::read(&file).unwrap();
    refusal(&["run", "--save-session", &file, "--ctx", "2", STORY], 1);
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    // More than the context holds.
    assert!(refusal(&["run", "--session", &file, "--ctx", "40", "hi"], 1).contains("does not fit"));
}
