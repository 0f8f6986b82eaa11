//! Fuzz bodies.

pub mod tokenizer;
