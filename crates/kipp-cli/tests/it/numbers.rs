//! `kipp logits` and `kipp perplexity` against the reference's files.

use std::path::Path;

use serde_json::Value;

use crate::{golden_cases, json, keys, kipp, refusal, root, stdout};

const F32: [&str; 2] = ["--kv", "f32"];

fn floats(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Sum of squared differences over the sum of the reference's squares.
fn nmse(x: &[f32], reference: &[f32]) -> f64 {
    assert_eq!(x.len(), reference.len());
    let square = |x: f64| x * x;
    let error: f64 = x.iter().zip(reference).map(|(x, r)| square(f64::from(*x) - f64::from(*r))).sum();
    error / reference.iter().map(|r| square(f64::from(*r))).sum::<f64>()
}

/// Runs `kipp logits` on ids written as they come.
fn logits(ids: &str, flags: &[&str]) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let (list, out) = (folder.path().join("ids"), folder.path().join("out.f32"));
    std::fs::write(&list, ids).unwrap();
    let args = ["logits", "--ids", list.to_str().unwrap(), "-o", out.to_str().unwrap()];
    assert_eq!(stdout(&[&args[..], flags].concat()), "");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    floats(&out)
}

#[test]
fn golden_logits_from_the_oracle_and_the_cpu() {
    for case in golden_cases() {
        let reference = floats(&root().join(format!("testdata/kipp-tiny/{}-logits-last.f32", case["id"])));
        let ids = case["token_ids"].to_string();
        for flags in [["--backend", "oracle"], ["--activations", "f32"]] {
            let found = logits(&ids, &[&flags[..], &F32[..]].concat());
            assert!(nmse(&found, &reference) <= 1e-9, "case {}: {}", case["id"], nmse(&found, &reference));
        }
    }
}

#[test]
fn all_positions_end_with_the_last_one_bit_for_bit() {
    let ids = "436 450 258 410 11 411 284 258";
    let all = logits(ids, &["--all"]);
    assert_eq!(all.len(), 8 * 4096);
    assert!(all[7 * 4096..] == logits(ids, &[])[..]);
    assert!(all[3 * 4096..4 * 4096] == logits("[436, 450, 258, 410]", &[])[..]);
    assert!(all == logits(ids, &["--all", "--step-tokens", "3"]));
}

#[test]
fn bad_id_lists_are_refused_by_file_and_item() {
    let folder = tempfile::tempdir().unwrap();
    let (list, out) = (folder.path().join("ids"), folder.path().join("out.f32"));
    let (list_path, out_path) = (list.to_str().unwrap(), out.to_str().unwrap());
    for (ids, named) in [
        ("1 4096", "4096"),
        ("1 -1", "-1"),
        ("[1, 2.5]", "JSON"),
        ("", "no token ids"),
        ("[]", "no token ids"),
        (&"1 ".repeat(2049), "2048"),
    ] {
        std::fs::write(&list, ids).unwrap();
        let error = refusal(&["logits", "--ids", list_path, "-o", out_path], 1);
        assert!(error.contains(named) && error.contains(list_path), "{error}");
    }
    assert!(refusal(&["logits", "--ids", "nowhere", "-o", out_path], 1).contains("nowhere"));
    std::fs::write(&list, "1").unwrap();
    let nowhere = folder.path().join("nowhere/out.f32");
    refusal(&["logits", "--ids", list_path, "-o", nowhere.to_str().unwrap()], 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half written stays");
}

#[test]
fn logits_never_replace_what_they_are_made_of() {
    let folder = tempfile::tempdir().unwrap();
    let (model, ids) = (folder.path().join("m.gguf"), folder.path().join("ids.txt"));
    std::fs::copy(root().join("models/kipp-tiny/kipp-tiny.gguf"), &model).unwrap();
    std::fs::write(&ids, "436 450").unwrap();
    let (model, ids) = (model.to_str().unwrap(), ids.to_str().unwrap());
    let before = (std::fs::read(model).unwrap(), std::fs::read(ids).unwrap());
    for output in [model, ids] {
        refusal(&["logits", "-m", model, "--ids", ids, "-o", output], 1);
    }
    assert!(before == (std::fs::read(model).unwrap(), std::fs::read(ids).unwrap()));
}

#[test]
fn logits_need_no_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(root().join("models/kipp-tiny").join(name), folder.path().join(name)).unwrap();
    }
    let model = folder.path().to_str().unwrap();
    assert!(logits("436 450", &["-m", model]) == logits("436 450", &[]));
}

#[test]
fn golden_perplexity() {
    let text = std::fs::read_to_string(root().join("testdata/kipp-tiny/perplexity.json")).unwrap();
    let golden: Value = serde_json::from_str(&text).unwrap();
    let args = ["perplexity", "testdata/kipp-tiny/sampled.u32", "--ids", "--window", "256", "--json"];
    let report = json(&[&args[..], &["--activations", "f32"], &F32[..]].concat());
    assert_eq!(report["tokens_scored"], golden["scored"]);
    assert_eq!(report["tokens"], golden["tokens"]);
    assert_eq!(report["window"], 256);
    let relative = |key: &str| report[key].as_f64().unwrap() / golden[key].as_f64().unwrap() - 1.0;
    assert!(
        relative("nll").abs() < 1e-4 && relative("ppl").abs() < 1e-4,
        "{} {}",
        relative("nll"),
        relative("ppl")
    );
    assert!(report["stderr"].as_f64().unwrap() > 0.0);
}

/// `ids` as a file of little-endian u32.
fn u32_file(folder: &Path, ids: &[u32]) -> String {
    let path = folder.join("ids.u32");
    std::fs::write(&path, ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn h30_what_is_scored_is_counted_and_repeats() {
    let folder = tempfile::tempdir().unwrap();
    let file = u32_file(folder.path(), &[436, 450, 258, 410, 11, 411, 284, 258, 373, 447]);
    let scored =
        |window: &str| json(&["perplexity", &file, "--ids", "--json", "--per-token", "--window", window]);
    let report = scored("4");
    let expected = [
        "tokens_scored",
        "nll",
        "ppl",
        "stderr",
        "window",
        "tokens",
        "protocol",
        "per_token",
        "model",
        "backend",
    ];
    assert_eq!(keys(&report), expected);
    assert_eq!((&report["tokens_scored"], &report["window"]), (&7.into(), &4.into()));
    assert_eq!(report["per_token"].as_array().unwrap().len(), 7);
    let mut again = scored("4");
    again["model"] = report["model"].clone();
    assert_eq!(again, report);
    assert_eq!(scored("10")["nll"], scored("11")["nll"]);
    assert!(json(&["perplexity", &file, "--ids", "--json"]).get("per_token").is_none());
    // The specification itself, on the same tokens.
    let oracle = json(&["perplexity", &file, "--ids", "--json", "--backend", "oracle", "--kv", "f32"]);
    let cpu = json(&["perplexity", &file, "--ids", "--json", "--activations", "f32", "--kv", "f32"]);
    let difference = oracle["nll"].as_f64().unwrap() - cpu["nll"].as_f64().unwrap();
    assert!(difference.abs() < 1e-5, "{difference}");
}

#[test]
fn a_text_is_tokenized_and_ids_need_no_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "Once upon a time, there was a").unwrap();
    let from_text = json(&["perplexity", text.to_str().unwrap(), "--json"]);
    let file = u32_file(folder.path(), &[436, 450, 258, 410, 11, 411, 284, 258]);
    let from_ids = json(&["perplexity", &file, "--ids", "--json"]);
    assert_eq!(from_text["nll"], from_ids["nll"]);
    assert!(stdout(&["perplexity", &file, "--ids"]).starts_with("perplexity "));
}

#[test]
fn files_that_cannot_be_scored_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = u32_file(folder.path(), &[1]);
    assert!(refusal(&["perplexity", &file, "--ids"], 1).contains("nothing to score"));
    let file = u32_file(folder.path(), &[1, 4096]);
    assert!(refusal(&["perplexity", &file, "--ids"], 1).contains("4096"));
    std::fs::write(&file, [0; 7]).unwrap();
    assert!(refusal(&["perplexity", &file, "--ids"], 1).contains("7 bytes"));
    std::fs::write(&file, [b'a', 0xff]).unwrap();
    assert!(refusal(&["perplexity", &file], 1).contains("not UTF-8"));
    assert!(refusal(&["perplexity", "nowhere"], 1).contains("nowhere"));
    assert!(refusal(&["perplexity", &file, "--window", "4096"], 1).contains("not UTF-8"));
}

#[test]
fn protocols_are_stated_and_score_what_they_say() {
    let scored = |flags: &[&str]| {
        let args = ["perplexity", "testdata/kipp-tiny/sampled.u32", "--ids", "--window", "64", "--json"];
        let report = json(&[&args[..], flags].concat());
        (report["tokens_scored"].as_u64().unwrap(), report)
    };
    let tokens = scored(&[]).1["tokens"].as_u64().unwrap();
    assert_eq!(scored(&[]).0, tokens - tokens.div_ceil(64));
    let (strided, report) = scored(&["--stride", "16"]);
    assert_eq!((strided, &report["stride"]), (tokens - 1, &16.into()));
    let (halves, report) = scored(&["--second-half"]);
    assert_eq!(halves, tokens / 64 * 31);
    assert!(report["protocol"].as_str().unwrap().contains("after the first 33"));
    // More context predicts better.
    assert!(report["nll"].as_f64().unwrap() < scored(&[]).1["nll"].as_f64().unwrap());
    for flags in [&["--stride", "64"][..], &["--stride", "0"], &["--stride", "8", "--second-half"]] {
        let args = ["perplexity", "testdata/kipp-tiny/sampled.u32", "--ids", "--window", "64"];
        assert!(refusal(&[&args[..], flags].concat(), 2).contains("--stride"), "{flags:?}");
    }
}

#[test]
fn divergence_from_another_model() {
    let file = "testdata/kipp-tiny/sampled.u32";
    let against = |flags: &[&str]| {
        let args = ["perplexity", file, "--ids", "--window", "128", "--json"];
        json(&[&args[..], flags].concat())["against"].clone()
    };
    let q4_0 = ["--model", "testdata/quantized/kipp-tiny-q4_0.gguf", "--against", "kipp-tiny"];
    let found = against(&q4_0);
    let number = |key: &str| found[key].as_f64().unwrap();
    assert!(number("kl") > 2.0 * number("kl_stderr") && number("kl_median") < number("kl_p99"), "{found}");
    assert!(number("same_top") > 0.8 && number("same_top") < 1.0, "{found}");
    assert!(found["model"]["id"].as_str().unwrap().contains("kipp-tiny"), "{found}");
    let itself = against(&["--against", "kipp-tiny", "--activations", "f32", "--against-activations", "f32"]);
    assert_eq!((&itself["kl"], &itself["same_top"]), (&0.0.into(), &1.0.into()));
    assert!(refusal(&["perplexity", file, "--ids", "--against", "nowhere"], 1).contains("--against"));
    assert!(refusal(&["perplexity", file, "--ids", "--against-activations", "f32"], 2).contains("--against"));
    assert!(stdout(&["perplexity", file, "--ids", "--against", "kipp-tiny"]).contains("divergence 0.000000"));
}

#[test]
fn a_window_longer_than_the_context_is_wrong_usage() {
    let out = kipp(&["perplexity", "testdata/kipp-tiny/sampled.u32", "--ids", "--window", "2049"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2));
}
