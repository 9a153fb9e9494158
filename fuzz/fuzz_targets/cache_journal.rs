#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cache::internals::fuzzing::check_journal(data));
