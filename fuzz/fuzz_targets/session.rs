//! libFuzzer's entry to `kipp_fuzz::session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kipp_fuzz::session(bytes));
