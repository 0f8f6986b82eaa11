//! Which keys and tensors a model needs, and what happens when one is absent, surplus or of another shape.

use kipp::Scheme;
use kipp::artifact::gguf::GgufError;
use kipp::artifact::gguf::writer::MetadataValue as Value;
use kipp::artifact::huggingface::ConfigError;
use kipp::artifact::{Artifact, ArtifactError, BindingError, TokenizerSource};
use kipp::spec::Yarn;
use kipp::tokenizer::TokenKind;

use super::build::{self, Weight};

fn open(metadata: &[(String, Value)], weights: &[Weight], scheme: Scheme) -> Result<Artifact, ArtifactError> {
    Artifact::from_vec(build::gguf(metadata, weights, scheme))
}

fn without(key: &str) -> Vec<(String, Value)> {
    build::metadata().into_iter().filter(|(k, _)| k != key).collect()
}

fn with(key: &str, value: Value) -> Vec<(String, Value)> {
    let mut metadata = without(key);
    metadata.push((key.to_owned(), value));
    metadata
}

fn open_folder(config: &[String], weights: &[Weight]) -> Result<Artifact, ArtifactError> {
    let folder = tempfile::tempdir().unwrap();
    build::write_folder(folder.path(), config, weights);
    Artifact::open(folder.path()) // stays mapped after the folder is gone
}

fn binding_error(result: Result<Artifact, ArtifactError>) -> BindingError {
    match result {
        Err(ArtifactError::Binding { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_scheme_that_is_written_opens_and_decodes_what_was_written() {
    for &scheme in Scheme::ALL.iter().filter(|scheme| scheme.converts() || scheme.is_dense()) {
        let artifact = open(&build::metadata(), &build::weights(true), scheme).unwrap();
        assert_eq!(artifact.scheme(), scheme);
        artifact.check_finite().unwrap();
        let weights = artifact.weights();
        let head = weights.head.unwrap();
        let (mut first, mut last) = (vec![0.0; build::HIDDEN], vec![0.0; build::HIDDEN]);
        weights.embedding.decode_row(0, &mut first);
        head.decode_row(build::VOCAB - 1, &mut last);
        assert_eq!(first, last, "{}", scheme.name());
        assert_eq!(weights.final_norm.decode(), build::weights(false).last().unwrap().values);
    }
}

#[test]
fn absent_keys_that_change_the_numbers_are_refused_by_name() {
    for key in [
        "general.architecture",
        "qwen3.block_count",
        "qwen3.context_length",
        "qwen3.embedding_length",
        "qwen3.feed_forward_length",
        "qwen3.attention.head_count",
        "qwen3.rope.freq_base",
        "qwen3.attention.layer_norm_rms_epsilon",
    ] {
        match open(&without(key), &build::weights(false), Scheme::Bf16) {
            Err(ArtifactError::Gguf { error: GgufError::MissingKey { key: found }, .. }) => {
                assert_eq!(&found, key);
            }
            other => panic!("{key}: {other:?}"),
        }
    }
    for line in build::config(true).iter().skip(1).take(11) {
        let config: Vec<String> = build::config(true).into_iter().filter(|other| other != line).collect();
        let key = line.split('"').nth(1).unwrap();
        match open_folder(&config, &build::weights(false)) {
            Err(ArtifactError::Config { error: ConfigError::MissingKey { key: found }, .. }) => {
                assert_eq!(&found, key);
            }
            Ok(_) if key == "model_type" => {} // the architecture says it
            other => panic!("{key}: {other:?}"),
        }
    }
}

#[test]
fn the_formats_own_defaults_hold() {
    // Key and value length: the embedding shared out among the heads, here 16 instead of 32.
    let shared: Vec<_> = without("qwen3.attention.key_length")
        .into_iter()
        .filter(|(key, _)| key != "qwen3.attention.value_length")
        .collect();
    let error = binding_error(open(&shared, &build::weights(false), Scheme::Bf16));
    let BindingError::Shape { tensor, expected, .. } = error else { panic!() };
    assert_eq!((tensor.to_string().as_str(), expected), ("blk.0.attn_q.weight", vec![64, 64]));
    // Key and value heads: as many as query heads.
    let error =
        binding_error(open(&without("qwen3.attention.head_count_kv"), &build::weights(false), Scheme::Bf16));
    let BindingError::Shape { tensor, expected, .. } = error else { panic!() };
    assert_eq!((tensor.to_string().as_str(), expected), ("blk.0.attn_k.weight", vec![128, 64]));
    // Token types: normal.
    let artifact = open(&without("tokenizer.ggml.token_type"), &build::weights(false), Scheme::Bf16).unwrap();
    let TokenizerSource::Gguf(vocabulary) = artifact.tokenizer_source().unwrap() else { panic!() };
    assert!(vocabulary.kinds.iter().all(|kind| *kind == TokenKind::Normal));
    // Untied, so a head is needed.
    let config: Vec<String> =
        build::config(true).into_iter().filter(|line| !line.contains("tie_word")).collect();
    let error = binding_error(open_folder(&config, &build::weights(false)));
    assert_eq!(error, BindingError::Missing { tensor: "lm_head.weight".into() });
}

#[test]
fn a_type_that_is_not_read_is_refused_with_those_that_are() {
    let mut file = build::valid_gguf();
    let name = b"output_norm.weight";
    let at = file.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    // Dimension count, one dimension, then the type: i32, as large as the f32 that is there.
    file[at + 12..at + 16].copy_from_slice(&26u32.to_le_bytes());
    let error = binding_error(Artifact::from_vec(file)).to_string();
    assert!(error.contains("the type i32 is not supported here (f32, f16, bf16)"), "{error}");
}

#[test]
fn missing_extra_and_misshapen_tensors_are_refused_by_name() {
    let all = build::weights(false);
    for absent in 0..all.len() {
        let mut weights = all.clone();
        let removed = weights.remove(absent);
        let error = binding_error(open(&build::metadata(), &weights, Scheme::Bf16));
        assert_eq!(error, BindingError::Missing { tensor: removed.gguf.as_str().into() });
        let error = binding_error(open_folder(&build::config(true), &weights));
        assert_eq!(error, BindingError::Missing { tensor: removed.hugging_face.as_str().into() });

        let mut weights = all.clone();
        weights[absent].shape[0] += 1;
        let added = weights[absent].shape[1..].iter().product::<usize>();
        weights[absent].values.extend(vec![0.0; added]);
        // A longer embedding is a larger vocabulary in one format, and contradicts config.json in the other.
        if absent > 0 {
            let error = binding_error(open(&build::metadata(), &weights, Scheme::Bf16));
            assert!(matches!(error, BindingError::Shape { .. }), "{error}");
        }
        let error = binding_error(open_folder(&build::config(true), &weights));
        assert!(matches!(error, BindingError::Shape { .. }), "{error}");
    }
    let mut weights = all;
    let name = String::from("blk.0.attn_q.bias\u{1b}");
    weights.push(Weight {
        gguf: name.clone(),
        hugging_face: name.replace('\u{1b}', ""),
        shape: vec![2],
        values: vec![0.0; 2],
    });
    let error = binding_error(open(&build::metadata(), &weights, Scheme::Bf16));
    assert_eq!(error.to_string(), "the tensor blk.0.attn_q.bias\\u{1b} is none of the model's");
    let error = binding_error(open_folder(&build::config(true), &weights));
    assert!(matches!(error, BindingError::Extra { .. }), "{error}");
}

#[test]
fn tensors_without_weights_are_passed_over_with_a_warning() {
    let mut weights = build::weights(false);
    let empty = |name: &str, shape: &[usize], values: &[f32]| Weight {
        gguf: name.into(),
        hugging_face: name.into(),
        shape: shape.to_vec(),
        values: values.to_vec(),
    };
    weights.push(empty("empty", &[0, 5], &[]));
    weights.push(empty("scalar", &[], &[1.0]));
    let artifact = open_folder(&build::config(true), &weights).unwrap();
    assert_eq!(artifact.warnings().len(), 2);
    assert_eq!(artifact.tensors().count(), build::weights(false).len());
}

#[test]
fn h15_tied_and_untied_heads_are_not_mixed_up() {
    let (tied, untied) = (build::weights(false), build::weights(true));
    // Folder: (a) tied and no head, (b) untied and a head, (c) untied without, (d) tied with a differing head.
    assert!(open_folder(&build::config(true), &tied).unwrap().weights().head.is_none());
    assert_eq!(
        open_folder(&build::config(false), &untied).unwrap().weights().head.unwrap().name,
        "lm_head.weight"
    );
    let error = binding_error(open_folder(&build::config(false), &tied));
    assert_eq!(error, BindingError::Missing { tensor: "lm_head.weight".into() });
    let both = open_folder(&build::config(true), &untied).unwrap();
    assert!(both.weights().head.is_none());
    assert!(both.warnings()[0].contains("lm_head.weight differs"), "{:?}", both.warnings());
    assert_eq!(both.parameters(), open_folder(&build::config(true), &tied).unwrap().parameters());
    // The same head twice is what some checkpoints carry: nothing to warn of.
    let mut copied = untied.clone();
    copied.last_mut().unwrap().values = tied[0].values.clone();
    assert!(open_folder(&build::config(true), &copied).unwrap().warnings().is_empty());
    // GGUF: an absent head means tied, also when the embedding is quantized.
    for scheme in [Scheme::Bf16, Scheme::Q8_0] {
        let artifact = open(&build::metadata(), &tied, scheme).unwrap();
        assert!(artifact.spec().tie_word_embeddings && artifact.weights().head.is_none());
        let artifact = open(&build::metadata(), &untied, scheme).unwrap();
        assert!(!artifact.spec().tie_word_embeddings && artifact.weights().head.is_some());
    }
}

#[test]
fn h14_non_finite_scales_are_found_and_named() {
    let mut file = build::gguf(&build::metadata(), &build::weights(false), Scheme::Q8_0);
    let artifact = Artifact::from_vec(file.clone()).unwrap();
    artifact.check_finite().unwrap();
    let target = artifact.weights().layers[1].up;
    let at = file.windows(target.bytes.len()).position(|window| window == target.bytes).unwrap();
    // The scale of the second group of the fourth row becomes infinite.
    let group = at + 3 * target.row(0).len() + Scheme::Q8_0.group_bytes();
    file[group..group + 2].copy_from_slice(&0x7c00u16.to_le_bytes());
    let artifact = Artifact::from_vec(file).unwrap();
    let Err(ArtifactError::Binding { error: BindingError::NotFinite { tensor, index }, .. }) =
        artifact.check_finite()
    else {
        panic!()
    };
    assert_eq!(tensor.to_string(), artifact.weights().layers[1].up.name);
    assert!((3 * 64 + 32..4 * 64).contains(&index), "{index}");
}

#[test]
fn h30_no_beginning_of_text_is_ever_invented() {
    let ids = |metadata: &[(String, Value)]| {
        open(metadata, &build::weights(false), Scheme::Bf16).unwrap().special_ids()
    };
    let none = ids(&build::metadata());
    assert_eq!((none.bos, none.add_bos_token, none.eos), (None, false, Some(7)));
    let bos = ids(&with("tokenizer.ggml.bos_token_id", Value::U32(3)));
    assert_eq!((bos.bos, bos.add_bos_token), (Some(3), false));
    let flag = ids(&with("tokenizer.ggml.add_bos_token", Value::Bool(false)));
    assert_eq!((flag.bos, flag.add_bos_token), (None, false));
}

#[test]
fn the_splitting_rule_is_never_guessed_and_weights_need_no_tokenizer() {
    let weights = build::weights(false);
    let source = |metadata: &[(String, Value)]| {
        let artifact = open(metadata, &weights, Scheme::Bf16).unwrap();
        artifact.tokenizer_source().map(drop).unwrap_err().to_string()
    };
    assert!(source(&without("tokenizer.ggml.pre")).contains("tokenizer.ggml.pre is absent"));
    assert!(source(&with("tokenizer.ggml.pre", Value::String("llama-bpe".into()))).contains("llama-bpe"));
    assert!(source(&with("tokenizer.ggml.model", Value::String("llama".into()))).contains("llama"));
    assert!(source(&without("tokenizer.ggml.merges")).contains("tokenizer.ggml.merges"));
    let short = Value::I32s(vec![1; 3]);
    assert!(source(&with("tokenizer.ggml.token_type", short)).contains("3 items for 40 tokens"));
    for kind in [0, 2, 6, -1] {
        let kinds = Value::I32s([vec![1; 39], vec![kind]].concat());
        let error = source(&with("tokenizer.ggml.token_type", kinds));
        assert!(error.contains(&format!("item 39 is {kind}")), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    build::write_folder(folder.path(), &build::config(true), &weights);
    let artifact = Artifact::open(folder.path()).unwrap();
    assert!(artifact.tokenizer_source().unwrap_err().to_string().contains("tokenizer.json"));
}

#[test]
fn settings_that_change_the_numbers_are_read_or_refused_never_ignored() {
    let weights = build::weights(false);
    let yarn = [
        ("qwen3.rope.scaling.type".to_owned(), Value::String("yarn".into())),
        ("qwen3.rope.scaling.factor".to_owned(), Value::F32(4.0)),
        ("qwen3.rope.scaling.original_context_length".to_owned(), Value::U32(128)),
    ];
    let metadata = [build::metadata(), yarn.to_vec()].concat();
    let artifact = open(&metadata, &weights, Scheme::Bf16).unwrap();
    assert_eq!(artifact.spec().rope_scaling, Some(Yarn::new(4.0, 128)));
    for (key, value) in [
        ("qwen3.rope.scaling.type", Value::String("linear".into())),
        ("qwen3.rope.scaling.type", Value::String("longrope".into())),
        ("qwen3.rope.scaling.factor", Value::F32(4.0)),
        ("qwen3.rope.scale_linear", Value::F32(2.0)),
        ("qwen3.attention.sliding_window", Value::U32(4096)),
        ("qwen3.attention.causal", Value::Bool(false)),
        ("qwen3.attention.scale", Value::F32(0.5)),
        ("qwen3.logit_scale", Value::F32(0.5)),
        ("qwen3.attn_logit_softcapping", Value::F32(50.0)),
        ("qwen3.final_logit_softcapping", Value::F32(30.0)),
    ] {
        let result = open(&with(key, value), &weights, Scheme::Bf16);
        assert!(matches!(result, Err(ArtifactError::Gguf { .. })), "{key}: {result:?}");
    }
}
