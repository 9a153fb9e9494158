//! Reading an item: one lookup in the index, at most one transfer.
//!
//! No lock is held during the transfer, so the region may be reclaimed and filled again meanwhile. The reader compares the region's filling
//! before and after the transfer; if it changed, the data is discarded and the index searched again. The seal in the entry's checksum is a
//! second, independent check.

use std::ops::Range;
use std::sync::Arc;

use device::{IoBuffer, IoError, Request};
use futures_util::future::join_all;

use crate::KeyHash;
use crate::flash::{FlashValue, Waiting};

use super::entry::{Damage, Entry, Seal};
use super::index::Found;
use super::layout::{Layout, RegionId};
use super::stats::Counters;
use super::store::{Content, RegionStore};
use super::table::Filling;

/// How a read ended.
#[derive(Debug)]
pub enum Lookup {
    /// The value.
    Found(FlashValue),
    /// The index has no record of the key.
    Miss,
    /// The entry belongs to another key with the same hash bits, which was stored later.
    WrongKey,
    /// The item has expired; it is removed.
    Expired,
    /// The entry is damaged; it is removed.
    Damaged,
    /// The device failed the read. The item stays: the next read may succeed.
    Failed(IoError),
}

impl Lookup {
    /// The value, if there is one.
    #[must_use]
    pub fn found(self) -> Option<FlashValue> {
        match self {
            Self::Found(value) => Some(value),
            _ => None,
        }
    }
}

/// A region is filled in milliseconds and stays for minutes. A lookup that meets this many reclaims in a row returns a miss.
const MAX_LOOKS: usize = 16;

impl RegionStore {
    /// Reads the item of `key`. Never returns another key's value, a damaged one (if values have checksums), or one that was removed or
    /// replaced before the call.
    pub async fn read(&self, hash: KeyHash, key: &[u8], waiting: Waiting) -> Lookup {
        Counters::one(&self.counters.reads);
        for _ in 0..MAX_LOOKS {
            let Some(found) = self.index.hit(hash) else { return Lookup::Miss };
            if let Some(lookup) = self.look(hash, key, found, waiting).await {
                self.count(&lookup, hash, found);
                return lookup;
            }
            Counters::one(&self.counters.read_retries);
        }
        Lookup::Miss
    }

    /// Looks up the item at the address in `found`. `None` if the region's content changed before the end of the read.
    async fn look(&self, hash: KeyHash, key: &[u8], found: Found, waiting: Waiting) -> Option<Lookup> {
        let (region, unit) = self.layout.place(found.address);
        let content = self.region(region).content.lock().clone();
        match content {
            Content::Clean | Content::Retired => None,
            Content::Buffered(buffer) => {
                let lookup = buffer.entry(unit, hash, |bytes| self.look_in_memory(bytes, buffer.seal, key));
                // If no entry of this hash begins there, the address is out of date, or belongs to a key with the same index record.
                lookup.or_else(|| self.index.get_at(hash, found.address).map(|_| Lookup::WrongKey))
            }
            Content::Flash { filling, .. } => {
                self.look_on_flash(hash, region, unit, found, filling, key, waiting).await
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what the index, the region and the caller know, once each"
    )]
    async fn look_on_flash(
        &self,
        hash: KeyHash,
        region: RegionId,
        unit: u32,
        found: Found,
        filling: Filling,
        key: &[u8],
        waiting: Waiting,
    ) -> Option<Lookup> {
        let unit_bytes = self.layout.unit_bytes as usize;
        let start = unit as usize * unit_bytes;
        let end = (start + found.size.units() as usize * unit_bytes).min(self.layout.region_bytes as usize);
        let blocks = self.layout.covering_blocks(&(start..end));
        let read = self.read_blocks(region, blocks.clone(), waiting).await;
        // In this order: the address may be older than the filling, but an address that was in the index while the filling was valid
        // belongs to it.
        if self.index.get_at(hash, found.address).is_none() || !self.holds(region, filling) {
            return None;
        }
        let buffer = match read {
            Ok(buffer) => buffer,
            Err(error) => return Some(Lookup::Failed(error)),
        };
        Counters::add(&self.counters.read_bytes, buffer.len());
        let within = start - blocks.start;
        let seal = Seal::of(filling.store, filling.sequence);
        Some(match self.judge(&buffer[within..], seal, key) {
            Err(unfit) => unfit,
            Ok(entry) => {
                let value = within + entry.value.start..within + entry.value.end;
                Lookup::Found(FlashValue::read(buffer, value, entry.expiry_seconds, entry.tag))
            }
        })
    }

    fn look_in_memory(&self, bytes: &[u8], seal: Seal, key: &[u8]) -> Lookup {
        match self.judge(bytes, seal, key) {
            Err(unfit) => unfit,
            Ok(entry) => {
                Counters::one(&self.counters.hits_in_memory);
                let value: Arc<[u8]> = bytes[entry.value].into();
                let whole = 0..value.len();
                Lookup::Found(FlashValue::in_memory(value, whole, entry.expiry_seconds, entry.tag))
            }
        }
    }

    /// The entry at the start of `bytes`, if it is valid, belongs to this key and has not expired; otherwise the result of the lookup.
    fn judge(&self, bytes: &[u8], seal: Seal, key: &[u8]) -> Result<Entry, Lookup> {
        let entry = Entry::decode(bytes, seal).map_err(|damage| self.damaged(damage))?;
        if bytes[entry.key.clone()] != *key {
            return Err(Lookup::WrongKey);
        }
        if entry.is_expired(self.clock.unix_seconds()) {
            return Err(Lookup::Expired);
        }
        entry.verify_value(bytes).map_err(|damage| self.damaged(damage))?;
        Ok(entry)
    }

    /// Counts damage.
    pub(super) fn damaged(&self, damage: Damage) -> Lookup {
        Counters::one(match damage {
            Damage::Header => &self.counters.header_checksum_errors,
            Damage::Value => &self.counters.value_checksum_errors,
        });
        Lookup::Damaged
    }

    /// Whether the region still holds this filling, on flash.
    pub(super) fn holds(&self, region: RegionId, expected: Filling) -> bool {
        matches!(*self.region(region).content.lock(), Content::Flash { filling, .. } if filling == expected)
    }

    /// Reads whole blocks of a region.
    pub(super) async fn read_blocks(
        &self,
        region: RegionId,
        blocks: Range<usize>,
        waiting: Waiting,
    ) -> Result<IoBuffer, IoError> {
        let base = self.layout.region_offset(region);
        let start = |piece: Range<usize>| {
            waiting.start(&*self.device, Request::read(base + piece.start as u64, piece.len()))
        };
        let max_bytes = self.layout.max_read_bytes;
        if blocks.len() <= max_bytes as usize {
            return start(blocks).await;
        }
        let pieces = join_all(Layout::pieces(blocks.clone(), max_bytes).map(start)).await;
        let mut whole = IoBuffer::zeroed(blocks.len());
        for (into, piece) in whole.chunks_mut(max_bytes as usize).zip(pieces) {
            into.copy_from_slice(&piece?);
        }
        Ok(whole)
    }

    fn count(&self, lookup: &Lookup, hash: KeyHash, found: Found) {
        let counters = &self.counters;
        match lookup {
            Lookup::Found(_) => {
                Counters::one(&counters.hits);
                if self.needs.hits {
                    self.report_hit(hash, found);
                }
            }
            Lookup::Miss => {}
            Lookup::WrongKey => Counters::one(&counters.wrong_key),
            Lookup::Failed(_) => Counters::one(&counters.read_errors),
            Lookup::Expired => {
                Counters::one(&counters.expired);
                // The destructor needs the item: reclaim removes it after reading it.
                if self.on_destructor.is_some() {
                    return;
                }
                if self.take_out(|index| index.remove_at(hash, found.address)).is_some() {
                    self.record_removal(found.address);
                }
            }
            Lookup::Damaged => self.lose_item(hash, found.address),
        }
    }

    /// Reports a hit to the policy, which may move the item. The item may have been moved or removed since the lookup.
    fn report_hit(&self, hash: KeyHash, found: Found) {
        let mut policy = self.policy.lock();
        if !self.needs.items {
            policy.hit(&self.resident(found));
            return;
        }
        let mut raised = None;
        self.index.rank_at(hash, found.address, |found| {
            let item = self.resident(found);
            let raise = policy.hit(&item)?;
            raised = Some((item, raise));
            Some(raise.rank)
        });
        if let Some((item, raise)) = raised {
            policy.raised(&item, raise);
        }
    }
}
