//! The server: listening, accepting clients, and stopping.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use device::{Clock, SystemClock, event_fd};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::budget::Budget;
use super::connection::{End, ServerShared, serve};
use super::handshake::Offer;
use super::link::{InFlight, Link};
use super::slots::{Limits, Slot, Slots};
use super::socket;
use crate::export::{Client, Export};

/// Delay before the next accept after an error.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The address at which clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP address. NBD has no authentication: with an address other than loopback, every host that can reach it is admitted.
    Tcp(SocketAddr),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
            Self::Tcp(address) => write!(f, "nbd://{address}"),
        }
    }
}

/// A named export.
#[derive(Clone)]
pub struct Offered {
    /// Name by which clients select it.
    pub name: String,
    /// Description for users.
    pub description: String,
    /// The storage.
    pub export: Arc<dyn Export>,
}

/// Options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Maximum number of clients. One more displaces the connection with the longest idle time. If none is idle, the new client
    /// is refused.
    pub max_connections: usize,
    /// Maximum number of clients at one IP address (IPv6: in one /64 network). `None` is three quarters of `max_connections`.
    pub max_connections_per_address: Option<usize>,
    /// Maximum number of requests in flight per connection; further ones stay in the socket.
    pub requests_per_connection: usize,
    /// Maximum of request data in flight per connection in bytes. One request is always permitted.
    pub bytes_per_connection: usize,
    /// Maximum of request data in flight of all connections together, in bytes.
    pub total_bytes: usize,
    /// Time limit for a client to finish sending a request, or to accept replies.
    pub client_timeout_seconds: u32,
    /// Time limit for the handshake.
    pub handshake_timeout_seconds: u32,
}

impl Options {
    /// Maximum number of concurrent handshakes, which do not count towards [`max_connections`](Self::max_connections).
    fn handshakes(&self) -> usize {
        (self.max_connections / 4).max(16)
    }

    /// Maximum number of open sockets.
    #[must_use]
    pub fn max_sockets(&self) -> usize {
        self.max_connections + 2 * self.handshakes()
    }

    fn limits(&self) -> Limits {
        let three_quarters = (self.max_connections - self.max_connections / 4).max(1);
        Limits {
            connections: self.max_connections,
            connections_per_address: self.max_connections_per_address.unwrap_or(three_quarters),
            handshakes: self.handshakes(),
            idle_ns: 1_000_000_000,
            stalled_ns: u64::from(self.handshake_timeout_seconds) * 1_000_000_000,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_connections: 64,
            max_connections_per_address: None,
            requests_per_connection: 256,
            bytes_per_connection: 64 << 20,
            total_bytes: 256 << 20,
            client_timeout_seconds: 60,
            handshake_timeout_seconds: 5,
        }
    }
}

/// A running server. Dropping it stops it, as [`stop`](Self::stop) does.
pub struct Server {
    shared: Arc<Shared>,
    address: Address,
    /// Device and inode number of a Unix socket.
    socket_inode: Option<(u64, u64)>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    shared_state: Arc<ServerShared>,
    budget: Arc<Budget>,
    options: Options,
    event_fd: OwnedFd,
    stopping: AtomicBool,
    connections: Mutex<Vec<Connection>>,
    slots: Arc<Slots>,
    counters: Counters,
    last_dropped: Mutex<Option<String>>,
}

/// A connection and its thread.
struct Connection {
    client: Client,
    link: Arc<Link>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Counters {
    accepted: AtomicU64,
    turned_away: AtomicU64,
    dropped: AtomicU64,
}

/// Counts of connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connected now.
    pub open: u64,
    /// Accepted in total.
    pub accepted: u64,
    /// Refused because all slots were in use by active clients.
    pub turned_away: u64,
    /// Closed for new clients: the connection with the longest idle time, or a slow handshake.
    pub displaced: u64,
    /// Closed because of a protocol violation, a time limit, or an error of the socket.
    pub dropped: u64,
    /// Request data in flight, in bytes.
    pub bytes_in_flight: u64,
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Server {
    /// Listens at `address` and serves the `offered` exports. Clients that give no name get the first one.
    ///
    /// # Errors
    /// If the address is in use or not available, or no thread can be started.
    pub fn start(address: &Address, offered: Vec<Offered>, options: Options) -> io::Result<Self> {
        let (listener, address) = Listener::bind(address)?;
        let socket_inode = if let Address::Unix(path) = &address { inode(path) } else { None };
        let offer = |offered: &Offered| Offer {
            name: offered.name.clone(),
            description: offered.description.clone(),
            shape: offered.export.shape(),
            contexts: offered.export.contexts().to_vec(),
        };
        let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
        let seconds = |seconds: u32| u64::from(seconds) * 1_000_000_000;
        let shared_state = ServerShared {
            offers: offered.iter().map(offer).collect(),
            exports: offered.into_iter().map(|offered| offered.export).collect(),
            clock: Arc::clone(&clock),
            client_timeout_ns: seconds(options.client_timeout_seconds),
            handshake_timeout_ns: seconds(options.handshake_timeout_seconds),
            closing: AtomicBool::new(false),
        };
        let shared = Arc::new(Shared {
            shared_state: Arc::new(shared_state),
            budget: Arc::new(Budget::new(options.total_bytes)),
            slots: Arc::new(Slots::new(options.limits(), clock)),
            options,
            event_fd: event_fd::new()?,
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            counters: Counters::default(),
            last_dropped: Mutex::default(),
        });
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("nbd-accept".into());
        let acceptor = thread.spawn(move || for_thread.accept_clients(&listener))?;
        Ok(Self { shared, address, socket_inode, acceptor: Mutex::new(Some(acceptor)) })
    }

    /// The address, with the assigned port if port 0 was requested.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Counts of connections.
    #[must_use]
    pub fn counts(&self) -> ConnectionCounts {
        let counters = &self.shared.counters;
        ConnectionCounts {
            open: self.clients().len() as u64,
            accepted: counters.accepted.load(Ordering::Relaxed),
            turned_away: counters.turned_away.load(Ordering::Relaxed),
            displaced: self.shared.slots.displaced(),
            dropped: counters.dropped.load(Ordering::Relaxed),
            bytes_in_flight: self.shared.budget.used_bytes() as u64,
        }
    }

    /// The connected clients.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        let connections = self.shared.connections.lock();
        connections
            .iter()
            .filter(|connection| !connection.thread.is_finished())
            .map(|connection| connection.client)
            .collect()
    }

    /// The reason of the last dropped connection.
    #[must_use]
    pub fn last_dropped(&self) -> Option<String> {
        self.shared.last_dropped.lock().clone()
    }

    /// Stops accepting, answers the requests in flight, and returns when all connections have ended.
    pub fn stop(&self) {
        let Some(acceptor) = self.acceptor.lock().take() else { return };
        self.shared.stopping.store(true, Ordering::Release);
        event_fd::signal(&self.shared.event_fd);
        let ended = acceptor.join();
        debug_assert!(ended.is_ok(), "the acceptor does not panic");
        self.remove_socket();
        self.shared.shared_state.closing.store(true, Ordering::Release);
        let connections = std::mem::take(&mut *self.shared.connections.lock());
        connections.iter().for_each(|connection| connection.link.wake());
        for connection in connections {
            let ended = connection.thread.join();
            debug_assert!(ended.is_ok(), "connections do not panic");
        }
    }
}

impl Server {
    /// Removes the socket's file, unless another socket has replaced it.
    fn remove_socket(&self) {
        if let Address::Unix(path) = &self.address
            && inode(path) == self.socket_inode
        {
            // It may already be removed.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn accept_clients(self: &Arc<Self>, listener: &Listener) {
        while !self.stopping.load(Ordering::Acquire) {
            let mut fds = [
                PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.event_fd.as_fd(), PollFlags::IN),
            ];
            // An interrupted poll is handled like a wake-up.
            let _ = poll(&mut fds, None);
            if fds[0].revents().is_empty() {
                continue;
            }
            match listener.accept() {
                Ok((socket, client)) => self.add_connection(socket, client),
                // The client disconnected before it was accepted.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
                // For example, no file descriptors are left. The pause avoids a busy loop until some are closed.
                Err(_) => drop(poll(&mut fds[1..], Some(&PAUSE))),
            }
        }
    }

    fn add_connection(self: &Arc<Self>, socket: OwnedFd, client: Client) {
        let mut connections = self.connections.lock();
        connections.retain(|connection| !connection.thread.is_finished());
        match self.start_connection(socket, client) {
            Ok(connection) => connections.push(connection),
            Err(_) => drop(self.counters.turned_away.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn start_connection(self: &Arc<Self>, socket: OwnedFd, client: Client) -> io::Result<Connection> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let limits = InFlight {
            requests: self.options.requests_per_connection,
            bytes: self.options.bytes_per_connection,
        };
        let clock = Arc::clone(&self.shared_state.clock);
        let link = Arc::new(Link::new(socket, Arc::clone(&self.budget), limits, clock)?);
        let slot = self.slots.begin_handshake(&client, &link).ok_or(ErrorKind::ConnectionRefused)?;
        let (shared, served) = (Arc::clone(self), Arc::clone(&link));
        let thread = std::thread::Builder::new().name("nbd-connection".into()).spawn(move || {
            let end = serve(&shared.shared_state, &served, client, &slot);
            shared.count_end(&end, &slot);
            served.close();
        })?;
        Ok(Connection { client, link, thread })
    }

    fn count_end(&self, end: &End, slot: &Slot) {
        let (counter, reason) = match end {
            // Counted when it was displaced.
            _ if slot.is_displaced() => return,
            End::NoSlot => (&self.counters.turned_away, None),
            end => (&self.counters.dropped, end.reason()),
        };
        if reason.is_some() || matches!(end, End::NoSlot) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if reason.is_some() {
            *self.last_dropped.lock() = reason;
        }
    }
}

impl Listener {
    fn bind(address: &Address) -> io::Result<(Self, Address)> {
        match address {
            Address::Unix(path) => {
                let listener = socket::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok((Self::Unix(listener), address.clone()))
            }
            Address::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted)?;
                listener.set_nonblocking(true)?;
                let address = Address::Tcp(listener.local_addr()?);
                Ok((Self::Tcp(listener), address))
            }
        }
    }

    fn accept(&self) -> io::Result<(OwnedFd, Client)> {
        match self {
            Self::Unix(listener) => {
                let stream = listener.accept()?.0;
                let client = Client::of_unix(&stream);
                Ok((stream.into(), client))
            }
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                // Replies are sent completely, so delaying them has no use.
                stream.set_nodelay(true)?;
                Ok((stream.into(), Client::of_tcp(address.ip())))
            }
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}
