//! `kipp bench prefix`, `spec`, `steps` and `parallel`: names, figures and refusals. Speeds are whatever they are here.

use serde_json::Value;

use crate::{code, json, kipp, refusal, stderr, stdout};

const TINY: &str = "models/kipp-tiny/kipp-tiny.gguf";

/// The cases of a quick run, each with its name.
fn bench(flags: &[&str]) -> Vec<(String, Value)> {
    let results = json(&[&["bench"], flags, &["--runs", "1", "--json"]].concat());
    let named = |result: &Value| (result["name"].as_str().unwrap().to_owned(), result.clone());
    results.as_array().unwrap().iter().map(named).collect()
}

fn figure(case: &Value, name: &str) -> f64 {
    case["figures"][name]["median"].as_f64().unwrap_or_else(|| panic!("{name}: {case}"))
}

#[test]
fn a_known_prompt_is_adopted_in_whole_blocks() {
    let cases = bench(&["prefix", "kipp-tiny", "-p", "200"]);
    let (name, case) = &cases[0];
    assert_eq!((name.as_str(), cases.len()), ("prefix200", 1));
    // At least one token is evaluated: 199 are six whole blocks.
    assert_eq!(figure(case, "adopted_tokens"), 192.0);
    assert!(figure(case, "cold_ms") > figure(case, "warm_ms"), "{case}");
    let run = &case["runs"][0];
    assert_eq!(run["backend"]["name"], "cpu");
    assert!(run["before"]["read_gb_s"].as_f64().unwrap() > 0.0 && run["load_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(run["figures"]["adopted_tokens"], 192.0);
    // One more than the context leaves room for an answer to.
    assert!(refusal(&["bench", "prefix", "-p", "2048"], 2).contains("--prefill"));
    for few in ["0", "1", "32"] {
        let error = refusal(&["bench", "prefix", "-p", few], 2);
        assert!(error.contains("--prefill") && error.contains("at least 33"), "{error}");
    }
    let table = stdout(&["bench", "prefix", "-p", "64", "--runs", "1", "--step-tokens", "2000"]);
    assert!(table.starts_with("kipp-tiny (registered, bf16), cpu "), "{table}");
    assert!(table.contains("| prefix64 ") && table.contains("cold / warm"), "{table}");
}

#[test]
fn three_texts_are_decoded_in_three_ways() {
    let cases = bench(&["spec", "-n", "24"]);
    let names: Vec<&str> = cases.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["spec-ngram-repetitive", "spec-ngram-code", "spec-ngram-prose"]);
    for (_, case) in &cases {
        assert!(figure(case, "gated_ratio") > 0.0 && figure(case, "tokens_a_step") >= 1.0);
        assert!((0.0..=1.0).contains(&figure(case, "duty")));
    }
    let own = bench(&["spec", "-n", "24", "--spec", "draft", "--draft-model", TINY]);
    // A greedy model that drafts for itself is always right.
    assert_eq!((own[0].0.as_str(), figure(&own[0].1, "acceptance")), ("spec-draft-repetitive", 1.0));
}

#[test]
fn a_replayed_text_is_said_whatever_the_model_would() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // Nothing that the model would say by itself, and easily looked up.
    let same = file("same.txt", &"seven green bottles, ".repeat(60));
    let prose = "testdata/texts/prose.txt";
    let cases = bench(&["spec", "-n", "48", "--replay", &same, "--replay", prose]);
    let (name, case) = &cases[0];
    assert_eq!(name, "spec-ngram-replay-same");
    assert_eq!(figure(case, "acceptance"), 1.0);
    assert!(figure(case, "ungated_tokens_a_step") > 8.0, "{case}");
    assert_eq!(cases[1].0, "spec-ngram-replay-prose");
    assert!(figure(&cases[1].1, "tokens_a_step") < 2.0);
    let short = file("short.txt", "too short");
    let error = refusal(&["bench", "spec", "--replay", &short], 1);
    assert!(error.contains("short.txt") && error.contains("are needed"), "{error}");
    assert!(refusal(&["bench", "spec", "--replay", "missing.txt"], 1).contains("missing.txt"));
    std::fs::write(folder.path().join("bytes.txt"), b"a\xff").unwrap();
    let bytes = folder.path().join("bytes.txt").to_str().unwrap().to_owned();
    let error = refusal(&["bench", "spec", "--replay", &bytes], 1);
    assert!(error.contains("bytes.txt") && error.contains("not UTF-8: the byte at 1"), "{error}");
    for many in ["1800", "5000"] {
        let error = refusal(&["bench", "spec", "-n", many], 2);
        assert!(error.contains("--decode: "), "{error}");
    }
    assert!(refusal(&["bench", "spec", "--spec", "off"], 2).contains("--spec"));
    assert!(refusal(&["bench", "spec", "--spec", "draft"], 2).contains("--draft-model"));
    assert!(refusal(&["bench", "spec", "-n", "1"], 2).contains("--decode"));
}

#[test]
fn steps_of_several_lengths_are_cases() {
    let cases = bench(&["steps", "--step-tokens", "32,128", "-p", "300"]);
    let names: Vec<&str> = cases.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["steps32", "steps128"]);
    for (_, case) in &cases {
        assert!(figure(case, "prefill_tok_s") > 0.0 && figure(case, "beside_tok_s") > 0.0);
        assert!(figure(case, "itl_ms") <= figure(case, "itl_p99_ms"));
    }
    // Answers last as long as their own prompts and the long one take in the shortest steps.
    let cases = bench(&["steps", "--step-tokens", "6,8", "-p", "100"]);
    assert!(figure(&cases[0].1, "alone_itl_ms") > 0.0, "{cases:?}");
    assert!(refusal(&["bench", "steps", "--step-tokens", "4"], 2).contains("--step-tokens"));
    assert!(refusal(&["bench", "steps", "--step-tokens", "5"], 2).contains("--step-tokens: in steps of 5"));
    assert!(
        refusal(&["bench", "steps", "--step-tokens", "5", "-p", "2000"], 2).contains("--prefill: in steps")
    );
    assert!(refusal(&["bench", "steps", "-p", "9000"], 2).contains("--prefill"));
}

#[test]
fn requests_together_are_held_against_the_first_number() {
    let cases = bench(&["parallel", "--parallel", "1,3", "-n", "16"]);
    let names: Vec<&str> = cases.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["parallel1", "parallel3"]);
    assert_eq!(figure(&cases[0].1, "ratio"), 1.0);
    let tok_s = |case: usize| figure(&cases[case].1, "tok_s");
    assert!((figure(&cases[1].1, "ratio") - tok_s(1) / tok_s(0)).abs() < 1e-9);
    assert!(refusal(&["bench", "parallel", "-n", "9000"], 2).contains("--decode"));
    assert!(refusal(&["bench", "parallel", "--parallel", "300"], 2).contains("--parallel"));
}

#[test]
fn a_second_case_of_a_name_does_not_replace_the_first_ones_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let flags = ["bench", "parallel", "--parallel", "1,1", "-n", "4", "--runs", "1", "--record", path];
    let out = kipp(&flags).args(["--anyway", "a test", "--threads", "1"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).contains("two cases are named parallel1"), "{}", stderr(&out));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn records_of_engines_are_refused_like_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    for unused in [&["--unregistered"][..], &["--session", "one"]] {
        let error = refusal(&[&["bench", "prefix"], unused].concat(), 2);
        assert!(error.contains(unused[0]) && error.contains("counts only with --record"), "{error}");
    }
    // Told before anything is measured.
    let impossible = ["bench", "prefix", "--anyway", "a test", "--record", "/dev/null/records"];
    let error = refusal(&impossible, 1);
    assert!(error.contains("--record: /dev/null/records") && !error.contains("run 1"), "{error}");
    let flags = ["bench", "prefix", "-p", "64", "--runs", "1", "--record", folder];
    let out = kipp(&flags).output().unwrap();
    // A debug build, refused before anything is measured.
    assert_eq!(code(&out), 3, "{}", stderr(&out));
    assert!(stderr(&out).contains("no record of bench prefix"), "{}", stderr(&out));
    let out = kipp(&flags).args(["--anyway", "a test", "--threads", "1"]).output().unwrap();
    assert_eq!(code(&out), 0, "{}", stderr(&out));
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    assert!(file.file_name().unwrap().to_str().unwrap().starts_with("kipp-tiny-bf16-prefix64-"));
    let record: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!((&record["what"], &record["name"]), (&"bench prefix".into(), &"prefix64".into()));
    assert_eq!(record["settings"]["prompt_tokens"], 64);
    assert_eq!(record["results"]["runs"].as_array().unwrap().len(), 1);
    assert!(record["degraded"]["reason"] == "a test" && record["fingerprint"]["verdict"].is_string());
}
