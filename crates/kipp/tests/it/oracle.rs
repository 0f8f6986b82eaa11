//! The oracle against Transformers, f32 arithmetic over the bf16 weights.

use kipp::artifact::Artifact;
use kipp::gates::nmse;
use kipp::kv::KvScheme;
use kipp::oracle;

use crate::paths::{ODD, read_f32, read_u32, repository};

/// `numerics.md` calls the bound: both with f32 KV, then bf16 KV in the oracle.
const BOUNDS: [(KvScheme, f64); 2] = [(KvScheme::F32, 1e-9), (KvScheme::Bf16, 5e-5)];

#[test]
fn odd_shapes_agree_with_transformers() {
    for name in ODD {
        // 4,229 positions through plain loops take a while; its last position is gated on the CPU backend instead.
        if name == "long" {
            continue;
        }
        let folder = format!("testdata/odd/{name}");
        let artifact = Artifact::open(repository(&folder)).unwrap();
        let tokens = read_u32(&format!("{folder}/tokens.u32"));
        let last = vec![read_f32(&format!("{folder}/logits.f32"))];
        let all_path = format!("{folder}/logits-all.f32");
        for (kv, bound) in BOUNDS {
            let logits = oracle::logits(&artifact.weights(), artifact.spec(), &tokens, kv);
            let found = nmse(&logits[logits.len() - 1..], &last);
            assert!(found <= bound, "{name}, {kv:?} KV: {found:e}");
            if repository(&all_path).exists() {
                let all = read_f32(&all_path);
                let all: Vec<Vec<f32>> =
                    all.chunks(artifact.spec().vocab_size).map(<[f32]>::to_vec).collect();
                let found = nmse(&logits, &all);
                assert!(found <= bound, "{name}, {kv:?} KV, all positions: {found:e}");
            }
        }
    }
}

#[test]
fn kipp_tiny_agrees_with_transformers_step_by_step() {
    let artifact = Artifact::open(repository("models/kipp-tiny")).unwrap();
    let manifest = std::fs::read_to_string(repository("testdata/kipp-tiny/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    for case in manifest["cases"].as_array().unwrap() {
        let id = case["id"].as_u64().unwrap();
        let tokens: Vec<u32> = serde_json::from_value(case["token_ids"].clone()).unwrap();
        let golden = |name: &str| vec![read_f32(&format!("testdata/kipp-tiny/{id}-{name}.f32"))];
        let last = tokens.len() - 1;
        for (kv, bound) in BOUNDS {
            let states = oracle::states(&artifact.weights(), artifact.spec(), &tokens, kv);
            let logits = oracle::head(&artifact.weights(), &states.final_norm[last..]);
            for (name, found) in [
                ("layer0-last", nmse(&states.first_layer[last..], &golden("layer0-last"))),
                ("final-norm-last", nmse(&states.final_norm[last..], &golden("final-norm-last"))),
                ("logits-last", nmse(&logits, &golden("logits-last"))),
            ] {
                assert!(found <= bound, "case {id}, {name}, {kv:?} KV: {found:e}");
            }
        }
    }
}
