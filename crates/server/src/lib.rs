//! A cache server that speaks memcached's text protocol, on the hybrid cache of DRAM and flash.
//!
//! [`Server`] accepts connections on TCP and Unix sockets, and executes their requests on a [`Cache`](cache::Cache). The
//! [`protocol`] knows no sockets, the [`store`] knows neither sockets nor text.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//! use std::time::Duration;
//! use flashwright_server::{Address, Options, Server};
//!
//! let cache = cache::Cache::builder().dram_bytes(16 << 20).open()?;
//! let options = Options { listen: vec!["127.0.0.1:0".parse()?], ..Options::default() };
//! let server = Server::start(Arc::new(cache), options)?;
//! let Address::Tcp(address) = &server.addresses()[0] else { unreachable!() };
//! let mut client = std::net::TcpStream::connect(address)?;
//! client.write_all(b"set key 0 0 5\r\nvalue\r\nget key\r\nquit\r\n")?;
//! let mut replies = String::new();
//! client.read_to_string(&mut replies)?;
//! assert_eq!(replies, "STORED\r\nVALUE key 0 5\r\nvalue\r\nEND\r\n");
//! server.close(Duration::from_secs(10))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// The version that clients see: memcached's whose commands are implemented, and that of this server.
macro_rules! version {
    () => {
        concat!("1.6.18-flashwright-", env!("CARGO_PKG_VERSION"))
    };
}

mod address;
mod auth;
mod connection;
mod counters;
mod execute;
mod input;
pub mod item;
mod latency;
pub mod metrics;
mod options;
mod output;
mod prefixes;
pub mod protocol;
mod server;
mod shared;
mod stats;
pub mod store;
mod tenants;
mod tls;

pub use address::Address;
pub use auth::{Credentials, CredentialsError};
pub use counters::Counter;
pub use item::HEADER_BYTES as ITEM_HEADER_BYTES;
pub use options::{Options, StartError};
pub use server::Server;
pub use tenants::{Tenant, Tenants};
pub use tls::{Tls, TlsError};
