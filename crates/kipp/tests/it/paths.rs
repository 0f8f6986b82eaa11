//! Where the test data lies, and how it is read.

use std::path::PathBuf;

pub(crate) fn repository(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

pub(crate) fn read_u32(path: &str) -> Vec<u32> {
    let bytes = std::fs::read(repository(path)).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

pub(crate) fn read_f32(path: &str) -> Vec<f32> {
    read_u32(path).into_iter().map(f32::from_bits).collect()
}

/// The random checkpoints of odd shapes under `testdata/odd`.
pub(crate) const ODD: [&str; 7] =
    ["long", "no-group-of-32", "one-layer", "tied-5-over-1", "untied-10-over-2", "yarn", "yarn-parameters"];
