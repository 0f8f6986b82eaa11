//! `kipp run --spec`: the same answers, counts in the timings, and what is refused.

use serde_json::Value;

use crate::{ids, json, kipp, refusal, stderr};

const TINY: &str = "models/kipp-tiny/kipp-tiny.gguf";
/// Twice the same, so that the text itself drafts.
const PROMPT: &str = "The cat saw a dog. The dog saw a cat. The cat saw a dog. The dog saw";

fn run(flags: &[&str]) -> Value {
    json(&[&["run", "--json", "-n", "60", "--ignore-eos", PROMPT], flags].concat())
}

fn counts(report: &Value) -> (u64, u64) {
    let count = |key: &str| report["timings"][key].as_u64().unwrap();
    (count("drafted_tokens"), count("accepted_tokens"))
}

#[test]
fn h29_drafts_change_no_answer() {
    let sampled = ["--temperature", "0.8", "--seed", "5"];
    for sampling in [&[][..], &sampled] {
        let plain = run(sampling);
        assert_eq!(counts(&plain), (0, 0));
        for spec in [&["--spec", "ngram"][..], &["--spec", "draft", "--draft-model", TINY]] {
            let drafted = run(&[sampling, spec].concat());
            assert_eq!(ids(&drafted["tokens"]), ids(&plain["tokens"]), "{spec:?} {sampling:?}");
            assert_eq!(drafted["text"], plain["text"]);
        }
    }
    assert_eq!(counts(&run(&["--spec", "off"])), (0, 0));
}

#[test]
fn a_stop_string_inside_a_draft_ends_the_answer_there() {
    let text = |flags: &[&str]| run(&[&["--stop", "saw a cat. The"], flags].concat())["text"].clone();
    assert_eq!(text(&["--spec", "ngram"]), text(&[]));
}

#[test]
fn drafts_are_counted_in_both_forms() {
    let (drafted, accepted) = counts(&run(&["--spec", "ngram"]));
    assert!(accepted > 0 && accepted <= drafted, "{accepted} of {drafted}");
    let notes = |flags: &[&str]| {
        stderr(&kipp(&["run", "-n", "60", "--ignore-eos", PROMPT]).args(flags).output().unwrap())
    };
    assert!(notes(&["--spec", "ngram"]).contains(" drafted tokens accepted"));
    assert!(notes(&["--spec", "draft", "--draft-model", TINY]).contains("draft model: kipp-tiny"));
}

#[test]
fn a_draft_model_of_the_models_own_size_is_left_alone() {
    // Always right, and never worth a step: its prompt alone would take longer than a short answer may lose.
    let (drafted, _) = counts(&run(&["--spec", "draft", "--draft-model", TINY]));
    assert!(drafted <= 2, "{drafted}");
}

#[test]
fn what_cannot_draft_is_refused() {
    let usage = |flags: &[&str]| refusal(&[&["run", "hi"], flags].concat(), 2);
    assert!(usage(&["--spec", "draft"]).contains("--spec: draft needs --draft-model"));
    assert!(usage(&["--draft-model", TINY]).contains("--draft-model: counts only with --spec draft"));
    assert!(usage(&["--spec", "ngram", "--draft-model", TINY]).contains("--draft-model"));
    assert!(usage(&["--spec", "ngram", "--draft-kv-mib", "1"]).contains("--draft-kv-mib"));
    assert!(usage(&["--spec", "both"]).contains("--spec"));
    let failed =
        |flags: &[&str]| refusal(&[&["run", "--spec", "draft", "hi", "--draft-model"], flags].concat(), 1);
    assert!(failed(&["missing.gguf"]).contains("--draft-model: missing.gguf"));
    let error = failed(&[TINY, "-n", "2000", "--draft-kv-mib", "1"]);
    assert!(error.contains("draft model's KV cache has") && error.contains("one sequence of"), "{error}");
    // A folder of the same shape with another tokenizer.
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        std::fs::copy(crate::root().join("models/kipp-tiny").join(from), folder.path().join(to)).unwrap();
    };
    for entry in std::fs::read_dir(crate::root().join("models/kipp-tiny")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".gguf") && name != "tokenizer.json" {
            copy(&name, &name);
        }
    }
    let tokenizer = std::fs::read_to_string(crate::root().join("models/kipp-tiny/tokenizer.json")).unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), swap_two_tokens(&tokenizer)).unwrap();
    let error = failed(&[folder.path().to_str().unwrap()]);
    assert!(error.contains("they must share one tokenizer"), "{error}");
}

/// The ids of `!` and `#` for each other.
fn swap_two_tokens(tokenizer: &str) -> String {
    let mut json: Value = serde_json::from_str(tokenizer).unwrap();
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    let (a, b) = (vocab["!"].clone(), vocab["#"].clone());
    vocab.insert("!".to_owned(), b);
    vocab.insert("#".to_owned(), a);
    json.to_string()
}
