//! Visits the keys of all items: memory has only their hashes, so the regions are read.

use std::collections::HashMap;
use std::sync::Arc;

use crate::flash::Waiting;

use super::buffer::RegionBuffer;
use super::entry::{Entry, Seal};
use super::layout::RegionId;
use super::store::{Content, RegionStore};
use super::table::{self, Filling};

/// Maximum number of passes over the store. An item that is reinserted during a pass may move to a region that was already read; the next
/// pass reads the regions filled since.
const MOST_PASSES: usize = 8;

impl RegionStore {
    /// Calls `visit` with the key of every item, with some keys more than once. Unreadable regions are skipped.
    pub(crate) async fn visit_keys(&self, waiting: Waiting, visit: &mut impl FnMut(&[u8])) {
        let mut seen: HashMap<u32, (u64, usize)> = HashMap::new();
        for _ in 0..MOST_PASSES {
            let mut is_news = false;
            for region in (0..self.layout.region_count).map(RegionId) {
                let content = self.region(region).content.lock().clone();
                let (sequence, entries) = match &content {
                    Content::Clean | Content::Retired => continue,
                    Content::Buffered(buffer) => (buffer.filling.sequence, buffer.records().len()),
                    Content::Flash { filling, entries, .. } => (filling.sequence, *entries as usize),
                };
                if seen.insert(region.0, (sequence, entries)) == Some((sequence, entries)) {
                    continue;
                }
                is_news = true;
                match content {
                    Content::Buffered(buffer) => self.visit_buffer(&buffer, visit),
                    Content::Flash { filling, entries, .. } => {
                        self.visit_region(region, filling, entries as usize, waiting, visit).await;
                    }
                    Content::Clean | Content::Retired => {}
                }
            }
            if !is_news {
                return;
            }
        }
    }

    fn visit_buffer(&self, buffer: &Arc<RegionBuffer>, visit: &mut impl FnMut(&[u8])) {
        for record in buffer.records() {
            let address = self.layout.address(buffer.region, record.unit);
            let key = buffer.entry(record.unit, record.hash, |bytes| {
                let entry = Entry::decode(bytes, buffer.seal).ok()?;
                Some(bytes[entry.key].to_vec())
            });
            if let Some(key) = key.flatten()
                && self.index.get_at(record.hash, address).is_some()
            {
                visit(&key);
            }
        }
    }

    async fn visit_region(
        &self,
        region: RegionId,
        filling: Filling,
        entries: usize,
        waiting: Waiting,
        visit: &mut impl FnMut(&[u8]),
    ) {
        let whole = 0..self.layout.region_bytes as usize;
        let Ok(bytes) = self.read_blocks(region, whole, waiting).await else { return };
        if !self.holds(region, filling) {
            return;
        }
        let Ok(records) = table::decode(&bytes, entries, filling) else { return };
        let seal = Seal::of(filling.store, filling.sequence);
        for record in records.iter().filter(|record| record.live) {
            let start = record.unit as usize * self.layout.unit_bytes as usize;
            let Some(Ok(entry)) = bytes.get(start..).map(|bytes| Entry::decode(bytes, seal)) else {
                continue;
            };
            let address = self.layout.address(region, record.unit);
            if self.index.get_at(record.hash, address).is_some() {
                visit(&bytes[start..][entry.key]);
            }
        }
    }
}
