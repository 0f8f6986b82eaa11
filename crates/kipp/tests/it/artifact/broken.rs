//! Valid files that were cut, changed or are incomplete: refused when opened, never later, never by a panic.

use std::path::Path;
use std::sync::LazyLock;

use kipp::Scheme;
use kipp::artifact::gguf::GgufError;
use kipp::artifact::gguf::writer::MetadataValue as Value;
use kipp::artifact::safetensors::{SafetensorsError, SafetensorsFile};
use kipp::artifact::{Artifact, ArtifactError, Bytes};
use proptest::prelude::*;

use super::build;

#[test]
fn h11_a_gguf_file_cut_anywhere_is_refused() {
    let file = build::valid_gguf();
    assert!(Artifact::from_vec(file.clone()).is_ok());
    let data_bytes: usize = build::weights(false).iter().map(|weight| weight.values.len() * 2).sum();
    let header_bytes = file.len() - data_bytes;
    for length in (0..header_bytes).chain([file.len() - 1, file.len() - 33]) {
        assert!(Artifact::from_vec(file[..length].to_vec()).is_err(), "cut at {length}");
    }
}

#[test]
fn h11_a_safetensors_file_cut_anywhere_is_refused() {
    let file = build::safetensors(&build::weights(false));
    let parse = |length: usize| SafetensorsFile::parse(Bytes::from(file[..length].to_vec()));
    assert!(parse(file.len()).is_ok());
    let header_bytes = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    for length in (0..=header_bytes).chain([file.len() - 1]) {
        assert!(parse(length).is_err(), "cut at {length}");
    }
}

/// Uses everything that an artifact offers without knowing what is in it.
fn use_all(artifact: &Artifact) {
    let weights = artifact.weights();
    let mut row = vec![0.0; weights.embedding.cols];
    weights.embedding.decode_row(weights.embedding.rows - 1, &mut row);
    let _ = (artifact.check_finite(), artifact.tokenizer_source(), artifact.warnings(), artifact.id());
    let _ = (artifact.parameters(), artifact.scheme(), artifact.stop_tokens(), artifact.chat_template());
}

static GGUF: LazyLock<Vec<u8>> = LazyLock::new(build::valid_gguf);
static SAFETENSORS: LazyLock<Vec<u8>> = LazyLock::new(|| build::safetensors(&build::weights(false)));

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_gguf_files_never_panic(changes in prop::collection::vec((0usize..2600, any::<u8>()), 1..4)) {
        let mut file = GGUF.clone();
        for (at, value) in changes {
            file[at] = value;
        }
        if let Ok(artifact) = Artifact::from_vec(file) {
            use_all(&artifact);
        }
    }

    #[test]
    fn changed_safetensors_files_never_panic(changes in prop::collection::vec((0usize..2200, any::<u8>()), 1..4)) {
        let mut file = SAFETENSORS.clone();
        for (at, value) in changes {
            file[at] = value;
        }
        let _ = SafetensorsFile::parse(Bytes::from(file));
    }
}

fn write_parts(folder: &Path, second_says: u32) {
    let weights = build::weights(false);
    let (first, second) = weights.split_at(9);
    let entry = |key: &str, value: u32| (key.to_owned(), Value::U32(value));
    let numbers = |part: u32| {
        vec![
            entry("split.no", part),
            entry("split.count", 2),
            entry("split.tensors.count", weights.len() as u32),
        ]
    };
    let metadata = [build::metadata(), numbers(0)].concat();
    std::fs::write(folder.join("m-00001-of-00002.gguf"), build::gguf(&metadata, first, Scheme::Q8_0))
        .unwrap();
    let metadata = numbers(second_says);
    std::fs::write(folder.join("m-00002-of-00002.gguf"), build::gguf(&metadata, second, Scheme::Q8_0))
        .unwrap();
}

#[test]
fn a_gguf_file_in_parts_opens_by_its_first() {
    let folder = tempfile::tempdir().unwrap();
    write_parts(folder.path(), 1);
    let first = folder.path().join("m-00001-of-00002.gguf");
    let artifact = Artifact::open(&first).unwrap();
    let whole =
        Artifact::from_vec(build::gguf(&build::metadata(), &build::weights(false), Scheme::Q8_0)).unwrap();
    for (a, b) in artifact.weights().matrices().zip(whole.weights().matrices()) {
        assert_eq!((a.name, a.bytes), (b.name, b.bytes));
    }
    let second = folder.path().join("m-00002-of-00002.gguf");
    let error = Artifact::open(&second).unwrap_err();
    assert!(matches!(error, ArtifactError::Gguf { error: GgufError::Split { part: 2, .. }, .. }), "{error}");

    write_parts(folder.path(), 0);
    let error = Artifact::open(&first).unwrap_err();
    assert!(matches!(&error, ArtifactError::Gguf { path, .. } if *path == second), "{error}");
    std::fs::remove_file(&second).unwrap();
    let error = Artifact::open(&first).unwrap_err();
    assert!(matches!(&error, ArtifactError::Io { path, .. } if *path == second), "{error}");
}

fn write_shards(folder: &Path, map: &[(usize, &str)]) {
    let weights = build::weights(false);
    build::write_folder(folder, &build::config(true), &weights);
    std::fs::remove_file(folder.join("model.safetensors")).unwrap();
    let (first, second) = weights.split_at(9);
    std::fs::write(folder.join("a.safetensors"), build::safetensors(first)).unwrap();
    std::fs::write(folder.join("b.safetensors"), build::safetensors(second)).unwrap();
    let shard = |index: usize| {
        let moved = map.iter().find(|(at, _)| *at == index).map(|(_, shard)| *shard);
        moved.unwrap_or(if index < 9 { "a.safetensors" } else { "b.safetensors" })
    };
    let entries: Vec<String> = weights
        .iter()
        .enumerate()
        .filter(|(index, _)| !shard(*index).is_empty())
        .map(|(index, weight)| format!(r#""{}": "{}""#, weight.hugging_face, shard(index)))
        .collect();
    let index = format!(r#"{{"metadata": {{}}, "weight_map": {{{}}}}}"#, entries.join(","));
    std::fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
}

#[test]
fn a_folder_of_shards_opens_by_its_index_and_the_two_must_agree() {
    let folder = tempfile::tempdir().unwrap();
    let open = |map: &[(usize, &str)]| {
        write_shards(folder.path(), map);
        match Artifact::open(folder.path()) {
            Err(ArtifactError::Safetensors { error, .. }) => Err(error),
            result => Ok(result.unwrap()),
        }
    };
    assert_eq!(open(&[]).unwrap().weights().layers.len(), build::LAYERS);
    assert!(matches!(open(&[(3, "b.safetensors")]), Err(SafetensorsError::NotInIndex { .. })));
    assert!(matches!(open(&[(12, "")]), Err(SafetensorsError::NotInIndex { .. })));
    for shard in ["../a.safetensors", "/etc/passwd", "x/a.safetensors", ".safetensors", "a.bin"] {
        assert!(matches!(open(&[(3, shard)]), Err(SafetensorsError::ShardName { .. })), "{shard}");
    }
    std::fs::remove_file(folder.path().join("model.safetensors.index.json")).unwrap();
    assert!(matches!(Artifact::open(folder.path()), Err(ArtifactError::NotAModel { .. })));
}

#[test]
fn what_is_no_model_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Artifact::open(folder.path()), Err(ArtifactError::NotAModel { .. })));
    assert!(matches!(Artifact::open(folder.path().join("absent.gguf")), Err(ArtifactError::Io { .. })));
    let weights = folder.path().join("model.safetensors");
    std::fs::write(&weights, b"").unwrap();
    assert!(matches!(Artifact::open(&weights), Err(ArtifactError::NotAModel { .. })));
    #[cfg(unix)]
    assert!(matches!(Artifact::open("/dev/zero"), Err(ArtifactError::Io { .. })));
}
