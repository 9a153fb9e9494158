//! Addresses and limits of a server, and the reasons why it does not start.

use std::io;
use std::time::Duration;

use crate::address::Address;
use crate::auth::Credentials;
use crate::protocol::AllowedCommands;
use crate::tenants::Tenant;
use crate::tls::Tls;

/// Addresses and limits of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where clients connect.
    pub listen: Vec<Address>,
    /// Encrypts connections by TCP.
    pub tls: Option<Tls>,
    /// Permit addresses that other machines can connect to without TLS.
    pub allow_remote: bool,
    /// Threads that serve connections.
    pub threads: usize,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Time that a connection may be idle between two requests; `None` is no limit.
    pub idle_timeout: Option<Duration>,
    /// Time that a client may pause in the middle of a request or of a reply.
    pub client_timeout: Duration,
    /// Memory for requests that are larger than 16 KiB while they arrive, all connections together, bytes.
    pub buffer_bytes: usize,
    /// Counts requests, from the start of the server, by the part of the key before this byte. If `None`, `stats detail on` starts the
    /// counting, with `:`.
    pub prefix_delimiter: Option<u8>,
    /// Tenants by key prefix. Those with a share use the cache's [pools](crate::Tenants::pools).
    pub tenants: Vec<Tenant>,
    /// The commands that clients may use; `None` is all.
    pub allowed_commands: Option<AllowedCommands>,
    /// Measures the time that each request takes, for [`Server::figures`](crate::Server::figures).
    pub measure_latency: bool,
    /// The users, if clients have to authenticate.
    pub credentials: Option<Credentials>,
}

impl Options {
    /// Checks the addresses, which needs no cache.
    ///
    /// # Errors
    /// There is no address, or other machines can reach one without encryption and without permission.
    pub fn check(&self) -> Result<(), StartError> {
        if self.listen.is_empty() {
            return Err(StartError::NoAddress);
        }
        let is_refused = |address: &&Address| !address.is_local() && !self.allow_remote && self.tls.is_none();
        match self.listen.iter().find(is_refused) {
            Some(address) => Err(StartError::Remote(address.clone())),
            None => Ok(()),
        }
    }
}

impl Default for Options {
    /// Listens nowhere, with the limits of memcached.
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            tls: None,
            allow_remote: false,
            threads: std::thread::available_parallelism().map_or(4, usize::from),
            max_connections: 1024,
            idle_timeout: None,
            client_timeout: Duration::from_secs(60),
            buffer_bytes: 64 << 20,
            prefix_delimiter: None,
            tenants: Vec::new(),
            allowed_commands: None,
            measure_latency: false,
            credentials: None,
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is open to other machines.
    #[error(
        "{0} can be reached from other machines, and the protocol is not encrypted: use --tls-certificate and --tls-key, listen on 127.0.0.1 or a Unix socket, or permit it with --insecure"
    )]
    Remote(Address),
    /// It listens nowhere.
    #[error("there is no address to listen on")]
    NoAddress,
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: Address,
        /// Why.
        error: io::Error,
    },
    /// The tenants contradict each other.
    #[error("{0}")]
    Tenants(String),
    /// The threads cannot be started.
    #[error("cannot start the threads of the server: {0}")]
    Threads(io::Error),
    /// The buffers cannot hold the largest request.
    #[error(
        "buffers of {buffer_bytes} bytes cannot hold an item of {item_bytes} bytes, which the cache accepts"
    )]
    Buffers {
        /// [`Options::buffer_bytes`].
        buffer_bytes: usize,
        /// [`Cache::max_item_bytes`](cache::Cache::max_item_bytes).
        item_bytes: usize,
    },
}
