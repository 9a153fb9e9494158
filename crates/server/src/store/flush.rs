//! `flush_all`, immediately or at a given time.

use std::sync::atomic::{AtomicU64, Ordering};

use cache::CacheError;
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
    /// Locked by the flush in progress.
    running: Mutex<()>,
}

impl Flush {
    /// With a flush at a Unix second that an earlier server scheduled.
    pub fn at(due_seconds: Option<u32>) -> Self {
        Self { due_seconds: AtomicU64::new(due_seconds.map_or(NEVER, u64::from)), running: Mutex::new(()) }
    }
}

impl Store {
    /// Drops all items, immediately or when the delay is over, also if the server is restarted or killed meanwhile. It replaces a flush
    /// that was scheduled before.
    ///
    /// # Errors
    /// Flash could not be written: the flush takes place, but may be lost if the server ends before.
    pub async fn flush_all(&self, delay: Exptime) -> Result<(), CacheError> {
        let _running = self.flush.running.lock().await;
        match delay.ttl(self.now_seconds()) {
            Ttl::Seconds(seconds) => {
                let due_seconds = self.now_seconds().saturating_add(seconds);
                self.flush.due_seconds.store(due_seconds.into(), Ordering::SeqCst);
                self.cache.set_clear_time(Some(due_seconds)).await
            }
            Ttl::Never | Ttl::Expired => self.drop_all_items().await,
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
            // On an error, the next server flushes again, so that it has fewer items, but none that was flushed.
            let _ = self.drop_all_items().await;
        }
    }

    async fn drop_all_items(&self) -> Result<(), CacheError> {
        // An operation that has read an item and is about to write it would bring the item back.
        let mut guards = Vec::with_capacity(self.locks.len());
        for lock in &self.locks {
            guards.push(lock.lock().await);
        }
        self.cache.clear_async().await;
        drop(guards);
        self.flush.due_seconds.store(NEVER, Ordering::SeqCst);
        match self.cache.clear_time() {
            Some(_) => self.cache.set_clear_time(None).await,
            None => Ok(()),
        }
    }
}
