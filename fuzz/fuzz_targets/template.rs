//! libFuzzer's entry to `kipp_fuzz::template`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kipp_fuzz::template(bytes));
