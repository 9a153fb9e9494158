//! The flash tier, for items that DRAM evicted.
//!
//! A device has one engine for small items, either [`soc`] (set-associative buckets) or [`log`] (a log in hash order), and [`region`] for
//! all larger ones (a log of regions). This module defines their common interface: an item to be written, a value that was read, and how
//! a caller waits for the device.

pub mod chain;
#[cfg(test)]
mod crash_histories;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod held_back;
pub(crate) mod journal;
pub mod log;
pub(crate) mod outage;
pub(crate) mod pair;
pub(crate) mod pair_store;
pub(crate) mod puts;
pub(crate) mod read_ahead;
pub mod region;
pub(crate) mod reports;
mod small;
pub mod soc;
pub mod superblock;
pub(crate) mod tag;
pub(crate) mod tier;

use std::ops::{Deref, Range};
use std::sync::Arc;

use device::{Device, IoBuffer, Pending, Request};
use event_listener::{Event, EventListener, Listener};

pub use journal::JournalOptions;
pub(crate) use small::SmallEngine;

use crate::KeyHash;
use crate::config::Removal;

/// An item to be written to flash.
#[derive(Debug, Clone, Copy)]
pub struct FlashItem<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its hash.
    pub hash: KeyHash,
    /// The value, as consecutive pieces (a chain of items has several).
    pub value: &'a [&'a [u8]],
    /// Unix second at which the item expires; 0 is never.
    pub expiry_seconds: u32,
    /// Opaque to the engines. The hybrid cache stores here whether the value is a chain, and the item's pool.
    pub tag: u16,
}

impl FlashItem<'_> {
    /// Bytes of the value.
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.value.iter().map(|piece| piece.len()).sum()
    }

    /// Copies the value into `into`, which must have the same length.
    pub fn copy_value(&self, mut into: &mut [u8]) {
        for piece in self.value {
            let (head, tail) = into.split_at_mut(piece.len());
            head.copy_from_slice(piece);
            into = tail;
        }
    }
}

/// A value from flash: bytes inside the buffer of the read.
#[derive(Debug)]
pub struct FlashValue {
    bytes: Bytes,
    range: Range<usize>,
    /// Unix second at which the item expires; 0 is never.
    pub expiry_seconds: u32,
    /// The value of [`FlashItem::tag`].
    pub tag: u16,
}

#[derive(Debug)]
enum Bytes {
    Read(IoBuffer),
    Memory(Arc<[u8]>),
}

impl FlashValue {
    /// A value inside a buffer that was read.
    #[must_use]
    pub fn read(buffer: IoBuffer, range: Range<usize>, expiry_seconds: u32, tag: u16) -> Self {
        Self { bytes: Bytes::Read(buffer), range, expiry_seconds, tag }
    }

    /// A value of an item that is still in memory.
    #[must_use]
    pub fn in_memory(bytes: Arc<[u8]>, range: Range<usize>, expiry_seconds: u32, tag: u16) -> Self {
        Self { bytes: Bytes::Memory(bytes), range, expiry_seconds, tag }
    }
}

impl Deref for FlashValue {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Read(buffer) => &buffer[self.range.clone()],
            Bytes::Memory(bytes) => &bytes[self.range.clone()],
        }
    }
}

/// Called with an item that an engine evicts or that has expired there; its value is in one piece. The second argument removes the item
/// from the engine, and returns `false` if it was removed or stored again meanwhile: the callback calls it once, and may lock the key
/// around the call. Runs on the engine's thread, with no lock held.
pub type OnEviction = Arc<dyn Fn(&FlashItem<'_>, &mut dyn FnMut() -> bool) + Send + Sync>;

/// Called with a removed item whose destructor must be called, and the reason. Runs with no lock held.
pub type DestructorCallback = Arc<dyn Fn(&FlashItem<'_>, Removal) + Send + Sync>;

/// Whether a callback receives items with this hash. Always the same for one hash.
pub type HashFilter = Arc<dyn Fn(KeyHash) -> bool + Send + Sync>;

/// How the caller waits for the device. The engines' code is the same for both: with [`Waiting::Thread`], a transfer is complete when
/// `start` returns, so the future that contains it never waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The calling thread makes the transfer itself, with one system call.
    Thread,
    /// The caller is a task and awaits the transfer; many may be in flight.
    Task,
}

impl Waiting {
    /// Starts `request` on `device`.
    pub fn start(self, device: &dyn Device, request: Request) -> Pending {
        match self {
            Self::Thread => Pending::ready(device.execute(request)),
            Self::Task => device.start(request),
        }
    }

    /// Starts a read whose result is needed after those of others. As [`start`](Self::start), but with [`Waiting::Thread`] the kernel
    /// makes several of them at the same time. Devices without an engine, such as simulated ones, complete it within the call.
    fn start_ahead(self, device: &dyn Device, request: Request) -> Pending {
        match self {
            Self::Thread if device.engine().is_some() => device.start(request),
            _ => self.start(device, request),
        }
    }

    /// Waits for a notification.
    async fn notified(self, listener: EventListener) {
        match self {
            Self::Thread => listener.wait(),
            Self::Task => listener.await,
        }
    }

    /// Waits until `is_over`, which is checked again after each notification of `event`.
    async fn until(self, event: &Event, is_over: impl Fn() -> bool) {
        while !is_over() {
            let listener = event.listen();
            if is_over() {
                return;
            }
            self.notified(listener).await;
        }
    }
}
