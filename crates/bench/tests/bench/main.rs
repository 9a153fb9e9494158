//! Tests of the crate through its public interface, in one executable, which builds faster than many.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may panic, and prints what it skips"
)]

mod bad_configs;
mod block_replay;
mod comparison;
mod documentation;
mod drive_logs;
mod evaluation;
mod fio_jobs;
mod foreign_results;
mod lifetimes;
mod losses;
mod made;
mod open_loop;
mod report_forms;
mod sample_intervals;
mod sessions;
mod shipped_configs;
mod simulate;
mod special_stressors;
mod steadiness;
mod stress_loop;
mod tenants;
mod twin;
mod unheeded_keys;
