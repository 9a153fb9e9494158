//! The whole cache where it is hardest: many clients in virtual time, power cuts at every write, killed processes, flipped
//! bytes, failing devices, and races told as stories.
//!
//! All chance comes from seeds, and a failure names its seed. `FLASHWRIGHT_TEST_SEEDS=20` runs twenty times as many.

#![allow(clippy::unwrap_used, reason = "in a test, what cannot be unwrapped is the finding")]

mod clients;
mod late;
mod ledger;
mod life;
mod polled;
mod setup;
mod stage;

mod clears;
mod closing;
mod crash;
mod dropped;
mod faults;
mod flips;
mod kill;
mod leaving;
mod lifetimes;
mod loads;
mod races;
mod recovered;
mod room;
mod settling;
mod simulated;
