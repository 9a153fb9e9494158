//! Connection slots: the limits on concurrent clients, and the choice of the connection that is closed for a new client.
//!
//! Handshakes have a limit of their own, so a flood of half-open connections delays only other handshakes. A client
//! takes a slot after its handshake. If no slot is free, an idle connection is closed. It belongs to the process or IP address
//! with the most connections, and has the longest idle time there. A connection with requests in flight stays open,
//! unless its client stalls in the middle of a request or does not read its replies.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::Clock;
use parking_lot::{Condvar, Mutex};

use super::link::Link;
use crate::export::Client;

/// Interval at which a waiting client checks whether a connection has become idle.
const RETRY: Duration = Duration::from_millis(50);

/// Limits of a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum number of clients after their handshakes.
    pub connections: usize,
    /// Maximum number of clients at one IP address (IPv6: one /64 network).
    pub connections_per_address: usize,
    /// Maximum number of concurrent handshakes.
    pub handshakes: usize,
    /// Idle time after which a connection may be closed for a new client.
    pub idle_ns: u64,
    /// As `idle_ns`, for a client that stalls in the middle of a request or does not read its replies.
    pub stalled_ns: u64,
}

/// The slots of a server.
pub(super) struct Slots {
    limits: Limits,
    clock: Arc<dyn Clock>,
    table: Mutex<Table>,
    /// Notified when a connection ends.
    freed: Condvar,
}

#[derive(Default)]
struct Table {
    next_id: u64,
    /// In the order in which they were accepted.
    entries: Vec<Entry>,
    /// Number of connections closed for new ones.
    displaced: u64,
}

struct Entry {
    id: u64,
    peer: Peer,
    link: Arc<Link>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshake,
    /// The handshake is complete except for the last reply, which waits for a slot.
    Waiting,
    Serving,
    /// Closed for a new client; its thread has not ended yet.
    Displaced,
}

/// Identifies the connections of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Process(u32),
    Network(IpAddr),
    Unknown,
}

impl Peer {
    fn of(client: &Client) -> Self {
        match *client {
            Client::Process { pid, .. } | Client::Thread { tid: pid, .. } => Self::Process(pid),
            Client::Remote(IpAddr::V6(address)) => {
                // A host usually has a /64 network.
                Self::Network(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into())
            }
            Client::Remote(address) => Self::Network(address),
            Client::Unknown => Self::Unknown,
        }
    }
}

/// A connection's entry in the table, released on drop.
pub(super) struct Slot {
    slots: Arc<Slots>,
    id: u64,
}

impl Slots {
    pub fn new(limits: Limits, clock: Arc<dyn Clock>) -> Self {
        Self { limits, clock, table: Mutex::default(), freed: Condvar::new() }
    }

    /// Adds a new connection in the handshake stage. At the limit it displaces the oldest handshake of the client with the most.
    /// `None` if too many displaced connections have not ended yet.
    pub fn begin_handshake(self: &Arc<Self>, client: &Client, link: &Arc<Link>) -> Option<Slot> {
        let mut table = self.table.lock();
        let Limits { connections, handshakes, .. } = self.limits;
        if table.entries.len() >= connections + 2 * handshakes {
            return None;
        }
        if table.count(Entry::is_in_handshake) >= handshakes {
            table.displace(
                |entry| entry.is_in_handshake().then_some(entry.stage == Stage::Handshake),
                Entry::is_in_handshake,
            );
        }
        let id = table.next_id;
        table.next_id += 1;
        let (peer, link) = (Peer::of(client), Arc::clone(link));
        table.entries.push(Entry { id, peer, link, stage: Stage::Handshake });
        Some(Slot { slots: Arc::clone(self), id })
    }

    /// Number of connections closed for new ones.
    pub fn displaced(&self) -> u64 {
        self.table.lock().displaced
    }

    fn take_slot(&self, table: &mut Table, id: u64) -> Taken {
        let Some(peer) = table.entry(id).filter(|entry| entry.is_in_handshake()).map(|entry| entry.peer)
        else {
            return Taken::Never;
        };
        let of_peer = table.count(|entry| entry.is_serving() && entry.peer == peer);
        let is_limited = matches!(peer, Peer::Network(_)) && of_peer >= self.limits.connections_per_address;
        let is_full = table.count(Entry::is_serving) >= self.limits.connections;
        if is_limited || is_full {
            let now_ns = self.clock.monotonic_ns();
            let Limits { idle_ns, stalled_ns, .. } = self.limits;
            let quiet_since = |entry: &Entry| {
                let is_candidate = entry.is_serving() && (!is_limited || entry.peer == peer);
                let since_ns =
                    is_candidate.then(|| entry.link.quiet_since(now_ns, idle_ns, stalled_ns))??;
                Some(Reverse(since_ns))
            };
            if !table.displace(quiet_since, Entry::is_serving) {
                table.set_stage(id, Stage::Waiting);
                return Taken::NotYet;
            }
        }
        table.set_stage(id, Stage::Serving);
        Taken::Now
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Now,
    NotYet,
    /// The connection was closed meanwhile.
    Never,
}

impl Slot {
    /// Takes a slot after the handshake, waiting for one until `deadline_ns`. Returns whether it got one.
    pub fn begin_serving(&self, deadline_ns: u64, closing: &AtomicBool) -> bool {
        let slots = &self.slots;
        let mut table = slots.table.lock();
        loop {
            match slots.take_slot(&mut table, self.id) {
                Taken::Now => return true,
                Taken::Never => return false,
                Taken::NotYet => {}
            }
            if closing.load(Ordering::Acquire) || slots.clock.monotonic_ns() >= deadline_ns {
                return false;
            }
            slots.freed.wait_for(&mut table, RETRY);
        }
    }

    /// Whether the connection was closed for a new one.
    pub fn is_displaced(&self) -> bool {
        self.slots.table.lock().entry(self.id).is_some_and(|entry| entry.stage == Stage::Displaced)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.table.lock().entries.retain(|entry| entry.id != self.id);
        self.slots.freed.notify_all();
    }
}

impl Entry {
    fn is_in_handshake(&self) -> bool {
        matches!(self.stage, Stage::Handshake | Stage::Waiting)
    }

    fn is_serving(&self) -> bool {
        self.stage == Stage::Serving
    }
}

impl Table {
    fn count(&self, is_counted: impl Fn(&Entry) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_counted(entry)).count()
    }

    fn entry(&self, id: u64) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    fn set_stage(&mut self, id: u64, stage: Stage) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == id) {
            entry.stage = stage;
        }
    }

    /// Closes one connection and returns true, or returns false if `rank` is `None` for all. The order of choice: a peer with more
    /// entries that satisfy `is_counted`, a higher rank, an earlier accept.
    fn displace<R: Ord>(
        &mut self,
        rank: impl Fn(&Entry) -> Option<R>,
        is_counted: fn(&Entry) -> bool,
    ) -> bool {
        let of_peer = |peer: Peer| self.count(|entry| is_counted(entry) && entry.peer == peer);
        let ranked = self.entries.iter().enumerate().filter_map(|(place, entry)| {
            rank(entry).map(|rank| ((of_peer(entry.peer), rank, Reverse(place)), place))
        });
        let Some((_, place)) = ranked.max_by(|(a, _), (b, _)| a.cmp(b)) else { return false };
        let entry = &mut self.entries[place];
        entry.stage = Stage::Displaced;
        entry.link.close();
        self.displaced += 1;
        true
    }
}
