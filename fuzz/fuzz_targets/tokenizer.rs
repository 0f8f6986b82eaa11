//! libFuzzer's entry to `kipp_fuzz::tokenizer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kipp_fuzz::tokenizer(bytes));
