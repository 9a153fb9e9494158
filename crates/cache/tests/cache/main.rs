//! Tests of the crate through its public interface, in one executable, which builds faster than many.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may panic, and prints what it skips"
)]

mod budget;
mod callbacks;
mod clear_threads;
mod counters;
mod density;
mod destructors;
mod events;
mod examples;
mod failing_pieces;
mod failing_writes;
mod fetches;
mod hash_seed;
mod hung_device;
mod hybrid_model;
mod keys;
mod largest_value;
mod long_chain;
mod outage;
mod own_policies;
mod owned;
mod page_cache;
mod partitions;
mod parts;
mod reopen;
mod reopen_otherwise;
mod sizes;
mod time_set_back;
mod yields;
