#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| block::nbd::fuzzing::check_requests(data));
