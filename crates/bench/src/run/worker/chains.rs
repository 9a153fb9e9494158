//! Requests for chained items.

use async_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use workload::Request;

use super::{CHAIN_LOCKS, Worker, fold};
use crate::run::latency::Timed;
use crate::run::target::Target;

impl<'a, T: Target> Worker<'a, T> {
    /// Adds the request's chained items to its item, which is set first if it is absent.
    pub(super) async fn add_chained(&mut self, request: &Request<'_>) {
        let _chain = self.write_chain(request.key_id).await;
        self.stats.counting.add_chained.one();
        // A checked chain is rewritten, so that its contents are known without reading it.
        let checked = self.shared.checking.is_some();
        let present = !checked && self.shared.target.get(request.key).await.is_some();
        let how = self.how(request, false);
        if (present || self.set_locked(request, how).await) && self.append_links(request).await {
            return;
        }
        self.stats.counting.add_chained_failures.one();
    }

    /// After a missed get, adds the chained items of the inserted item.
    pub(super) async fn chain_after_miss(&mut self, request: &Request<'_>) {
        if request.chain_bytes.is_empty() || self.shared.checking.is_some() {
            return;
        }
        if !self.append_links(request).await {
            self.stats.counting.add_chained_failures.one();
        }
    }

    /// Adds the request's chained items one by one; returns whether all were added. In a checked run each addition is a version of
    /// its own, combined from the parent's and those of the chained items so far.
    pub(super) async fn append_links(&mut self, request: &Request<'_>) -> bool {
        let mut versions = vec![self.version_now()];
        for link_bytes in request.chain_bytes {
            let version = self.next_version();
            versions.push(version);
            let now = fold(&versions);
            let shared = self.shared;
            let checking = shared.checking.as_ref();
            let begun = checking.map(|checking| checking.checker.begin_set(request.key_id, now));
            let link_bytes = self.value_bytes(u64::from(*link_bytes));
            let started = self.start_timing();
            let added = shared.target.chain(request.key, link_bytes, |link| {
                shared.fill(link, request.key_id, version);
            });
            let added = added.await;
            self.end_timing(Timed::AddChained, started);
            match (checking, begun) {
                (Some(checking), Some(begun)) if added => {
                    checking.checker.end_set(request.key_id, begun, now);
                }
                (Some(checking), Some(begun)) => checking.checker.abort_set(request.key_id, begun, now),
                _ => {}
            }
            if !added {
                return false;
            }
        }
        true
    }

    pub(super) async fn read_chain(&self, key_id: u64) -> Option<RwLockReadGuard<'a, ()>> {
        match self.chain_lock(key_id) {
            Some(lock) => Some(lock.read().await),
            None => None,
        }
    }

    pub(super) async fn write_chain(&self, key_id: u64) -> Option<RwLockWriteGuard<'a, ()>> {
        match self.chain_lock(key_id) {
            Some(lock) => Some(lock.write().await),
            None => None,
        }
    }

    pub(super) fn chain_lock(&self, key_id: u64) -> Option<&'a RwLock<()>> {
        let locks = self.shared.checking.as_ref()?.chain_locks.as_ref()?;
        Some(&locks[key_id as usize % CHAIN_LOCKS])
    }
}
