//! The Network Block Device server: any program can use what is served as a block device.
//!
//! ```text
//! Server ──accepts──▶ connection ── handshake ──▶ intake ── Operation ──▶ Export (a volume, a device)
//!                                                                            │ completes, on any thread
//! client ◀──────────────── link: replies in any order ◀──────────────────────┘
//! ```
//!
//! `wire`, `handshake`, `transmission` and `intake` are bytes in, values out, and know no socket. `connection` and `link`
//! are one client's thread and its way out; `budget` bounds what all clients together can make us hold.
//!
//! ```no_run
//! use std::sync::Arc;
//! use flashwright_block::nbd::{Address, DeviceExport, Options, Server};
//!
//! let device = Arc::new(flashwright_device::MemoryDevice::new(1 << 30));
//! let address = Address::Unix("/run/flash.sock".into());
//! let server = Server::start(&address, Arc::new(DeviceExport::new(device)), Options::default())?;
//! // … nbdinfo nbd+unix:///?socket=/run/flash.sock …
//! server.stop();
//! # Ok::<(), std::io::Error>(())
//! ```

mod bell;
mod budget;
mod byte_export;
mod connection;
mod device_export;
mod export;
#[cfg(test)]
mod fuzz;
mod handshake;
mod intake;
mod link;
mod pieces;
mod ranges;
mod server;
mod tasks;
mod transmission;
mod volume_export;
mod wire;

pub use byte_export::ByteExport;
pub use device_export::DeviceExport;
pub use export::{Answer, Caller, Context, Export, Extent, Operation, Shape};
pub use server::{Address, ConnectionCounts, Options, Server};
pub use tasks::Tasks;
pub use volume_export::VolumeExport;
