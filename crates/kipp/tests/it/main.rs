//! The library's integration tests: one binary, one module a subject.

mod sampling;
mod tokenizer;
