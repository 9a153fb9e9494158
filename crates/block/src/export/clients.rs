//! Clients, and rules for whose blocks are cached: Flashcache's `cache_all` and its two lists of processes.
//!
//! Either all clients are cached except those on one list, or none except those on the other. A client on both lists is an
//! exception to the rule. The rules are applied to each request, so a change affects open connections too.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::IoError;
use parking_lot::RwLock;
use rustix::net::sockopt::socket_peercred;

use super::{Context, Export, Extent, Operation, Reply, Shape};

/// The client of a request, as far as the front end knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// The process that connected to a Unix socket, and its effective user.
    Process {
        /// Process ID; 0 if it is in another PID namespace.
        pid: u32,
        /// User ID.
        uid: u32,
    },
    /// The thread that made the system call, and its user.
    Thread {
        /// Thread ID, equal to the process ID in a single-threaded process; 0 if it is in another PID namespace.
        tid: u32,
        /// User ID.
        uid: u32,
    },
    /// The peer of a TCP connection.
    Remote(IpAddr),
    /// Unknown: the kernel makes the requests of a block device.
    Unknown,
}

impl Client {
    /// The peer of a Unix socket.
    pub(crate) fn of_unix(socket: impl AsFd) -> Self {
        socket_peercred(socket).map_or(Self::Unknown, |peer| Self::Process {
            pid: peer.pid.as_raw_nonzero().get().cast_unsigned(),
            uid: peer.uid.as_raw(),
        })
    }

    /// The peer at `address`. A listener on IPv6 sees IPv4 clients with mapped addresses.
    pub(crate) fn of_tcp(address: IpAddr) -> Self {
        Self::Remote(address.to_canonical())
    }
}

/// A client in a rule: `pid:N`, `uid:N`, an IP address, or a network with a prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientName {
    /// A process with all its threads.
    Pid(u32),
    /// All processes of a user.
    Uid(u32),
    /// A network.
    Network {
        /// First address.
        first: IpAddr,
        /// Prefix length.
        prefix_bits: u8,
    },
}

/// Why a text is not a client name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ClientNameError(String);

impl ClientName {
    fn matches(&self, client: &Client) -> bool {
        match (*self, *client) {
            (Self::Pid(expected), Client::Process { pid, .. }) => expected == pid,
            (Self::Pid(expected), Client::Thread { tid, .. }) => {
                expected == tid || is_thread_of(expected, tid)
            }
            (Self::Uid(expected), Client::Process { uid, .. } | Client::Thread { uid, .. }) => {
                expected == uid
            }
            (Self::Network { first, prefix_bits }, Client::Remote(address)) => {
                first.is_ipv4() == address.is_ipv4() && first_of(address, prefix_bits) == first
            }
            _ => false,
        }
    }
}

/// FUSE reports the thread of a request, not its process.
fn is_thread_of(pid: u32, tid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

fn first_of(address: IpAddr, prefix_bits: u8) -> IpAddr {
    let bits = u32::from(prefix_bits);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

fn longest_prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for ClientName {
    type Err = ClientNameError;

    fn from_str(text: &str) -> Result<Self, ClientNameError> {
        let wrong = |message: &str| ClientNameError(message.to_owned());
        // 0 is not a process ID, and the highest number not a user ID.
        if let Some(number) = text.strip_prefix("pid:") {
            let pid = number.parse().ok().filter(|pid| (1..=i32::MAX.cast_unsigned()).contains(pid));
            return pid.map(Self::Pid).ok_or_else(|| wrong("must be pid: and the number of a process"));
        }
        if let Some(number) = text.strip_prefix("uid:") {
            let uid = number.parse().ok().filter(|uid| *uid != u32::MAX);
            return uid.map(Self::Uid).ok_or_else(|| wrong("must be uid: and the number of a user"));
        }
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| {
            wrong("must be pid:NUMBER, uid:NUMBER or an IP address, which may have a prefix length, like 10.0.0.0/8")
        })?;
        if address.to_canonical() != address {
            return Err(wrong("is an IPv4 address in IPv6 form: write it as IPv4"));
        }
        let most = longest_prefix(address);
        let prefix_bits =
            prefix.map_or(Some(most), |prefix| prefix.parse().ok().filter(|bits| *bits <= most));
        let prefix_bits = prefix_bits.ok_or_else(|| {
            ClientNameError(format!("the prefix length must be a whole number from 0 to {most}"))
        })?;
        Ok(Self::Network { first: first_of(address, prefix_bits), prefix_bits })
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "pid:{pid}"),
            Self::Uid(uid) => write!(f, "uid:{uid}"),
            Self::Network { first, prefix_bits } if *prefix_bits == longest_prefix(*first) => {
                write!(f, "{first}")
            }
            Self::Network { first, prefix_bits } => write!(f, "{first}/{prefix_bits}"),
        }
    }
}

/// Rules for whose blocks are cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRules {
    /// Cache all clients except `uncached`; otherwise none except `cached`.
    pub cache_all: bool,
    /// Clients that are not cached; without `cache_all`, exceptions to `cached`.
    pub uncached: Vec<ClientName>,
    /// Clients that are cached; with `cache_all`, exceptions to `uncached`.
    pub cached: Vec<ClientName>,
}

impl Default for ClientRules {
    fn default() -> Self {
        Self { cache_all: true, uncached: Vec::new(), cached: Vec::new() }
    }
}

impl ClientRules {
    /// Maximum length of a list. Each request is compared with every name.
    pub const MAX_NAMES: usize = 100;

    /// Whether blocks of `client` are cached.
    #[must_use]
    pub fn caches(&self, client: &Client) -> bool {
        let is_on = |list: &[ClientName]| list.iter().any(|name| name.matches(client));
        match self.cache_all {
            true => !is_on(&self.uncached) || is_on(&self.cached),
            false => is_on(&self.cached) && !is_on(&self.uncached),
        }
    }

    /// Whether the rules can exclude any client.
    fn exclude_some(&self) -> bool {
        !self.cache_all || !self.uncached.is_empty()
    }
}

/// The rules in force, which can be replaced at any time.
#[derive(Default)]
pub struct Admission {
    /// Checked first, so that empty rules cost no lock.
    excludes_some: AtomicBool,
    rules: RwLock<ClientRules>,
    uncached_requests: AtomicU64,
}

impl Admission {
    /// Applies `rules`.
    #[must_use]
    pub fn by(rules: ClientRules) -> Self {
        let admission = Self::default();
        admission.set_rules(rules);
        admission
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> ClientRules {
        self.rules.read().clone()
    }

    /// Replaces the rules for all later requests.
    pub fn set_rules(&self, rules: ClientRules) {
        let mut in_force = self.rules.write();
        self.excludes_some.store(rules.exclude_some(), Ordering::Release);
        *in_force = rules;
    }

    /// Whether blocks of `client` are not cached.
    #[must_use]
    pub fn excludes(&self, client: &Client) -> bool {
        self.excludes_some.load(Ordering::Acquire) && !self.rules.read().caches(client)
    }

    /// Requests whose blocks were not cached because of the rules, since creation or [`zero`](Self::zero).
    #[must_use]
    pub fn uncached_requests(&self) -> u64 {
        self.uncached_requests.load(Ordering::Relaxed)
    }

    /// Resets the count.
    pub fn zero(&self) {
        self.uncached_requests.store(0, Ordering::Relaxed);
    }
}

/// Forwards each request to one of two exports of the same bytes, according to the rules for its client.
pub struct ClientExport {
    cached: Arc<dyn Export>,
    uncached: Arc<dyn Export>,
    admission: Arc<Admission>,
}

impl ClientExport {
    /// Forwards requests of clients that `admission` excludes to `uncached`, and others to `cached`.
    #[must_use]
    pub fn new(cached: Arc<dyn Export>, uncached: Arc<dyn Export>, admission: Arc<Admission>) -> Self {
        Self { cached, uncached, admission }
    }
}

/// Whether an operation can insert blocks into the cache.
fn may_fill_cache(operation: &Operation) -> bool {
    match operation {
        Operation::Read { .. }
        | Operation::Write { .. }
        | Operation::Zero { .. }
        | Operation::Prefetch { .. } => true,
        Operation::Trim { .. } | Operation::Flush => false,
    }
}

impl Export for ClientExport {
    fn shape(&self) -> Shape {
        self.cached.shape()
    }

    fn submit(&self, operation: Operation, reply: Reply) {
        self.submit_for(&Client::Unknown, operation, reply);
    }

    fn submit_for(&self, client: &Client, operation: Operation, reply: Reply) {
        if self.admission.excludes(client) && may_fill_cache(&operation) {
            self.admission.uncached_requests.fetch_add(1, Ordering::Relaxed);
            return self.uncached.submit(operation, reply);
        }
        self.cached.submit(operation, reply);
    }

    fn contexts(&self) -> &[Context] {
        self.cached.contexts()
    }

    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError> {
        self.cached.extents(context, offset, len, most)
    }
}

#[cfg(test)]
mod tests;
