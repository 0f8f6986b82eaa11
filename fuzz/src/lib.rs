//! Fuzz bodies: plain functions from bytes, run over their corpora by `cargo test` and explored by libFuzzer.

pub mod template;
pub mod tokenizer;
