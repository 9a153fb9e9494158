//! Block traces against the block cache, in virtual time.
//!
//! [`replay`] drives the very core that a volume runs on, without devices: what is hit, what goes to the disk, and what the
//! head of the disk spends on it ([`disk`]). [`source`] is where requests come from.

pub mod disk;
pub mod replay;

pub use disk::{Disk, DiskModel};
pub use replay::{Replay, Summary};
