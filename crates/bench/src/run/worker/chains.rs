//! Requests for chained items.

use async_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use workload::Request;

use super::{CHAIN_LOCKS, Worker, fold};
use crate::run::latency::Timed;
use crate::run::target::Target;

impl<'a, T: Target> Worker<'a, T> {
    /// The parent, set if it is not there, and the request's links behind it.
    pub(super) async fn add_chained(&mut self, request: &Request<'_>) {
        let _chain = self.write_chain(request.key_id).await;
        self.board.counting.add_chained.one();
        // A checked chain starts afresh: what it consists of is then known without reading it back.
        let checked = self.shared.checking.is_some();
        let present = !checked && self.shared.target.get(request.key).await.is_some();
        let how = self.how(request, false);
        if (present || self.set_locked(request, how).await) && self.hang(request).await {
            return;
        }
        self.board.counting.add_chained_failures.one();
    }

    /// A chained item that a get missed comes back with its chain.
    pub(super) async fn chain_after_miss(&mut self, request: &Request<'_>) {
        if request.chain_bytes.is_empty() || self.shared.checking.is_some() {
            return;
        }
        if !self.hang(request).await {
            self.board.counting.add_chained_failures.one();
        }
    }

    /// Hangs the request's links on its item. In a checked run each step is a version of its own: the parent's and
    /// those of the links so far.
    pub(super) async fn hang(&mut self, request: &Request<'_>) -> bool {
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
            let hung = shared.target.chain(request.key, link_bytes, |link| {
                shared.fill(link, request.key_id, version);
            });
            let hung = hung.await;
            self.end_timing(Timed::AddChained, started);
            match (checking, begun) {
                (Some(checking), Some(begun)) if hung => checking.checker.end_set(request.key_id, begun, now),
                (Some(checking), Some(begun)) => checking.checker.abort_set(request.key_id, begun, now),
                _ => {}
            }
            if !hung {
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
