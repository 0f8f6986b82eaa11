//! Explores `kipp_fuzz::template` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kipp_fuzz::template::template(bytes));
