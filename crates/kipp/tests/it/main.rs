//! The library's integration tests: one binary, one module a subject.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "the whole crate is tests")]

mod artifact;
mod chat;
mod constraint;
mod convert;
mod engine;
mod faults;
mod gates;
mod heads;
mod loading;
mod oracle;
mod paths;
mod registration;
mod sampling;
mod session;
mod speculate;
mod tokenizer;
