#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| block::ublk::fuzzing::check_requests(data));
