//! CAS numbers: unique, and larger than those of earlier servers on the same flash.
//!
//! A server starts from the Unix time in microseconds, or from the number that the last server stored when it closed, if that is
//! larger. The microseconds matter: a server that is killed and restarted within a second must not repeat numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use cache::{Cache, InsertOptions};
use device::Clock;

use crate::item::MAX_CAS;

/// The key under which the cache stores the last CAS number: longer than any key of a client.
const KEY: &[u8; 256] = &{
    let mut key = [b'.'; 256];
    let name = b"flashwright-server/last-cas-number";
    let mut place = 0;
    while place < name.len() {
        key[place] = name[place];
        place += 1;
    }
    key
};

const _: () = assert!(KEY.len() > crate::protocol::MAX_KEY_BYTES);

/// The source of CAS numbers.
#[derive(Debug)]
pub struct CasNumbers {
    last: AtomicU64,
}

impl CasNumbers {
    /// Starts above all numbers in the cache. Returns also whether the cache has an item with the last number.
    pub async fn recover(cache: &Cache, clock: &dyn Clock) -> (Self, bool) {
        let stored = cache.get(KEY).await.and_then(|item| Some(u64::from_le_bytes(*item.first_chunk()?)));
        let last = stored.unwrap_or(0).max(clock.unix_microseconds());
        (Self { last: AtomicU64::new(last) }, stored.is_some())
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        (self.last.fetch_add(1, Ordering::Relaxed) + 1) & MAX_CAS
    }

    /// Stores the last number.
    pub async fn persist(&self, cache: &Cache) {
        let last = self.last.load(Ordering::Relaxed).to_le_bytes();
        // If the cache cannot store it, the next server starts from the time.
        let _ = cache.insert(KEY, &last, InsertOptions::default()).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use device::VirtualClock;
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn server_restarted_within_a_second_without_its_cache_continues_above_earlier_numbers() {
        let clock = VirtualClock::default();
        let start = || {
            let cache = Cache::builder().dram_bytes(8 << 20).open().unwrap();
            let runtime = Builder::new_current_thread().build().unwrap();
            runtime.block_on(CasNumbers::recover(&cache, &clock)).0
        };
        let killed = start();
        let last = (0..100).map(|_| killed.next()).max().unwrap();
        clock.advance_by(200_000);
        assert!(start().next() > last);
    }
}
