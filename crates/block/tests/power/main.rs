//! Power cuts: a pair of devices with volatile buffers, a volume over them, and for every sector the set of bytes that it
//! may hold afterwards. And failing requests, by the same measure.
//!
//! All chance comes from seeds, and a failure names its seed. `FLASHWRIGHT_TEST_SEEDS=42` cuts the power ten thousand
//! times at random.

#![allow(clippy::unwrap_used, reason = "in a test, what cannot be unwrapped is the finding")]

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
