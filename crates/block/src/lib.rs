//! The write-back block cache: flash in front of a slow disk, for any program that speaks to a block device.
//!
//! It loses nothing that an acknowledged flush covered. What it decides (which set, which victim, what to clean and when) is the
//! pure core in [`sets`]: no I/O, no clock. [`volume`] does the I/O those decisions ask for, in either world; [`nbd`] serves a
//! volume, or any device, to other programs.
//!
//! This room knows nothing of the hybrid cache: the two keep different promises.

pub mod nbd;
pub mod sets;
pub mod volume;
