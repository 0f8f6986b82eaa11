//! `kipp bench`: names, shapes and refusals. Speeds are whatever they are here.

use serde_json::Value;

use crate::{code, json, keys, kipp, refusal, stderr, stdout};

const QUICK: [&str; 9] = ["bench", "run", "kipp-tiny", "--runs", "2", "-p", "64", "-n", "8"];

fn names(results: &Value) -> Vec<&str> {
    results.as_array().unwrap().iter().map(|result| result["name"].as_str().unwrap()).collect()
}

#[test]
fn each_case_has_its_runs_and_what_the_machine_could_do_beside_them() {
    let results = json(&[&QUICK[..], &["--json"]].concat());
    assert_eq!(names(&results), ["pp64", "tg8"]);
    for result in results.as_array().unwrap() {
        let number = |key: &str| result[key].as_f64().unwrap();
        assert!(number("min") <= number("tok_s") && number("tok_s") <= number("max"));
        assert!(number("limit") > 0.0 && number("share") > 0.0);
        let runs = result["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2);
        for run in runs {
            assert_eq!(run["backend"]["name"], "cpu");
            assert!(run["before"]["read_gb_s"].as_f64().unwrap() > 0.0);
            assert!(run["load_ms"].as_f64().unwrap() < run["first_answer_ms"].as_f64().unwrap());
        }
    }
    assert_eq!(results[1]["runs"][0]["steps_ms"].as_array().unwrap().len(), 8);
    assert!(keys(&results[0]).contains(&"mad"));
}

#[test]
fn depths_and_sequences_are_cases_of_their_own() {
    let flags = ["--json", "--runs", "1", "-p", "0", "-d", "0,40", "--parallel", "1,3", "--kv", "f32"];
    let results = json(&[&["bench", "run", "-n", "4"][..], &flags].concat());
    assert_eq!(names(&results), ["tg4", "tg4 @ d40", "tg4 x 3", "tg4 x 3 @ d40"]);
    let run = &results[3]["runs"][0];
    assert_eq!((&run["tokens"], &run["backend"]["kv"]), (&12.into(), &"f32".into()));
}

#[test]
fn tables_are_markdown() {
    let table = stdout(&QUICK);
    assert!(table.starts_with("kipp-tiny (registered, bf16), cpu "), "{table}");
    assert!(table.contains("| pp64 ") && table.contains("GB/s read"), "{table}");
    let table = stdout(&[&QUICK[..], &["--format", "llama-bench", "--threads", "1"]].concat());
    assert!(table.starts_with("| model ") && table.contains(" ± "), "{table}");
}

#[test]
fn what_cannot_be_measured_is_wrong_usage() {
    let run = |flags: &[&str]| refusal(&[&["bench", "run"], flags].concat(), 2);
    assert!(run(&["-p", "4000"]).contains("--prefill"));
    assert!(run(&["-d", "2040"]).contains("--depth"));
    assert!(run(&["-p", "0", "-n", "0"]).contains("--prefill"));
    assert!(run(&["--runs", "0"]).contains("--runs"));
    assert!(run(&["--parallel", "0"]).contains("--parallel"));
    assert!(refusal(&["bench", "run", "missing.gguf"], 1).contains("missing.gguf"));
}

#[test]
fn kernels_are_measured_in_the_classes_asked_for() {
    let flags = ["--classes", "scalar", "--schemes", "q8_0,bf16", "--tokens", "1,4", "-d", "0,40", "--json"];
    let results = json(&[&["bench", "kernels", "kipp-tiny", "--threads", "2"][..], &flags].concat());
    let of = |key: &str| -> std::collections::BTreeSet<String> {
        results.as_array().unwrap().iter().map(|case| case[key].to_string().replace('"', "")).collect()
    };
    assert_eq!(of("class"), ["scalar".to_owned()].into());
    assert_eq!(of("threads"), ["1".to_owned(), "2".to_owned()].into());
    let names = of("name");
    for name in ["q8_0 qkv M=1", "bf16 head M=4", "bf16 attention M=4 @ d40", "bf16 attention M=1 @ d0"] {
        assert!(names.contains(name), "{names:?}");
    }
    for case in results.as_array().unwrap() {
        assert!(case["of_peak"].as_f64().unwrap() > 0.0 && case["of_read"].as_f64().unwrap() > 0.0, "{case}");
    }
    assert!(refusal(&["bench", "kernels", "--schemes", "q9"], 2).contains("--schemes"));
    assert!(refusal(&["bench", "kernels", "--classes", "avx3"], 2).contains("--classes"));
}

#[test]
fn a_build_for_tests_is_recorded_only_anyway_and_marked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results");
    let run = [&QUICK[..], &["--record", path.to_str().unwrap()]].concat();
    // Not a release, so refused before anything is measured.
    let out = kipp(&run).output().unwrap();
    assert_eq!(code(&out), 3);
    assert!(stderr(&out).contains("no release build") && out.stdout.is_empty(), "{}", stderr(&out));
    assert!(!path.exists());
    assert!(stderr(&out).contains("runs that count: 2; needed: 3"), "{}", stderr(&out));

    let quickly = ["--anyway", "a test", "--protocol", "cool-start", "--runs", "1", "-p", "0", "-n", "4"];
    let flags = ["bench", "run", "kipp-tiny", "--record", path.to_str().unwrap()];
    stdout(&[&flags[..], &quickly].concat());
    let files: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let name = files[0].file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("kipp-tiny-bf16-tg4-"), "{name}");
    let record: Value = serde_json::from_slice(&std::fs::read(&files[0]).unwrap()).unwrap();
    assert_eq!(record["degraded"]["reason"], "a test");
    assert!(record["degraded"]["refusals"][0].is_string());
    assert_eq!(record["fingerprint"]["logits"].as_str().unwrap().len(), 16);
    assert_eq!(record["model"]["registered"], "registered");
    assert_eq!(record["settings"]["generated_tokens"], 4);
    assert_eq!(record["results"]["runs"].as_array().unwrap().len(), 1);
    assert_eq!(record["build"]["program_sha256"].as_str().unwrap().len(), 64);
    assert_eq!(record["command"][1], "bench");
}
