//! Tests of the crate through its public interface, in one executable, which builds faster than many.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may panic, and prints what it skips"
)]

mod access;
mod binary_traces;
mod block_traces;
mod conversions;
mod decoders;
mod field_formats;
mod fio_jobs;
mod generators;
mod headerless;
mod items;
mod photo_cdn;
mod recordings;
mod replay;
mod sample_traces;
mod tables;
mod tenants;
