//! Exit codes, the environment, and refusals: wrong use is 2 and names the flag, everything bad that comes from outside
//! is 1 and names the file.

use std::io::Read;
use std::process::{Command, Stdio};

use kipp_kernels::KernelClass;

use crate::{code, ids, json, kipp, refusal, root, stderr};

#[test]
fn values_out_of_range_are_wrong_usage_and_name_the_flag() {
    for (flag, value) in [
        ("--temperature", "-1"),
        ("--temperature", "NaN"),
        ("--temperature", "1e999"),
        ("--top-p", "1.1"),
        ("--top-p", "-0.1"),
        ("--min-p", "2"),
        ("--top-k", "-2"),
        ("--repetition-penalty", "0"),
        ("--presence-penalty", "2.5"),
        ("--frequency-penalty", "-3"),
        ("--seed", "x"),
        ("--stop", ""),
        ("--max-tokens", "-1"),
        ("--ctx", "0"),
        ("--ctx", "2049"),
        ("--kv", "q3"),
        ("--kernels", "avx3"),
        ("--kernels", "matmul=scalar,attention=avx3"),
        ("--activations", "f64"),
        ("--backend", "tpu"),
        ("--backend", "cuda"),
        ("--backend", "metal"),
        ("--backend", "vulkan"),
        ("--threads", "0"),
        ("--step-tokens", "0"),
        ("--rope-factor", "0.5"),
        ("--rope-scaling", "yarn"),
        ("--rope-scaling", "linear"),
    ] {
        let error = refusal(&["run", "hi", flag, value], 2);
        assert!(error.contains(flag), "{flag} {value}: {error}");
    }
    assert!(
        refusal(&["run", "hi", "--backend", "oracle", "--activations", "s8"], 2).contains("--activations")
    );
    assert!(refusal(&["run", "hi", "--backend", "oracle", "--kernels", "scalar"], 2).contains("--kernels"));
    let contradiction = ["run", "hi", "--rope-scaling", "none", "--rope-factor", "2"];
    assert!(refusal(&contradiction, 2).contains("--rope-factor"));
    let stops = ["--stop=x"; 17];
    assert!(refusal(&[&["run", "hi"], &stops[..]].concat(), 2).contains("--stop"));
    assert!(refusal(&["perplexity", "x", "--window", "1"], 2).contains("--window"));
    refusal(&["run", "--no-such-flag"], 2);
    // The gates choose their own lengths: a flag that could not count is refused.
    assert!(refusal(&["verify", "--ctx", "64"], 2).contains("--ctx"));
    assert!(refusal(&["verify", "--step-tokens", "8"], 2).contains("--step-tokens"));
    refusal(&["chant"], 2);
    refusal(&["logits"], 2);
}

#[test]
fn what_is_no_model_is_a_failure_that_says_what_to_do() {
    for model in ["qwen3-0.6b", "Qwen/Qwen3-0.6B", "missing.gguf"] {
        let error = refusal(&["run", "-m", model, "hi"], 1);
        assert!(error.contains(model) && error.contains("kipp pull"), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert!(refusal(&["run", "-m", path, "hi"], 1).contains("config.json"));
    let bad = folder.path().join("bad\u{1b}.gguf");
    std::fs::write(&bad, b"GGUF\x03\0\0\0").unwrap();
    let error = refusal(&["show", bad.to_str().unwrap()], 1);
    assert!(error.contains("bad\\u{1b}.gguf") && !error.contains('\u{1b}'), "{error}");
}

#[test]
fn every_flag_has_a_variable_and_flags_beat_it() {
    let tokens = |command: &mut assert_cmd::Command| {
        let out = command.output().unwrap();
        assert_eq!(code(&out), 0, "{}", stderr(&out));
        let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        ids(&report["tokens"]).len()
    };
    let run = || {
        let mut command = kipp(&["run", "Once upon a time"]);
        command.env("KIPP_JSON", "1").env("KIPP_MAX_TOKENS", "3").env("KIPP_MODEL", "models/kipp-tiny");
        command
    };
    assert_eq!(tokens(&mut run()), 3);
    assert_eq!(tokens(run().args(["-n", "5"])), 5);
    assert_eq!(tokens(run().args(["--model", "kipp-tiny"])), 3);
    let out = run().env("KIPP_TEMPERATURE", "-1").output().unwrap();
    assert_eq!(code(&out), 2);
    assert!(stderr(&out).contains("--temperature") && stderr(&out).contains("KIPP_TEMPERATURE"));
    // What only the model tells, too; and not where the value was typed.
    let out = run().env("KIPP_CTX", "4000").output().unwrap();
    assert_eq!(code(&out), 2);
    assert!(stderr(&out).contains("--ctx") && stderr(&out).contains("KIPP_CTX"), "{}", stderr(&out));
    let out = run().env("KIPP_CTX", "64").args(["--ctx", "4000"]).output().unwrap();
    assert!(code(&out) == 2 && !stderr(&out).contains("KIPP_CTX"), "{}", stderr(&out));
    let out = run().env("KIPP_JSON", "maybe").output().unwrap();
    assert_eq!(code(&out), 2);
    assert!(stderr(&out).contains("--json") && stderr(&out).contains("KIPP_JSON"), "{}", stderr(&out));
    let out = run().env("KIPP_JSON", "0").output().unwrap();
    assert!(!out.stdout.starts_with(b"{"), "0 is off");
}

#[test]
fn what_would_not_be_followed_is_refused() {
    let run = |flags: &[&str]| refusal(&[&["run", "hi"], flags].concat(), 2);
    assert!(run(&["--activations", "s8"]).contains("--activations: s8 is not taken by any weights"));
    assert!(refusal(&["bench", "run", "--activations", "s8"], 2).contains("--activations"));
    assert!(refusal(&["bench", "kernels", "--activations", "s8"], 2).contains("--activations"));
    let coded =
        ["run", "-m", "testdata/quantized/kipp-tiny-q8_0.gguf", "-n", "1", "--activations", "s8", "hi"];
    assert_eq!(code(&kipp(&coded).output().unwrap()), 0);
    let best = KernelClass::best().name();
    for slow in [["--backend", "oracle"], ["--kernels", "scalar"], ["--kernels", "attention=scalar"]] {
        if slow[0] == "--kernels" && best == "scalar" {
            continue;
        }
        assert!(
            run(&[&slow[..], &["--require-fast"]].concat()).contains("--require-fast: contradicts"),
            "{slow:?}"
        );
    }
    assert_eq!(
        code(&kipp(&["run", "hi", "-n", "1", "--kernels", best, "--require-fast"]).output().unwrap()),
        0
    );
    assert!(run(&["--kernels", ""]).contains("must be one of scalar"));
    let error = refusal(&["run", "hi", "--kv-mib", "100000000000"], 1);
    assert!(error.contains("--kv-mib: "), "{error}");
    let error = refusal(&["run", "--chat", "hi", "--kv-mib", "1"], 2);
    assert!(error.contains("--kv-mib") && error.contains("a smaller --max-tokens or --ctx"), "{error}");
    for flag in ["-m", "--model"] {
        let error = refusal(&["bench", "run", flag, "kipp-tiny"], 2);
        assert!(error.contains("the model stands by itself"), "{error}");
    }
}

#[test]
fn what_is_odd_is_said() {
    let notes = |args: &[&str]| stderr(&kipp(args).output().unwrap());
    assert!(notes(&["run", "-n", "1", "--threads", "1000", "hi"]).contains("note: 1000 threads share"));
    assert!(notes(&["run", "-n", "1", "--backend", "oracle", "hi"]).contains("backend: oracle"));
    let padding = notes(&["detokenize", "436", "4095"]);
    assert!(padding.contains("note: 1 of 2 ids pad the vocabulary"), "{padding}");
}

#[test]
fn a_forced_class_is_the_class_that_runs() {
    let report = json(&["run", "--json", "-n", "2", "--kernels", "scalar", "--threads", "1", "hi"]);
    assert_eq!(report["backend"]["kernels"], "scalar");
    assert_eq!(report["backend"]["threads"], 1);
}

#[test]
fn a_closed_pipe_is_a_clean_end() {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("kipp"))
        .args(["run", "-n", "400", "--ignore-eos", "Once upon a time"])
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The reader takes one byte and goes.
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0]).unwrap();
    drop(out);
    let out = child.wait_with_output().unwrap();
    assert_eq!(code(&out), 0, "{}", stderr(&out));
    assert!(!stderr(&out).contains("panicked"), "{}", stderr(&out));
}

#[test]
fn help_and_version_are_results() {
    for args in [["--help"], ["--version"]] {
        let out = kipp(&args).output().unwrap();
        assert!(code(&out) == 0 && !out.stdout.is_empty());
    }
}
