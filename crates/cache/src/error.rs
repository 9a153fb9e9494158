//! How an insert can end, and why a cache does not open.

use std::fmt;

use device::IoError;

use crate::dram::{AllocateError, MAX_KEY_BYTES};

/// How an insert ended: exactly one of these, and each is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// The next get finds it.
    Stored,
    /// It was not taken, and what the key held before is gone all the same.
    Rejected(Refusal),
}

/// Why an item was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Key and value need more than the largest allocation class holds.
    TooLarge {
        /// Bytes asked for, header included.
        bytes: usize,
        /// Bytes of the largest class.
        max_bytes: usize,
    },
    /// Keys have a longest length.
    KeyLength(usize),
    /// What could make room is pinned by items and drafts that somebody holds: everything, or more than a thousand that would have
    /// been next to leave. A chain is pinned with its item: one that has all the room of a size class takes no further piece of
    /// that class.
    AllPinned,
    /// There is no item under this key to chain to.
    NoParent,
    /// The pool does not exist.
    NoSuchPool(u8),
    /// Flash is behind with its writes, and the caller does not wait, or has waited as long as it would: see
    /// [`try_insert`](crate::Cache::try_insert) and [`insert_within`](crate::Cache::insert_within).
    FlashBehind,
    /// The cache is closed, or is being closed.
    Closed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, max_bytes } => {
                write!(f, "the item needs {bytes} bytes, but the largest allocation class has {max_bytes}")
            }
            Self::KeyLength(len) => {
                write!(f, "the key has {len} bytes; at most {MAX_KEY_BYTES} are supported")
            }
            Self::AllPinned => {
                f.write_str("everything that could make room is in use, or chained to what is in use")
            }
            Self::NoParent => f.write_str("there is no item to chain to"),
            Self::NoSuchPool(pool) => write!(f, "there is no pool {pool}"),
            Self::FlashBehind => f.write_str(
                "DRAM is full, and flash has not taken what must leave it within the time allowed",
            ),
            Self::Closed => f.write_str("the cache is closed"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<AllocateError> for Refusal {
    fn from(error: AllocateError) -> Self {
        match error {
            AllocateError::TooLarge { bytes, max } => Self::TooLarge { bytes, max_bytes: max },
            AllocateError::KeyTooLong { bytes } => Self::KeyLength(bytes),
            // Without a flash tier nothing is ever busy; with one, the caller waits and tries again.
            AllocateError::NoMemory | AllocateError::Busy => Self::AllPinned,
        }
    }
}

/// Why a cache could not be opened, settled or closed.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The configuration contradicts itself or the device.
    #[error("{0}")]
    Config(String),
    /// The device holds something that is not this cache's and was not asked to be replaced: see
    /// [`Recovery`](crate::Recovery).
    #[error("{0}")]
    Occupied(String),
    /// The device failed.
    #[error("{context}: {source}")]
    Device {
        /// What was being done.
        context: &'static str,
        /// What the device said.
        source: IoError,
    },
    /// Writes to flash failed, and with them what was to be written.
    #[error("{items} items were lost: the flash device fails")]
    Lost {
        /// How many, as far as they could be counted.
        items: u64,
    },
    /// The deadline passed before everything was written: the device does not respond, or is too slow.
    #[error(
        "the cache was not closed before the deadline: {dram_items} items in DRAM and {waiting_bytes} bytes of items on their way to \
         flash were not written, and the next cache on the device starts empty; close it again once the device responds"
    )]
    Unfinished {
        /// Items in DRAM, those included that flash has as well.
        dram_items: usize,
        /// Bytes of keys and values that have left DRAM and are not on flash.
        waiting_bytes: u64,
    },
    /// Another call is closing the cache.
    #[error("the cache is being closed by another call")]
    Closing,
    /// Keys were removed again and again while the snapshot was written. It would bring them back, so it does not count.
    #[error("keys were removed while the snapshot was written: stop removing, and close the cache again")]
    StillRemoving,
    /// What a restart needs could not be written: the cache will come back empty.
    #[error("writing the snapshot: {0}")]
    Snapshot(#[from] crate::flash::superblock::SnapshotError),
    /// A background thread could not be started.
    #[error("starting the background threads: {0}")]
    Threads(std::io::Error),
}
