//! The whole cache under stress: many clients in virtual time, power cuts at every write, killed processes, flipped
//! bytes, failing devices, and races in a fixed order of events.
//!
//! All random choices come from seeds, and a failure prints its seed. `FLASHWRIGHT_TEST_SEEDS=20` runs twenty times as
//! many seeds.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod clients;
mod late;
mod ledger;
mod polled;
mod session;
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
