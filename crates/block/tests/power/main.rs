//! Power cuts: a volume on two devices with volatile buffers, and for each sector the set of contents that are permitted
//! afterwards. Also failing requests, with the same check.
//!
//! All randomness comes from seeds, and a failure prints its seed. `FLASHWRIGHT_TEST_SEEDS=42` runs ten thousand random
//! power cuts.

#![allow(clippy::unwrap_used, reason = "in a test, a failed unwrap fails the test")]

mod errors;
mod format;
mod history;
mod killed;
mod ledger;
mod long;
mod lost_flush;
mod moved;
mod order;
mod short;
mod stage;
mod striped;
