//! `kipp convert`: the same bytes each time, whole files or none, and files that run.

use crate::{EXACT, ids, json, keys, refusal, root, stderr};

fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf").to_str().unwrap().to_owned();
    (folder, out)
}

#[test]
fn the_embedded_model_is_the_converted_folder() {
    let (_folder, out) = folder();
    let report = json(&["convert", "models/kipp-tiny", "-o", &out, "--scheme", "bf16", "--json"]);
    assert_eq!(keys(&report), ["path", "bytes", "tensors", "scheme", "tokenizer", "kept_dense"]);
    let embedded = std::fs::read(root().join("models/kipp-tiny/kipp-tiny.gguf")).unwrap();
    assert!(std::fs::read(&out).unwrap() == embedded);
}

#[test]
fn every_scheme_writes_a_file_that_runs_and_repeats() {
    for scheme in ["bf16", "f16", "q8_0", "q4_0", "q4_1"] {
        let (folder, out) = folder();
        let again = folder.path().join("again.gguf").to_str().unwrap().to_owned();
        for path in [&out, &again] {
            json(&["convert", "kipp-tiny", "-o", path, "--scheme", scheme, "--json"]);
        }
        assert!(std::fs::read(&out).unwrap() == std::fs::read(&again).unwrap(), "{scheme}");
        let run = |backend: &str| {
            let args = ["run", "-m", &out, "--json", "-n", "8", "--backend", backend, "Once upon a time"];
            json(&[&args[..], &EXACT[..]].concat())
        };
        assert_eq!(ids(&run("cpu")["tokens"]), ids(&run("oracle")["tokens"]), "{scheme}");
        let shown = json(&["show", &out, "--json"]);
        let head = if scheme.starts_with('q') { "q8_0" } else { scheme };
        assert_eq!(shown["schemes"]["token_embd.weight"], head);
        assert_eq!(shown["schemes"]["blk.0.attn_q.weight"], scheme);
        assert_eq!(shown["registered"], "unregistered", "{scheme}");
    }
}

#[test]
fn the_head_may_have_a_scheme_of_its_own() {
    let (_folder, out) = folder();
    json(&["convert", "kipp-tiny", "-o", &out, "--scheme", "q4_0", "--head", "f16", "--json"]);
    let shown = json(&["show", &out, "--json"]);
    assert_eq!(shown["schemes"]["token_embd.weight"], "f16");
}

#[test]
fn refusals_leave_everything_as_it_was() {
    let (folder, out) = folder();
    std::fs::write(&out, "old").unwrap();
    for (flag, value) in [("--scheme", "q6_k"), ("--scheme", "q9"), ("--head", "int4")] {
        let error = refusal(&["convert", "kipp-tiny", "-o", &out, "--scheme", "bf16", flag, value], 2);
        assert!(error.contains(flag), "{error}");
    }
    refusal(&["convert", "no-such-model", "-o", &out, "--scheme", "bf16"], 1);
    assert_eq!(std::fs::read(&out).unwrap(), b"old");
    let nowhere = folder.path().join("nowhere/out.gguf");
    refusal(&["convert", "kipp-tiny", "-o", nowhere.to_str().unwrap(), "--scheme", "bf16"], 1);
    // What is there is replaced, once the new file is whole.
    json(&["convert", "kipp-tiny", "-o", &out, "--scheme", "bf16", "--json"]);
    assert!(std::fs::read(&out).unwrap().starts_with(b"GGUF"));
    let own = refusal(&["convert", &out, "-o", &out, "--scheme", "q8_0"], 1);
    assert!(own.contains("source"), "{own}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half written stays");
}

#[test]
fn without_json_a_note_says_what_was_written() {
    let (_folder, path) = folder();
    let out = crate::kipp(&["convert", "kipp-tiny", "-o", &path, "--scheme", "q8_0"]).output().unwrap();
    assert!(out.stdout.is_empty() && stderr(&out).contains("tensors"), "{}", stderr(&out));
}
