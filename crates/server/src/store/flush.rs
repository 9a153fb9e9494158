//! `flush_all`, immediately or at a given time.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use super::Store;
use crate::protocol::{Exptime, Ttl};

/// No flush is scheduled.
const NEVER: u64 = u64::MAX;

/// A flush that is to come.
#[derive(Debug)]
pub struct Flush {
    /// The Unix second.
    due_seconds: AtomicU64,
    /// Held by the flush under way.
    running: Mutex<()>,
}

impl Default for Flush {
    fn default() -> Self {
        Self { due_seconds: AtomicU64::new(NEVER), running: Mutex::new(()) }
    }
}

impl Store {
    /// Drops all items, immediately or when the delay is over. It replaces a flush that was scheduled before.
    pub async fn flush_all(&self, delay: Exptime) {
        match delay.ttl(self.now_seconds()) {
            Ttl::Seconds(seconds) => {
                let due_seconds = u64::from(self.now_seconds()) + u64::from(seconds);
                self.flush.due_seconds.store(due_seconds, Ordering::SeqCst);
            }
            Ttl::Never | Ttl::Expired => {
                self.flush.due_seconds.store(NEVER, Ordering::SeqCst);
                let _running = self.flush.running.lock().await;
                self.drop_all_items().await;
            }
        }
    }

    /// Runs a scheduled flush whose time has come. Every operation calls it first, so none sees an item of before.
    #[inline]
    pub(super) async fn flush_if_due(&self) {
        if self.flush.due_seconds.load(Ordering::Relaxed) != NEVER {
            self.run_scheduled_flush().await;
        }
    }

    async fn run_scheduled_flush(&self) {
        let is_due = || self.flush.due_seconds.load(Ordering::SeqCst) <= u64::from(self.now_seconds());
        if !is_due() {
            return;
        }
        let _running = self.flush.running.lock().await;
        if is_due() {
            self.drop_all_items().await;
            self.flush.due_seconds.store(NEVER, Ordering::SeqCst);
        }
    }

    async fn drop_all_items(&self) {
        // An operation that has read an item and is about to write it would bring the item back.
        let mut guards = Vec::with_capacity(self.locks.len());
        for lock in &self.locks {
            guards.push(lock.lock().await);
        }
        self.cache.clear_async().await;
    }
}
