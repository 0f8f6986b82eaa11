//! Explores [`kipp_fuzz::tokenizer::tokenizer`] with libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kipp_fuzz::tokenizer::tokenizer(bytes));
