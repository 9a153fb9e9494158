#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cache::flash::fuzzing::check_journal(data));
