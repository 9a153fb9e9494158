#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| block::fuse::fuzzing::check_requests(data));
