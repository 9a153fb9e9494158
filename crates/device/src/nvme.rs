//! NVMe drives without a file system or the block layer between: who they are, how worn, and where they place data.
//!
//! | file | what it knows |
//! |---|---|
//! | `command`, `status` | what is asked, in bytes, and how it ended |
//! | `identify`, `log_pages`, `fdp` | what a drive's pages say: pure functions over bytes |
//! | `ioctl` | the way of a single command, behind the [`Transport`] that a test can stand in for |
//! | `drive` | questions to a drive, answered in those terms |
//! | `readiness` | whether a namespace can place data, and what is missing |
//! | `wear` | bytes by host and media, from the best of three sources |
//! | `locate` | which drive a path means, and the kernel's limits for it |
//! | `passthrough`, `streams` | placed writes: by passed-through commands, and by the block layer's write streams |
//!
//! Statistics (log pages, features) need `CAP_SYS_ADMIN`; reading, writing, identifying and placement status do not, since
//! Linux 6.2. Who has only the latter gets a device that works and whose media bytes are unknown.

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
