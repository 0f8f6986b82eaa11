//! `kipp run`: golden completions, lengths, stops, standard input, streams.

use crate::{EXACT, code, golden_cases, ids, json, keys, kipp, refusal, stderr, stdout};

/// kipp-tiny's end tokens.
const ENDS: [u32; 2] = [4002, 4000];

/// The golden cases whose prompt is the text of their ids; a sampled one need not be.
fn cases_of_text() -> Vec<serde_json::Value> {
    let is_text = |case: &serde_json::Value| {
        let prompt = case["prompt"].as_str().unwrap();
        json(&["tokenize", "--special", "--json", prompt])["ids"] == case["token_ids"]
    };
    let cases: Vec<_> = golden_cases().into_iter().filter(is_text).collect();
    assert!(cases.len() >= 5);
    cases
}

fn greedy(model: &str, prompt: &str) -> serde_json::Value {
    json(&[&["run", "--model", model, "--json", "-n", "48", prompt], &EXACT[..]].concat())
}

#[test]
fn golden_greedy_ids_from_the_embedded_model_and_from_its_folder() {
    for case in cases_of_text() {
        let golden = ids(&case["greedy_48"]);
        let end = golden.iter().position(|id| ENDS.contains(id));
        for model in ["kipp-tiny", "models/kipp-tiny", "models/kipp-tiny/kipp-tiny.gguf"] {
            let report = greedy(model, case["prompt"].as_str().unwrap());
            assert_eq!(ids(&report["tokens"]), golden[..end.unwrap_or(48)], "{model}: case {}", case["id"]);
            assert_eq!(report["finish_reason"], if end.is_some() { "stop" } else { "length" });
            assert_eq!(report["prompt_tokens"], case["token_ids"].as_array().unwrap().len());
            if end.is_none() {
                assert_eq!(report["text"], case["greedy_text"]);
            }
        }
    }
}

#[test]
fn the_json_document_has_exactly_the_keys_of_the_contract() {
    let report = json(&["run", "--json", "-n", "3", "Once upon a time"]);
    let expected = ["text", "tokens", "prompt_tokens", "finish_reason", "timings", "model", "backend"];
    assert_eq!(keys(&report), expected);
    let timings = ["load_ms", "prefill_ms", "prefill_tok_s", "decode_ms", "decode_tok_s"];
    let counts = ["cached_tokens", "drafted_tokens", "accepted_tokens"];
    assert_eq!(keys(&report["timings"]), [&timings[..], &counts].concat());
    assert!(counts.iter().all(|key| report["timings"][key] == 0));
    assert!(timings.iter().all(|key| report["timings"][key].as_f64().unwrap() > 0.0));
    assert_eq!(keys(&report["model"]), ["id", "registered", "scheme"]);
    assert_eq!(report["model"]["id"], "kipp-tiny");
    assert_eq!(report["model"]["registered"], "registered");
    assert_eq!(report["model"]["scheme"], "bf16");
    assert_eq!(keys(&report["backend"]), ["name", "kernels", "threads"]);
    assert_eq!(report["backend"]["name"], "cpu");
    // One token has no decode step, so no rate.
    let one = json(&["run", "--json", "-n", "1", "Once upon a time"]);
    assert!(one["timings"]["decode_tok_s"].is_null());
}

#[test]
fn text_streams_to_standard_output_and_figures_go_to_standard_error() {
    let out = kipp(&["run", "-n", "8", "Once upon a time"]).args(EXACT).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), ", there was a little girl named Lily");
    let notes = stderr(&out);
    assert!(notes.contains("prefill 4 tokens") && notes.contains("decode 7 tokens"), "{notes}");
    assert!(notes.contains("context: 2048 tokens (the model's maximum)"), "{notes}");
    assert!(notes.contains("backend: cpu"), "{notes}");
}

#[test]
fn the_oracle_says_the_same() {
    let prompt = "Once upon a time";
    let oracle = json(&["run", "--json", "-n", "6", "--backend", "oracle", "--kv", "f32", prompt]);
    assert_eq!(ids(&oracle["tokens"]), ids(&greedy("kipp-tiny", prompt)["tokens"])[..6]);
    assert_eq!(oracle["backend"]["name"], "oracle");
}

#[test]
fn steps_and_threads_change_nothing() {
    let long = "Once upon a time, there was a little girl named Lily. ".repeat(8);
    let whole = json(&["run", "--json", "-n", "12", &long]);
    for flags in [["--step-tokens", "7"], ["--threads", "1"], ["--threads", "3"]] {
        let other = json(&[&["run", "--json", "-n", "12", &long][..], &flags].concat());
        assert_eq!(ids(&other["tokens"]), ids(&whole["tokens"]), "{flags:?}");
    }
}

#[test]
fn standard_input_is_the_prompt_exactly() {
    let tokens = |prompt: &[u8]| {
        let out = kipp(&["run", "--json", "-n", "0"]).write_stdin(prompt).output().unwrap();
        (
            code(&out),
            serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap_or_default()["prompt_tokens"]
                .clone(),
        )
    };
    assert_eq!(tokens(b"Once upon a time"), (0, 4.into()));
    assert_eq!(tokens(b"Once upon a time\n"), (0, 5.into()));
    assert_eq!(tokens(b"a\0b").0, 0);
    let out = kipp(&["run"]).write_stdin(&b"a\xff"[..]).output().unwrap();
    assert_eq!(code(&out), 1);
    assert!(stderr(&out).contains("not UTF-8: the byte at 1"), "{}", stderr(&out));
    let out = kipp(&["run"]).write_stdin(&b""[..]).output().unwrap();
    assert_eq!(code(&out), 2);
    assert!(stderr(&out).contains("PROMPT"));
    assert!(refusal(&["run", ""], 2).contains("PROMPT"));
    assert!(refusal(&["run", "--chat", ""], 2).contains("PROMPT"));
}

#[test]
fn no_tokens_asked_for_is_an_empty_completion_with_length() {
    let report = json(&["run", "--json", "--max-tokens", "0", "Once upon a time"]);
    assert_eq!((&report["text"], &report["finish_reason"]), (&"".into(), &"length".into()));
    assert_eq!(report["tokens"], serde_json::json!([]));
    assert!(report["timings"]["prefill_tok_s"].as_f64().unwrap() > 0.0);
    assert_eq!(stdout(&["run", "-n", "0", "Once upon a time"]), "");
}

#[test]
fn prompt_and_completion_never_exceed_the_context() {
    let prompt = "Once upon a time"; // 4 tokens
    let report = json(&["run", "--json", "--ctx", "10", "-n", "100", prompt]);
    assert_eq!((ids(&report["tokens"]).len(), &report["finish_reason"]), (6, &"length".into()));
    // A block border: the first 32 positions are one block.
    let report = json(&["run", "--json", "--ctx", "33", "-n", "100", "--ignore-eos", prompt]);
    assert_eq!(ids(&report["tokens"]).len(), 29);
    for ctx in ["3", "4"] {
        let error = refusal(&["run", "--json", "--ctx", ctx, prompt], 1);
        assert!(error.contains("the prompt has 4 tokens") && error.contains(ctx), "{error}");
    }
    assert_eq!(json(&["run", "--json", "--ctx", "4", "-n", "0", prompt])["finish_reason"], "length");
    let long = "word ".repeat(4000);
    assert!(refusal(&["run", &long], 1).contains("does not fit"));
}

#[test]
fn h06_stop_strings_over_token_borders() {
    let stop = |stops: &[&str]| {
        let mut args = vec!["run", "--json", "-n", "24", "Once upon a time"];
        args.extend(EXACT);
        stops.iter().for_each(|stop| args.extend(["--stop", stop]));
        let report = json(&args);
        (report["text"].as_str().unwrap().to_owned(), report["finish_reason"].as_str().unwrap().to_owned())
    };
    assert_eq!(stop(&["tle gi"]), (", there was a lit".to_owned(), "stop".to_owned()));
    assert_eq!(stop(&["named Lily", "was"]), (", there ".to_owned(), "stop".to_owned()));
    assert_eq!(stop(&["no such text"]).1, "length");
    let streamed =
        stdout(&[&["run", "-n", "24", "--stop", "tle gi", "Once upon a time"], &EXACT[..]].concat());
    assert_eq!(streamed, ", there was a lit");
}

#[test]
fn ignore_eos_goes_on_past_end_tokens() {
    let ends_early =
        |case: &serde_json::Value| ids(&case["greedy_48"])[..40].iter().any(|id| ENDS.contains(id));
    let case = cases_of_text().into_iter().find(ends_early).unwrap();
    let prompt = case["prompt"].as_str().unwrap();
    let report = json(&[&["run", "--json", "-n", "48", "--ignore-eos", prompt], &EXACT[..]].concat());
    assert_eq!(ids(&report["tokens"]), ids(&case["greedy_48"]));
    assert_eq!(report["finish_reason"], "length");
    assert!(!report["text"].as_str().unwrap().contains("<|"), "special tokens are not text");
}

#[test]
fn control_tokens_of_a_raw_prompt_count_as_such() {
    assert_eq!(json(&["run", "--json", "-n", "0", "<|im_start|>"])["prompt_tokens"], 1);
}

#[test]
fn sampling_repeats_with_its_seed() {
    let with = |seed: &str| {
        let args = ["run", "--json", "-n", "32", "--temperature", "1.0", "--seed", seed, "Once upon a time"];
        ids(&json(&args)["tokens"])
    };
    assert_eq!(with("42"), with("42"));
    assert_ne!(with("42"), with("43"));
    assert_eq!(with("-1"), with("18446744073709551615"));
    let out = kipp(&["run", "-n", "4", "--temperature", "1", "Once upon a time"]).output().unwrap();
    assert!(stderr(&out).contains("seed: "), "a seed that nobody gave is told");
}

#[test]
fn penalties_change_a_greedy_completion() {
    let plain = ids(&json(&["run", "--json", "-n", "40", "the the the the"])["tokens"]);
    let args = [
        "run",
        "--json",
        "-n",
        "40",
        "--presence-penalty",
        "2",
        "--frequency-penalty",
        "2",
        "the the the the",
    ];
    assert_ne!(ids(&json(&args)["tokens"]), plain);
}

#[test]
fn room_for_keys_and_values_must_hold_one_sequence() {
    let prompt = "Once upon a time";
    let small = ["run", "--json", "-n", "12", "--kv-mib", "1", prompt];
    assert_eq!(json(&small)["tokens"], json(&["run", "--json", "-n", "12", prompt])["tokens"]);
    let error = refusal(&["run", "--json", "-n", "2000", "--kv-mib", "1", prompt], 2);
    assert!(error.contains("--kv-mib") && error.contains("one sequence of 2004"), "{error}");
    assert!(refusal(&["run", "--json", "--kv-mib", "0", prompt], 2).contains("--kv-mib"));
}
