//! A Network Block Device (NBD) server.
//!
//! ```text
//! Server ──accepts──▶ connection ── handshake ──▶ intake ── Operation ──▶ Export (a volume, a device)
//!                                                                            │ completes, on any thread
//! client ◀──────────────── link: replies in any order ◀──────────────────────┘
//! ```
//!
//! `wire`, `handshake`, `transmission` and `intake` convert between bytes and values and use no socket. `connection` and `link` are
//! the thread of a client and its replies. `budget` limits the memory of all clients, and `slots` their number.
//!
//! ```no_run
//! use std::sync::Arc;
//! use flashwright_block::export::DeviceExport;
//! use flashwright_block::nbd::{Address, Offered, Options, Server};
//!
//! let device = Arc::new(device::MemoryDevice::new(1 << 30));
//! let address = Address::Unix("/run/flash.sock".into());
//! let export = Arc::new(DeviceExport::new(device));
//! let offered = Offered { name: "flash".into(), description: "memory, really".into(), export };
//! let server = Server::start(&address, vec![offered], Options::default())?;
//! // … nbdinfo nbd+unix:///?socket=/run/flash.sock …
//! server.stop();
//! # Ok::<(), std::io::Error>(())
//! ```

mod budget;
mod connection;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handshake;
mod link;
mod receive_buffer;
mod server;
mod slots;
pub mod socket;
mod transmission;
mod wire;

pub use server::{Address, ConnectionCounts, Offered, Options, Server};
