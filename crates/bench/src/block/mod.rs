//! Replays block traces on the block cache in virtual time.
//!
//! [`replay`] drives the core of a block cache volume without devices and counts hits, disk operations, and the time of the
//! disk ([`disk`]). [`source`] provides requests, [`run`] replays them on several caches, [`mod@record`] writes them to a file,
//! [`heat`] draws the work of the sets, and [`report`] formats the results.

pub mod disk;
pub mod heat;
mod partial;
pub mod record;
#[cfg(test)]
mod recordings;
pub mod replay;
pub mod report;
pub mod run;
pub mod source;

pub use disk::{Disk, DiskModel};
pub use record::{RecordError, record};
pub use replay::{Replay, Summary};
pub use run::{Outcome, ReplayError, side_by_side};
pub use source::Source;
