//! libFuzzer's entry to `kipp_fuzz::gguf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kipp_fuzz::gguf(bytes));
