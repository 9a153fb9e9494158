//! A lookup: items in memory, then the candidate regions, one page each, from new to old.

use std::sync::Arc;

use device::{IoBuffer, Request};

use super::index::{Address, Candidates};
use super::page::{Page, Unusable};
use super::{HashLog, Region, Shard};
use crate::KeyHash;
use crate::flash::{FlashValue, Waiting};
use crate::sync::MutexGuard;

/// Attempts of a lookup that evictions and removals overtake, before it returns a miss.
const ATTEMPTS: usize = 8;

/// The result of reading the candidates.
enum Outcome {
    Done(Option<FlashValue>),
    /// A candidate changed during the read.
    Overtaken,
}

struct Lookup<'a> {
    log: &'a HashLog,
    hash: KeyHash,
    key: &'a [u8],
    address: Address,
    waiting: Waiting,
    now_seconds: u32,
}

impl HashLog {
    /// Looks `key` up, usually by one read of a page.
    pub async fn read(
        &self,
        hash: KeyHash,
        key: &[u8],
        waiting: Waiting,
        now_seconds: u32,
    ) -> Option<FlashValue> {
        let address = self.address(hash);
        let lookup = Lookup { log: self, hash, key, address, waiting, now_seconds };
        for attempt in 0..ATTEMPTS {
            let candidates = match lookup.search_memory(attempt) {
                Ok(answer) => return answer,
                Err(candidates) => candidates,
            };
            if let Outcome::Done(answer) = lookup.read_candidates(candidates).await {
                return answer;
            }
        }
        self.shard(hash).lock().stats.lookups_given_up += 1;
        None
    }
}

impl HashLog {
    pub(super) async fn read_page(&self, region: &Region, page: u32, waiting: Waiting) -> Option<IoBuffer> {
        let offset = self.page_offset(region.start_page + u64::from(page));
        waiting.start(&*self.device, Request::read(offset, self.shape.page_bytes as usize)).await.ok()
    }
}

impl Lookup<'_> {
    fn shard(&self) -> MutexGuard<'_, Shard> {
        self.log.shard(self.hash).lock()
    }

    /// The answer if the key is in memory or absent, otherwise the regions to read.
    fn search_memory(&self, attempt: usize) -> Result<Option<FlashValue>, Candidates> {
        let mut shard = self.shard();
        shard.stats.lookups += u64::from(attempt == 0);
        let Some(item) = shard.tables.find(self.hash, self.key) else {
            let removed = shard.removals.removed_through(self.hash);
            let candidates = shard.lines.candidates(&self.address, self.log.live()).after(removed);
            return if candidates.as_slice().is_empty() { Ok(None) } else { Err(candidates) };
        };
        let value = usize::from(item.key_len)..item.bytes.len();
        let (bytes, expiry_seconds, tag) = (Arc::clone(&item.bytes), item.expiry_seconds, item.tag);
        if is_expired(expiry_seconds, self.now_seconds) {
            shard.stats.expired_lookups += 1;
            return Ok(None);
        }
        shard.stats.hits += 1;
        shard.stats.hits_pending += 1;
        Ok(Some(FlashValue::in_memory(bytes, value, expiry_seconds, tag)))
    }

    async fn read_candidates(&self, candidates: Candidates) -> Outcome {
        for &sequence in candidates.as_slice() {
            let Some(region) = self.log.region(sequence) else { return Outcome::Overtaken };
            let Some(page_number) = region.fences.page_of(self.hash) else { continue };
            let read = self.log.read_page(&region, page_number, self.waiting).await;
            // Verified and searched before the shard is locked.
            let searched = read.as_ref().map(|bytes| {
                let found = Page::find(bytes, self.log.identity(&region, page_number), self.key)?;
                Ok(found.map(|it| (it.value_range(), it.expiry_seconds, it.tag)))
            });
            let mut shard = self.shard();
            shard.stats.bucket_reads += 1;
            let live = self.log.live();
            let is_hidden = sequence < live.min || sequence <= shard.removals.removed_through(self.hash);
            let entry = shard.lines.find(&self.address, sequence, live).filter(|_| !is_hidden);
            let Some(entry) = entry else { return Outcome::Overtaken };
            // A page that cannot be verified may have held the key: the lookup must not return a version of an older region instead.
            let (Some(buffer), Some(searched)) = (read, searched) else {
                shard.stats.read_errors += 1;
                return Outcome::Done(None);
            };
            let found = match searched {
                Ok(found) => found,
                Err(why) => {
                    match why {
                        Unusable::Other => shard.stats.stale_buckets += 1,
                        Unusable::Damaged => shard.stats.checksum_errors += 1,
                    }
                    return Outcome::Done(None);
                }
            };
            let Some((value, expiry_seconds, tag)) = found else {
                shard.stats.filter_false_positives += 1;
                continue;
            };
            if is_expired(expiry_seconds, self.now_seconds) {
                shard.stats.expired_lookups += 1;
                return Outcome::Done(None);
            }
            shard.stats.hits += 1;
            shard.lines.mark_hit(entry);
            drop(shard);
            region.hit_pages.add(page_number);
            return Outcome::Done(Some(FlashValue::read(buffer, value, expiry_seconds, tag)));
        }
        Outcome::Done(None)
    }
}

/// Whether an item with this expiry time is expired.
pub(super) fn is_expired(expiry_seconds: u32, now_seconds: u32) -> bool {
    expiry_seconds != 0 && expiry_seconds <= now_seconds
}
