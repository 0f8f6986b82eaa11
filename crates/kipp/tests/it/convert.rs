//! Converting: what is written opens again with the same weights, and the same source gives the same bytes.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use kipp::Scheme;
use kipp::artifact::{Artifact, Registration, sha256_file};
use kipp::convert::{ConvertError, ConvertOptions, Converted, convert};

fn kipp_tiny() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/kipp-tiny")
}

fn write(source: &Artifact, scheme: Scheme, out: &Path) -> Result<Converted, ConvertError> {
    convert(source, ConvertOptions { scheme, head: None }, out, &mut |_, _| ControlFlow::Continue(()))
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
