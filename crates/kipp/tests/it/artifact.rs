//! Opening models: the demonstration model, folders and files that tests write.

mod binding;
mod broken;
pub(crate) mod build;
mod cases;
mod hostile;
mod raw;

use std::path::PathBuf;

use kipp::Scheme;
use kipp::artifact::{Artifact, FileKind, Registration, TokenizerSource};

fn kipp_tiny() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/kipp-tiny")
}

#[test]
fn the_demonstration_folder_opens_whole() {
    let artifact = Artifact::open(kipp_tiny()).unwrap();
    let spec = artifact.spec();
    assert_eq!((spec.n_layers, spec.n_heads, spec.n_kv_heads, spec.head_dim), (5, 8, 2, 64));
    assert_eq!(artifact.file().kind, FileKind::HuggingFace);
    assert_eq!(artifact.scheme(), Scheme::Bf16);
    assert_eq!(artifact.stop_tokens(), [4002, 4000]);
    assert_eq!(artifact.generation().top_k, Some(20));
    assert!(artifact.chat_template().unwrap().contains("<|im_start|>"));
    assert!(artifact.warnings().is_empty());
    assert!(matches!(artifact.tokenizer_source().unwrap(), TokenizerSource::Json(_)));
    let Registration::Registered(checkpoint) = artifact.registration() else { panic!() };
    assert_eq!(checkpoint.spec(), *spec);
    assert_eq!(artifact.id(), "kipp-tiny");

    let weights = artifact.weights();
    assert_eq!((weights.layers.len(), weights.head.is_none()), (5, true));
    assert_eq!(weights.layers[4].down.name, "model.layers.4.mlp.down_proj.weight");
    artifact.check_finite().unwrap();
    let mut row = vec![0.0; 256];
    weights.embedding.decode_row(4095, &mut row);
    assert!(row.iter().all(|value| value.is_finite()));
    assert_eq!(weights.layers[0].q_norm.decode().len(), 64);
    assert_eq!(artifact.parameters(), 5_639_552);
}
