#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flashwright_fuzz::control::check(data));
