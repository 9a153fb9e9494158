//! NVMe drives without a file system or the block layer between: identity, wear and data placement.
//!
//! | file | content |
//! |---|---|
//! | `command`, `status` | commands and completion status, in bytes |
//! | `identify`, `log_pages`, `fdp` | decoders of a drive's data structures: pure functions over bytes |
//! | `ioctl` | issues one command, behind the [`Transport`] trait that tests replace |
//! | `drive` | queries to a drive, with decoded answers |
//! | `readiness` | whether a namespace supports placement, and the missing requirement |
//! | `wear` | bytes written by host and media, from the best of three sources |
//! | `locate` | the drive and namespace of a path, and the kernel's limits for it |
//! | `passthrough`, `streams` | placed writes: by passed-through commands, and by the block layer's write streams |
//!
//! Statistics (log pages, features) require `CAP_SYS_ADMIN`; reading, writing, identifying and placement status do not, since
//! Linux 6.2. A process without the capability gets a device that works, with unknown media bytes.

mod bytes;
pub mod command;
pub mod drive;
pub mod fdp;
pub mod identify;
pub mod ioctl;
pub mod locate;
pub mod log_pages;
pub mod passthrough;
pub mod readiness;
pub mod status;
pub(crate) mod streams;
pub mod wear;

#[cfg(test)]
mod fake;

pub use bytes::Malformed;
pub use drive::Drive;
pub use ioctl::Transport;
pub use locate::Location;
pub use passthrough::PassthroughDevice;
pub use readiness::Readiness;
pub use status::Status;
pub use wear::{MediaProbe, Wear};
