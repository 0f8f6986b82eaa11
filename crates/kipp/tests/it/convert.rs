//! Converting: what is written opens again with the same weights, and the same source gives the same bytes.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use kipp::Scheme;
use kipp::artifact::{
    Artifact, ArtifactError, Registration, TokenizerFilesError, TokenizerSource, sha256_file,
};
use kipp::convert::{ConvertError, ConvertOptions, Converted, WRITTEN_SCHEMES, check_destination, convert};
use kipp::tokenizer::TokenizerError;

use super::artifact::build;
use super::paths::{ODD, repository};

fn kipp_tiny() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/kipp-tiny")
}

/// The bytes that a source converts to.
fn bytes(source: &Artifact, scheme: Scheme) -> Result<(Vec<u8>, Converted), ConvertError> {
    let (mut out, options) = (Vec::new(), ConvertOptions { scheme, head: None });
    let converted = convert(source, options, &mut out, &mut |_, _| ControlFlow::Continue(()))?;
    assert_eq!(converted.bytes, out.len() as u64);
    Ok((out, converted))
}

fn write(source: &Artifact, scheme: Scheme, out: &Path) -> Result<Converted, ConvertError> {
    let (bytes, converted) = bytes(source, scheme)?;
    std::fs::write(out, bytes).unwrap();
    Ok(converted)
}

/// The one command that makes the embedded model anew:
/// `cargo test -p kipp --test it -- --ignored regenerate_kipp_tiny`. Its sha256 then goes into `checkpoints.rs`.
#[test]
#[ignore = "writes models/kipp-tiny/kipp-tiny.gguf"]
fn regenerate_kipp_tiny() {
    let folder = Artifact::open(kipp_tiny()).unwrap();
    let out = kipp_tiny().join("kipp-tiny.gguf");
    write(&folder, Scheme::Bf16, &out).unwrap();
    println!("{}", sha256_file(&out).unwrap());
}

#[test]
fn the_embedded_model_is_what_the_folder_converts_to() {
    let committed = kipp_tiny().join("kipp-tiny.gguf");
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("again.gguf");
    write(&Artifact::open(kipp_tiny()).unwrap(), Scheme::Bf16, &path).unwrap();
    assert_eq!(sha256_file(&path).unwrap(), sha256_file(&committed).unwrap());
    let Registration::Registered(checkpoint) = Artifact::open(committed).unwrap().registration() else {
        panic!("the file's sha256 does not stand in the registry");
    };
    assert_eq!(checkpoint.id, "kipp-tiny");
}

#[test]
fn quantized_files_hold_the_rounded_weights_whatever_the_number_of_threads() {
    let source = Artifact::open(kipp_tiny().join("kipp-tiny.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for scheme in [Scheme::F16, Scheme::Q8_0, Scheme::Q4_0, Scheme::Q4_1] {
        let out = folder.path().join(scheme.name());
        let again = folder.path().join("again");
        write(&source, scheme, &out).unwrap();
        let pool = rayon_pool();
        pool.install(|| write(&source, scheme, &again)).unwrap();
        assert_eq!(sha256_file(&out).unwrap(), sha256_file(&again).unwrap(), "{}", scheme.name());

        let written = Artifact::open(&out).unwrap();
        written.check_finite().unwrap();
        let head = if scheme.is_dense() { scheme } else { Scheme::Q8_0 };
        assert_eq!((written.scheme(), written.weights().embedding.scheme), (scheme, head));
        assert_eq!(written.spec(), source.spec());
        assert_eq!(written.generation(), source.generation());
        assert_eq!(written.stop_tokens(), source.stop_tokens());
        assert_eq!(written.chat_template(), source.chat_template());
        assert_eq!(written.special_ids(), source.special_ids());
        assert_eq!(written.registration(), Registration::Unregistered);
        for (a, b) in written.weights().vectors().zip(source.weights().vectors()) {
            assert_eq!(a.decode(), b.decode());
        }
        for (a, b) in written.weights().matrices().zip(source.weights().matrices()) {
            let (mut values, mut row) = (vec![0.0; b.cols], vec![0; a.row(0).len()]);
            b.decode_row(b.rows - 1, &mut values);
            a.scheme.encode_row(&values, &mut row).unwrap();
            assert_eq!(a.row(a.rows - 1), row, "{}", a.name);
        }
    }
}

/// One thread, where the other run had as many as there are cores.
fn rayon_pool() -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap()
}

#[test]
fn the_folders_tokenizer_becomes_the_files_vocabulary() {
    let gguf = Artifact::open(kipp_tiny().join("kipp-tiny.gguf")).unwrap();
    let TokenizerSource::Gguf(vocabulary) = gguf.tokenizer_source().unwrap() else { panic!() };
    assert_eq!(
        (vocabulary.tokens.len(), vocabulary.merges.len(), vocabulary.pre.as_str()),
        (4096, 3744, "qwen2")
    );
    assert_eq!(vocabulary.tokens[4002], "<|im_end|>");
    assert_eq!(vocabulary.tokens[4095], "[PAD4095]");
    let folder = Artifact::open(kipp_tiny()).unwrap();
    assert_eq!(gguf.chat_template(), folder.chat_template());
    assert_eq!(gguf.generation(), folder.generation());
    assert_eq!(gguf.spec(), folder.spec());
    assert_eq!(gguf.special_ids().eos, Some(4002));
    assert!(!gguf.special_ids().add_bos_token);
}

#[test]
fn rows_that_are_no_whole_number_of_groups_stay_dense_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    build::write_folder(&source, &build::config(false), &build::weights(true));
    let out = folder.path().join("out.gguf");
    let converted = write(&Artifact::open(&source).unwrap(), Scheme::Q4_0, &out).unwrap();
    let expected: Vec<(String, Scheme)> =
        (0..build::LAYERS).map(|i| (format!("blk.{i}.ffn_down.weight"), Scheme::Bf16)).collect();
    assert_eq!(converted.kept_dense, expected);
    assert!(!converted.has_tokenizer);
    let written = Artifact::open(&out).unwrap();
    assert!(!written.spec().tie_word_embeddings);
    assert_eq!(written.weights().head.unwrap().scheme, Scheme::Q8_0);
    let error = written.tokenizer_source().unwrap_err();
    assert!(
        matches!(error, ArtifactError::Tokenizer { error: TokenizerFilesError::Absent { .. }, .. }),
        "{error}"
    );
}

#[test]
fn h14_a_weight_that_is_not_finite_is_refused_by_tensor_and_index() {
    for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        build::write_folder(&source, &build::config(true), &build::weights(false));
        // The second weight of the final norm, which ends the file.
        let path = source.join("model.safetensors");
        let mut weights = std::fs::read(&path).unwrap();
        let at = weights.len() - 2 * (build::HIDDEN - 1);
        weights[at..at + 2].copy_from_slice(&((poison.to_bits() >> 16) as u16).to_le_bytes());
        std::fs::write(&path, weights).unwrap();
        let artifact = Artifact::open(&source).unwrap();
        let error = bytes(&artifact, Scheme::Q8_0).unwrap_err();
        let ConvertError::NotFinite { tensor, index, .. } = error else { panic!("{error}") };
        assert_eq!((tensor.to_string().as_str(), index), ("model.norm.weight", 1));
    }
}

#[test]
fn a_conversion_stops_where_it_is_told_to_and_where_nothing_more_can_be_written() {
    let source = Artifact::open(kipp_tiny()).unwrap();
    let options = ConvertOptions { scheme: Scheme::Q8_0, head: None };
    let mut last = (0, 0);
    let result = convert(&source, options, &mut Vec::new(), &mut |done, total| {
        last = (done, total);
        if done > total / 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(result, Err(ConvertError::Stopped)));
    assert!(last.0 > 0 && last.0 <= last.1);

    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let result = convert(&source, options, &mut Full, &mut |_, _| ControlFlow::Continue(()));
    let Err(ConvertError::Write(error)) = result else { panic!("{result:?}") };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_source_is_never_its_own_output_and_read_only_schemes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    std::fs::write(&path, build::valid_gguf()).unwrap();
    let source = Artifact::open(&path).unwrap();
    let roundabout = folder.path().join("../").join(folder.path().file_name().unwrap()).join("m.gguf");
    for own in [&path, &roundabout] {
        assert!(matches!(check_destination(&source, own), Err(ConvertError::OverSource(_))));
    }
    check_destination(&source, &folder.path().join("n.gguf")).unwrap();
    assert!(matches!(bytes(&source, Scheme::Q6K), Err(ConvertError::ReadOnly(Scheme::Q6K))));
    assert_eq!(WRITTEN_SCHEMES.len(), 5);
}

/// A tokenizer that `run` refuses must not get into a file.
#[test]
fn what_no_tokenizer_can_be_built_of_is_not_converted() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(kipp_tiny().join(name), folder.path().join(name)).unwrap();
    }
    let json = std::fs::read(kipp_tiny().join("tokenizer.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    json["added_tokens"][0]["lstrip"] = true.into();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    let result = bytes(&Artifact::open(folder.path()).unwrap(), Scheme::Bf16);
    let Err(ConvertError::Tokenizer { path, error }) = result else { panic!("{result:?}") };
    assert_eq!(path, folder.path());
    assert!(matches!(error, TokenizerError::UnsupportedFlag { flag: "lstrip", .. }), "{error}");
    // The vocabulary of this file is made up of words, without a token for each byte.
    let result = bytes(&Artifact::from_vec(build::valid_gguf()).unwrap(), Scheme::Bf16);
    assert!(matches!(result, Err(ConvertError::Tokenizer { .. })), "{result:?}");
}

/// Whatever the dimensions: the file binds again, and only rows that are no whole number of groups stay dense.
#[test]
fn odd_shapes_convert_to_every_quantized_scheme() {
    for name in ODD {
        let source = Artifact::open(repository(&format!("testdata/odd/{name}"))).unwrap();
        for scheme in [Scheme::Q8_0, Scheme::Q4_0, Scheme::Q4_1] {
            let (file, converted) = bytes(&source, scheme).unwrap();
            let written = Artifact::from_vec(file).unwrap();
            written.check_finite().unwrap();
            assert_eq!(written.spec(), source.spec(), "{name}");
            let mut dense = Vec::new();
            for (matrix, original) in written.weights().matrices().zip(source.weights().matrices()) {
                assert_eq!((matrix.rows, matrix.cols), (original.rows, original.cols), "{name}");
                let wanted = if original.cols == source.spec().hidden_size
                    && original.rows == source.spec().vocab_size
                {
                    Scheme::Q8_0
                } else {
                    scheme
                };
                if matrix.cols % wanted.group_len() == 0 {
                    assert_eq!(matrix.scheme, wanted, "{name}, {}", matrix.name);
                } else {
                    assert_eq!(matrix.scheme, Scheme::Bf16, "{name}, {}", matrix.name);
                    dense.push((matrix.name.to_owned(), Scheme::Bf16));
                }
            }
            let mut kept = converted.kept_dense;
            kept.sort_by(|a, b| a.0.cmp(&b.0));
            dense.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(kept, dense, "{name}");
            assert_eq!(!dense.is_empty(), name == "no-group-of-32", "{name}");
        }
    }
}

#[test]
fn rope_scaling_and_the_source_travel_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let source =
        folder.path().join("models--Qwen--Qwen3-0.6B/snapshots/c1899de289a04d12100db370d81485cdf75e47ca");
    let mut config = build::config(true);
    config.push(
        r#""rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5, "beta_fast": 16}"#
            .into(),
    );
    build::write_folder(&source, &config, &build::weights(false));
    let opened = Artifact::open(&source).unwrap();
    let out = folder.path().join("out.gguf");
    write(&opened, Scheme::Bf16, &out).unwrap();
    let written = Artifact::open(&out).unwrap();
    let (a, b) = (opened.spec().rope_scaling.clone().unwrap(), written.spec().rope_scaling.clone().unwrap());
    assert!((a.attention_factor - b.attention_factor).abs() < 1e-6);
    assert_eq!((a.factor, a.beta_fast, a.original_max_position_embeddings), (b.factor, b.beta_fast, 512));
    assert_eq!(written.source(), opened.source());
    // Neither is the checkpoint that its place or its keys name: the dimensions are others.
    assert_eq!(opened.registration(), Registration::Unregistered);
    assert_eq!(written.registration(), Registration::Unregistered);
}
