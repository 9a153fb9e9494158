//! Serves an export as a kernel block device `/dev/ublkbN`, through the driver ublk (Linux 6.5).
//!
//! ```text
//! /dev/ublkbN ── requests ──▶ queue (a thread) ── Operation ──▶ Export (a volume, a device)
//!      ▲                        ▲ descriptors, io_uring             │ completes, on any thread
//!      └──────── commit ────────┴───────────── outbox ◀─────────────┘
//! ```
//!
//! | file | content |
//! |---|---|
//! | `uapi` | the layouts of `linux/ublk_cmd.h` |
//! | `request` | descriptors to operations, and errors to results, without I/O |
//! | `control` | the control device: create, start, recover, delete |
//! | `disk` | the life of a device |
//! | `left` | all devices of the driver, and the removal of one without a server |
//! | `queue`, `outbox` | the thread of a queue, and results on their way to it |
//! | `ticket` | a request in flight and its data |
//! | `ring`, `descriptors` | io_uring, and the memory shared with the kernel |
//!
//! A device outlives its server: requests wait for the next server of the same identity, and unanswered ones are repeated. So a
//! file system stays mounted while its server is killed and restarted.
//!
//! ```no_run
//! use std::sync::Arc;
//! use flashwright_block::export::{ByteExport, DeviceExport};
//! use flashwright_block::ublk::{Disk, Driver, Options};
//!
//! let driver = Driver::open()?; // before the first thread
//! let device = Arc::new(device::MemoryDevice::new(1 << 30));
//! let export = Arc::new(ByteExport::new(Arc::new(DeviceExport::new(device))));
//! let disk = Disk::serve(driver, export, &Options::new(0, 0xF1A5_4001))?;
//! // … mkfs.ext4 /dev/ublkb0 …
//! disk.stop()?;
//! # Ok::<(), device::IoError>(())
//! ```

mod control;
mod descriptors;
mod disk;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod left;
mod outbox;
mod queue;
mod request;
mod ring;
mod ticket;
mod uapi;

pub use disk::{Disk, Driver, Options, StopOutcome, waiting};
pub use left::{DeviceState, DeviceStatus, delete, devices};
