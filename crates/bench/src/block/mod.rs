//! Block traces against the block cache, in virtual time.
//!
//! [`replay`] drives the very core that a volume runs on, without devices: what is hit, what goes to the disk, and what the
//! head of the disk spends on it ([`disk`]). [`source`] is where requests come from, [`run`] puts several caches under the
//! same ones, [`mod@record`] puts them into a file, [`heat`] draws which sets worked when, [`report`] tells what came of it.

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
