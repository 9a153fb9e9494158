//! Results of inserts, and errors of opening and closing a cache.

use std::fmt;

use device::IoError;

use crate::dram::{AllocateError, MAX_KEY_BYTES};

/// The result of an insert. Each insert has exactly one, which is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// The next get finds the item.
    Stored,
    /// The item was refused, and the old value of the key was removed nevertheless.
    Rejected(Refusal),
}

/// Why an item was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The value is larger than [`Cache::max_item_bytes`](crate::Cache::max_item_bytes).
    TooLarge {
        /// Size of the value, and of the part of its key beyond 255 bytes.
        bytes: usize,
        /// Size of the largest value.
        max_bytes: usize,
    },
    /// The key is too long; the value is its length.
    KeyLength(usize),
    /// The items that could be evicted are pinned by existing items and drafts: all of them, or the first thousand in eviction order. A
    /// chain is pinned with its item, so a chain that fills its size class accepts no further chained item of that class.
    AllPinned,
    /// There is no item under the key to add a chained item to.
    NoParent,
    /// The pool does not exist.
    NoSuchPool(u8),
    /// Flash writes are behind, and the caller does not wait, or reached its time limit: see [`try_insert`](crate::Cache::try_insert)
    /// and [`insert_within`](crate::Cache::insert_within).
    FlashBehind,
    /// The cache is closed, or is being closed.
    Closed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, max_bytes } => {
                write!(f, "the value has {bytes} bytes; at most {max_bytes} are accepted (max_item_bytes)")
            }
            Self::KeyLength(len) => {
                write!(f, "the key has {len} bytes; at most {MAX_KEY_BYTES} are supported")
            }
            Self::AllPinned => {
                f.write_str("all items that could be evicted are in use, or chained to an item in use")
            }
            Self::NoParent => f.write_str("there is no item to chain to"),
            Self::NoSuchPool(pool) => write!(f, "there is no pool {pool}"),
            Self::FlashBehind => {
                f.write_str("DRAM is full, and flash did not accept evicted items within the time limit")
            }
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
            // `Busy` occurs only with a flash tier, and then the caller waits and retries.
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
    /// The device holds other data, and the configuration does not permit overwriting it: see
    /// [`Recovery`](crate::config::Recovery).
    #[error("{0}")]
    Occupied(String),
    /// The device failed.
    #[error("{context}: {source}")]
    Device {
        /// The operation.
        context: &'static str,
        /// The device's error.
        source: IoError,
    },
    /// Writes to flash failed, and the items in them were lost.
    #[error("{items} items were lost: the flash device fails")]
    Lost {
        /// Number of lost items, as far as it is known.
        items: u64,
    },
    /// The deadline passed before everything was written: the device does not respond, or is too slow.
    #[error(
        "the cache was not closed before the deadline: {dram_items} items in DRAM and {waiting_bytes} bytes of items on their way to \
         flash were not written, and the next cache on the device starts empty; close it again once the device responds"
    )]
    Unfinished {
        /// Items in DRAM, including those that flash holds as well.
        dram_items: usize,
        /// Key and value bytes that were evicted from DRAM and are not on flash.
        waiting_bytes: u64,
    },
    /// Another call is closing the cache.
    #[error("the cache is being closed by another call")]
    Closing,
    /// Keys were removed repeatedly while the snapshot was written. It would restore them, so it is invalid.
    #[error("keys were removed while the snapshot was written: stop removing, and close the cache again")]
    StillRemoving,
    /// The snapshot for recovery could not be written: the next cache starts empty.
    #[error("writing the snapshot: {0}")]
    Snapshot(#[from] crate::flash::superblock::SnapshotError),
    /// A background thread could not be started.
    #[error("starting the background threads: {0}")]
    Threads(std::io::Error),
}
