//! `kipp bench`: names, shapes and refusals. Speeds are whatever they are here.

use serde_json::Value;

use crate::{json, keys, refusal, stdout};

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
