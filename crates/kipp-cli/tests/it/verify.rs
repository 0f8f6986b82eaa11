//! `kipp verify`: every gate passes, and exit code 3 when one does not.

use std::process::{Command, Stdio};

use kipp_kernels::KernelClass;
use serde_json::Value;

use crate::{code, json, keys, kipp, refusal, root, stderr, stdout};

#[test]
fn products_and_attention_in_classes_of_their_own_are_gated_both() {
    let report = json(&["verify", "-m", "testdata/odd/one-layer", "--kernels", "attention=scalar", "--json"]);
    assert_eq!(report["failed"], 0, "{report}");
    let gates = report["gates"].as_array().unwrap();
    let held = |start: &str| gates.iter().any(|gate| gate["name"].as_str().unwrap().starts_with(start));
    assert!(held("operators: q8_0 products") && held("operators: attention, q8_0 KV"));
}

/// Each class that the kernels offer here, products and attention alike, with its own frozen fingerprint.
#[test]
fn every_class_of_this_machine_has_its_verdict() {
    let model = ["verify", "-m", "testdata/odd/one-layer"];
    let report = json(&[&model[..], &["--json"]].concat());
    let classes = report["classes"].as_array().unwrap();
    let names: Vec<&str> = classes.iter().map(|class| class["kernels"].as_str().unwrap()).collect();
    let available: Vec<&str> = KernelClass::available().iter().map(|class| class.name()).collect();
    assert_eq!(names, available);
    let absent = report["absent"].as_array().unwrap().len();
    assert_eq!(names.len() + absent, KernelClass::ALL.len());
    let gates = report["gates"].as_array().unwrap();
    for class in classes {
        assert_eq!((&class["failed"], &class["fingerprint"]), (&0.into(), &"equal".into()), "{class}");
        let own = gates.iter().filter(|gate| gate["kernels"] == class["kernels"]);
        let fingerprint =
            own.clone().find(|gate| gate["name"] == "fingerprint").unwrap()["detail"].as_str().unwrap();
        assert!(
            fingerprint.contains(&format!("cpu {} ", class["kernels"].as_str().unwrap())),
            "{fingerprint}"
        );
        assert_eq!(own.count() as u64, class["passed"].as_u64().unwrap());
    }
    // One that is asked for is the only one; what it cannot be held against is said.
    let scalar = [&model[..], &["--kernels", "scalar", "--kv", "q8_0"]].concat();
    let table = stdout(&scalar);
    assert!(table.contains("scalar: ") && table.contains("fingerprint none frozen"), "{table}");
    assert!(!table.contains("avx") && !table.contains("neon"), "{table}");
}

#[test]
fn every_gate_passes_on_the_embedded_model() {
    let best = KernelClass::best().name();
    let out = kipp(&["verify", "--kernels", best]).output().unwrap();
    let table = String::from_utf8_lossy(&out.stdout);
    assert_eq!(code(&out), 0, "{table}{}", stderr(&out));
    assert!(table.trim_end().ends_with(" passed, 0 failed"), "{table}");
    assert!(table.lines().count() > 5, "{table}");
}

#[test]
fn golden_references_of_both_layouts() {
    let report = json(&[
        "verify",
        "--kernels",
        KernelClass::best().name(),
        "--reference",
        "testdata/kipp-tiny",
        "--json",
    ]);
    assert_eq!(keys(&report), ["gates", "classes", "absent", "passed", "failed", "model", "backend"]);
    assert_eq!(report["failed"], 0);
    assert_eq!(report["gates"].as_array().unwrap().len() as u64, report["passed"].as_u64().unwrap());
    assert_eq!(keys(&report["gates"][0]), ["kernels", "name", "value", "bound", "detail", "passed"]);
    let model = "testdata/odd/one-layer";
    assert_eq!(json(&["verify", "-m", model, "--reference", model, "--json"])["failed"], 0);
}

#[test]
fn a_reference_that_differs_is_exit_3_and_one_that_is_absent_or_cut_is_exit_1() {
    let model = "testdata/odd/one-layer";
    let folder = tempfile::tempdir().unwrap();
    let reference = folder.path().to_str().unwrap();
    let verify = ["verify", "-m", model, "--reference", reference];
    assert!(refusal(&verify, 1).contains("tokens.u32"));
    std::fs::copy(root().join(model).join("tokens.u32"), folder.path().join("tokens.u32")).unwrap();
    assert!(refusal(&verify, 1).contains("logits.f32"));

    let logits = std::fs::read(root().join(model).join("logits.f32")).unwrap();
    std::fs::write(folder.path().join("logits.f32"), &logits[..logits.len() - 4]).unwrap();
    assert!(refusal(&verify, 1).contains("logits.f32"));

    let mut other = logits;
    other.rotate_left(4);
    std::fs::write(folder.path().join("logits.f32"), other).unwrap();
    let out = kipp(&verify).arg("--json").output().unwrap();
    assert_eq!(code(&out), 3, "{}", stderr(&out));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(report["failed"].as_u64().unwrap() > 0);

    for json in [&[][..], &["--json"]] {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin!("kipp"))
            .args([&verify[..], json].concat())
            .current_dir(root())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!(code(&out), 3, "nobody reads the table: {}", stderr(&out));
    }
}
