//! Checks of all parsers of untrusted bytes. A target in `fuzz_targets/` calls one function of this crate; `tests/seeds.rs` runs each on
//! its seeds without a fuzzer.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a find")]

pub mod block_traces;
pub mod cards;
pub mod configs;
pub mod control;
pub mod memcached;
pub mod nvme;
pub mod results;
pub mod scratch;
pub mod server;
pub mod striped;
pub mod traces;
pub mod volume;

/// One target: its name (its file in `fuzz_targets/` and its folder in `seeds/`) and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 18] = [
    ("block_traces", block_traces::check),
    ("block_volume", volume::check),
    ("cache_formats", cache::internals::fuzzing::check),
    ("cache_journal", cache::internals::fuzzing::check_journal),
    ("cachebench_config", configs::check),
    ("control_line", control::check),
    ("drive_card", cards::check),
    ("fuse_requests", block::fuse::fuzzing::check_requests),
    ("memcached", memcached::check),
    ("nbd_handshake", block::nbd::fuzzing::check_handshake),
    ("nbd_requests", block::nbd::fuzzing::check_requests),
    ("nbd_server", server::check),
    ("nvme_pages", nvme::check),
    ("results", results::check),
    ("stripe_labels", striped::check),
    ("trace_replay", traces::check_replay),
    ("traces", traces::check),
    ("ublk_requests", block::ublk::fuzzing::check_requests),
];
