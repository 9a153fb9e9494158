//! NBD, on a Unix socket or a TCP address.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use block::export::Client;
use block::nbd::{Address, Offered, Options, Server};
use clap::Args;
use serde_json::{Value, json};

use super::{ACCESS, FrontEnd, Monitor, SERVER, ServedDisk, control};
use crate::descriptors;

/// Threads that a process is usually given leave some for others.
const MOST_CONNECTIONS: usize = 4096;

pub const USAGE: &str = "--socket PATH or --listen ADDRESS:PORT (NBD)";

/// The flags of `block serve` for NBD.
#[derive(Debug, Args)]
pub struct NbdFlags {
    /// Serve NBD on a Unix socket
    #[arg(long, help_heading = ACCESS, value_name = "PATH", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// Serve NBD on a TCP address
    #[arg(long, help_heading = ACCESS, value_name = "ADDRESS:PORT", value_parser = tcp_address)]
    listen: Option<SocketAddr>,
    /// Allow --listen and --metrics on a non-loopback address: NBD has no passwords, everyone with network access can read and write
    #[arg(long, help_heading = ACCESS)]
    allow_remote: bool,
    /// Maximum number of NBD clients, 1 to 4096; each takes a thread. For one more, the connection that has been idle the
    /// longest is closed; if none has been idle for a second, the new client is refused
    #[arg(long, help_heading = ACCESS, value_name = "N", default_value_t = Options::default().max_connections, value_parser = connections)]
    connections: usize,
    /// Maximum number of NBD clients at one IP address (IPv6: in one /64 network) [default: three quarters of --connections]
    #[arg(long, help_heading = ACCESS, value_name = "N", value_parser = connections, requires = "listen")]
    connections_per_address: Option<usize>,
}

fn connections(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST_CONNECTIONS).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {MOST_CONNECTIONS}"))
}

/// Parses an IP address and a port; host names are not resolved.
fn tcp_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port, like 127.0.0.1:10809 or [::1]:10809".into())
}

impl NbdFlags {
    pub fn front_end(&self, _name: &str) -> Result<Option<Box<dyn FrontEnd>>, String> {
        let Some(address) = self.address()? else { return Ok(None) };
        let options = Options {
            max_connections: self.connections,
            max_connections_per_address: self.connections_per_address,
            ..Options::default()
        };
        Ok(Some(Box::new(Nbd { address, options, server: None })))
    }

    /// Whether addresses that other machines can reach are permitted.
    pub fn allows_remote(&self) -> bool {
        self.allow_remote
    }

    fn address(&self) -> Result<Option<Address>, String> {
        match (&self.socket, self.listen) {
            (Some(path), _) => Ok(Some(Address::Unix(path.clone()))),
            (None, Some(address)) if address.ip().is_loopback() || self.allow_remote => {
                Ok(Some(Address::Tcp(address)))
            }
            (None, Some(address)) => Err(format!(
                "--listen {address}: is not a loopback address, and NBD has no passwords; \
                 --allow-remote lets anybody who can connect read and write"
            )),
            (None, None) => Ok(None),
        }
    }

    pub fn add_to(&self, config: &mut Value) {
        config["socket"] = self.socket.as_deref().map(|path| path.display().to_string()).into();
        config["listen"] = self.listen.map(|address| address.to_string()).into();
    }
}

/// Selects the server of an NBD address.
#[derive(Debug, Args)]
pub struct NbdTarget {
    /// The server's NBD socket
    #[arg(long, value_name = "PATH", group = SERVER)]
    socket: Option<PathBuf>,
    /// The server's NBD TCP address
    #[arg(long, value_name = "ADDRESS:PORT", group = SERVER, value_parser = tcp_address)]
    listen: Option<SocketAddr>,
}

impl NbdTarget {
    pub fn control_path(&self) -> Option<PathBuf> {
        let of_listen = || self.listen.map(|address| control::of_port(address.port()));
        self.socket.as_deref().map(control::beside).or_else(of_listen)
    }
}

struct Nbd {
    address: Address,
    options: Options,
    server: Option<Arc<Server>>,
}

impl Nbd {
    /// The address; after the start, with the port that was assigned.
    fn bound(&self) -> &Address {
        self.server.as_ref().map_or(&self.address, |server| server.address())
    }
}

impl FrontEnd for Nbd {
    fn prepare(&mut self) -> Result<(), String> {
        descriptors::allow(self.options.max_connections, self.options.max_sockets())
    }

    fn start(&mut self, disk: &ServedDisk) -> Result<(), String> {
        let flag = match &self.address {
            Address::Unix(path) => format!("--socket {}", path.display()),
            Address::Tcp(address) => format!("--listen {address}"),
        };
        let server = Server::start(&self.address, offered(disk), self.options.clone());
        self.server = Some(Arc::new(server.map_err(|error| format!("{flag}: {error}"))?));
        Ok(())
    }

    fn address(&self) -> String {
        self.bound().to_string()
    }

    fn control_path(&self) -> PathBuf {
        match self.bound() {
            Address::Unix(path) => control::beside(path),
            Address::Tcp(address) => control::of_port(address.port()),
        }
    }

    fn monitor(&self) -> Option<Arc<dyn Monitor>> {
        self.server.clone().map(|server| server as Arc<dyn Monitor>)
    }

    fn stop(&mut self, _say: &dyn Fn(&str)) -> Result<(), String> {
        self.server.take().iter().for_each(|server| server.stop());
        Ok(())
    }
}

fn offered(disk: &ServedDisk) -> Vec<Offered> {
    let (name, description) = (&disk.name, &disk.description);
    let uncached = disk.uncached.as_ref().map(|uncached| Offered {
        name: format!("{name}-uncached"),
        description: format!("{description}; misses on this export are not cached"),
        export: Arc::clone(uncached),
    });
    let usual =
        Offered { name: name.clone(), description: description.clone(), export: Arc::clone(&disk.export) };
    std::iter::once(usual).chain(uncached).collect()
}

impl Monitor for Server {
    fn add_to(&self, status: &mut Value) {
        let counts = self.counts();
        status["connections"] = json!({
            "open": counts.open,
            "accepted": counts.accepted,
            "turned_away": counts.turned_away,
            "displaced": counts.displaced,
            "dropped": counts.dropped,
            "bytes_in_flight": counts.bytes_in_flight,
            "last_dropped": self.last_dropped(),
        });
    }

    fn clients(&self) -> Option<Vec<Client>> {
        Some(Self::clients(self))
    }
}
