//! Clients, and whose blocks are cached: Flashcache's `cache_all` and its two lists of processes.
//!
//! Blocks of all clients are cached but of those on one list, or only of those on the other. Who is on both is the exception to
//! either rule. It is decided request by request, so that a rule holds for whatever comes after it, on open connections too.

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

use super::{Caller, Context, Export, Extent, Operation, Shape};

/// Who makes a request, as far as a front can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// The process that connected to a Unix socket, 0 if it is none that this one can see, and its effective user.
    Process {
        /// Its number.
        pid: u32,
        /// Its user's number.
        uid: u32,
    },
    /// The thread whose system call it is, 0 if it is none that this process can see, and its user.
    Thread {
        /// Its number, which in a process of one thread is the process's.
        tid: u32,
        /// Its user's number.
        uid: u32,
    },
    /// The other end of a TCP connection.
    Remote(IpAddr),
    /// Nobody can tell: requests of a block device come from the kernel.
    Unknown,
}

impl Client {
    /// Who connected to a Unix socket.
    pub(crate) fn of_unix(socket: impl AsFd) -> Self {
        socket_peercred(socket).map_or(Self::Unknown, |peer| Self::Process {
            pid: peer.pid.as_raw_nonzero().get().cast_unsigned(),
            uid: peer.uid.as_raw(),
        })
    }

    /// Who connected from `address`. A listener at an IPv6 address sees clients of IPv4 by addresses of IPv6.
    pub(crate) fn of_tcp(address: IpAddr) -> Self {
        Self::Remote(address.to_canonical())
    }
}

/// What clients are called in a list: `pid:N`, `uid:N`, or an IP address, which a prefix length makes one of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientName {
    /// A process, with all of its threads.
    Pid(u32),
    /// All of a user's processes.
    Uid(u32),
    /// Addresses that begin alike.
    Network {
        /// The first of them.
        first: IpAddr,
        /// In how many bits.
        prefix_bits: u8,
    },
}

/// Why a text names no client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ClientNameError(String);

impl ClientName {
    fn is(&self, client: &Client) -> bool {
        match (*self, *client) {
            (Self::Pid(wanted), Client::Process { pid, .. }) => wanted == pid,
            (Self::Pid(wanted), Client::Thread { tid, .. }) => wanted == tid || is_thread_of(wanted, tid),
            (Self::Uid(wanted), Client::Process { uid, .. } | Client::Thread { uid, .. }) => wanted == uid,
            (Self::Network { first, prefix_bits }, Client::Remote(address)) => {
                first.is_ipv4() == address.is_ipv4() && first_of(address, prefix_bits) == first
            }
            _ => false,
        }
    }
}

/// The kernel tells of a request which thread it is from, and not of which process.
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
        let wrong = |words: &str| ClientNameError(words.to_owned());
        // Neither does a process have the number 0, nor a user the highest.
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

/// Whose blocks are cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRules {
    /// Those of all clients, but for `uncached`; otherwise none but those of `cached`.
    pub cache_all: bool,
    /// Clients whose blocks are not cached. Where not all are cached anyway, exceptions among `cached`.
    pub uncached: Vec<ClientName>,
    /// Clients whose blocks are cached. Where all are cached anyway, exceptions among `uncached`.
    pub cached: Vec<ClientName>,
}

impl Default for ClientRules {
    fn default() -> Self {
        Self { cache_all: true, uncached: Vec::new(), cached: Vec::new() }
    }
}

impl ClientRules {
    /// Names that a list has, at most: each is compared with each request's client.
    pub const MOST_NAMES: usize = 100;

    /// Whether blocks of this client are cached.
    #[must_use]
    pub fn caches(&self, client: &Client) -> bool {
        let is_on = |list: &[ClientName]| list.iter().any(|name| name.is(client));
        match self.cache_all {
            true => !is_on(&self.uncached) || is_on(&self.cached),
            false => is_on(&self.cached) && !is_on(&self.uncached),
        }
    }

    /// Whether there can be a client whose blocks are not.
    fn keep_some_out(&self) -> bool {
        !self.cache_all || !self.uncached.is_empty()
    }
}

/// The rules in force, which can change at any time.
#[derive(Default)]
pub struct Admission {
    /// All that is looked at while there are no rules.
    keeps_some_out: AtomicBool,
    rules: RwLock<ClientRules>,
    kept_out: AtomicU64,
}

impl Admission {
    /// By these rules.
    #[must_use]
    pub fn by(rules: ClientRules) -> Self {
        let admission = Self::default();
        admission.set_rules(rules);
        admission
    }

    /// The rules now.
    #[must_use]
    pub fn rules(&self) -> ClientRules {
        self.rules.read().clone()
    }

    /// Replaces them, for all requests that come from now on.
    pub fn set_rules(&self, rules: ClientRules) {
        let mut in_force = self.rules.write();
        self.keeps_some_out.store(rules.keep_some_out(), Ordering::Release);
        *in_force = rules;
    }

    /// Whether blocks of this client are kept out of the cache.
    #[must_use]
    pub fn keeps_out(&self, client: &Client) -> bool {
        self.keeps_some_out.load(Ordering::Acquire) && !self.rules.read().caches(client)
    }

    /// Requests whose blocks the rules kept out, since it was made or [`zero`](Self::zero)ed.
    #[must_use]
    pub fn requests_kept_out(&self) -> u64 {
        self.kept_out.load(Ordering::Relaxed)
    }

    /// Begins to count anew.
    pub fn zero(&self) {
        self.kept_out.store(0, Ordering::Relaxed);
    }
}

/// The same bytes in two ways, of which each request takes the one that the rules have for its client.
pub struct ClientExport {
    cached: Arc<dyn Export>,
    uncached: Arc<dyn Export>,
    admission: Arc<Admission>,
}

impl ClientExport {
    /// Requests of clients that `admission` keeps out go to `uncached`, the others to `cached`.
    #[must_use]
    pub fn new(cached: Arc<dyn Export>, uncached: Arc<dyn Export>, admission: Arc<Admission>) -> Self {
        Self { cached, uncached, admission }
    }
}

/// Whether a cache may take something in for it.
fn brings_something_in(operation: &Operation) -> bool {
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

    fn submit(&self, operation: Operation, caller: Caller) {
        self.submit_for(&Client::Unknown, operation, caller);
    }

    fn submit_for(&self, client: &Client, operation: Operation, caller: Caller) {
        if self.admission.keeps_out(client) && brings_something_in(&operation) {
            self.admission.kept_out.fetch_add(1, Ordering::Relaxed);
            return self.uncached.submit(operation, caller);
        }
        self.cached.submit(operation, caller);
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
