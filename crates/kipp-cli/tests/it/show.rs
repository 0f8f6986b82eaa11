//! `kipp show`: the exact document, and a table for people.

use serde_json::{Value, json};

use crate::{json as show, keys, stdout};

#[test]
fn the_document_has_exactly_the_keys_of_the_contract() {
    let report = show(&["show", "kipp-tiny", "--json"]);
    let expected = [
        "id",
        "registered",
        "architecture",
        "parameters",
        "dimensions",
        "schemes",
        "rope",
        "tokenizer",
        "chat_template",
        "file",
        "source",
    ];
    assert_eq!(keys(&report), expected);
    assert_eq!(
        report["dimensions"],
        json!({
            "n_layers": 5, "hidden_size": 256, "intermediate_size": 768, "n_heads": 8, "n_kv_heads": 2, "head_dim": 64,
            "vocab_size": 4096, "rope_theta": 1_000_000.0, "rms_norm_eps": serde_json::from_str::<Value>("0.000001").unwrap(),
            "max_position_embeddings": 2048, "tie_word_embeddings": true,
        })
    );
    assert_eq!((&report["id"], &report["registered"]), (&"kipp-tiny".into(), &"registered".into()));
    assert_eq!((&report["architecture"], &report["parameters"]), (&"qwen3".into(), &5_639_552.into()));
    assert_eq!(report["rope"], json!({"theta": 1_000_000.0, "scaling": null}));
    assert_eq!(report["tokenizer"], json!({"tokens": 4026, "added": 26}));
    assert_eq!(report["schemes"]["token_embd.weight"], "bf16");
    assert!(report["chat_template"].as_str().unwrap().contains("<|im_start|>"));
    assert_eq!(keys(&report["file"]), ["kind", "path", "bytes"]);
    assert!(report["source"].is_null());
}

#[test]
fn a_folder_names_its_own_tensors() {
    let report = show(&["show", "models/kipp-tiny", "--json"]);
    assert_eq!(report["schemes"]["model.embed_tokens.weight"], "bf16");
    assert_eq!(
        (&report["file"]["kind"], &report["file"]["path"]),
        (&"huggingface".into(), &"models/kipp-tiny".into())
    );
    assert_eq!(report["registered"], "registered");
}

#[test]
fn a_model_without_tokenizer_files_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(crate::root().join("models/kipp-tiny").join(name), folder.path().join(name)).unwrap();
    }
    let report = show(&["show", folder.path().to_str().unwrap(), "--json"]);
    assert!(report["tokenizer"].is_null() && report["chat_template"].is_null());
}

#[test]
fn the_table_is_for_people() {
    let table = stdout(&["show"]);
    for row in ["model", "kipp-tiny (registered)", "head_dim", "chat template", "token_embd.weight"] {
        assert!(table.contains(row), "{row}");
    }
}
