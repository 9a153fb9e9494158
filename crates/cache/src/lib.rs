//! The hybrid cache: DRAM in front of flash.
//!
//! [`Cache`] tells the whole story of a get, an insert and a remove ([`hybrid`]); [`dram`] holds what is hot,
//! [`flash`] what fell out of it. The engine never asks the machine for time, randomness or a thread: a clock and a
//! device come in from outside, and background work is a step that somebody calls ([`background`]).
//!
//! This room knows nothing of JSON, workloads, command lines or drives' insides.

pub mod dram;
pub mod flash;
pub mod key;

pub use key::KeyHash;
