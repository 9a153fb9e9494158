//! `mg` and `md`: stale items, and the selection of one client to recache an item.

use cache::Refusal;

use super::{Found, NewValue, Store, StoreOutcome};
use crate::item::{Header, MAX_CAS, Marks};
use crate::protocol::meta::MetaFlags;
use crate::protocol::{Meta, Ttl};

/// An item that `mg` found or made.
#[derive(Debug)]
pub struct MetaHit<'a> {
    /// The item, with its header before the request.
    pub found: Found<'a>,
    /// The time left before this request.
    pub old_ttl: Ttl,
    /// The time left now.
    pub ttl: Ttl,
    /// Seconds since the last access.
    pub idle_seconds: u32,
    /// Whether the item was read before.
    pub was_read: bool,
    /// Whether this client should recache the item.
    pub is_winner: bool,
}

impl Store {
    /// The item of an `mg`, after the changes requested by its flags.
    ///
    /// # Errors
    /// If the cache cannot make a change.
    pub async fn meta_get(&self, meta: &Meta<'_>) -> Result<Option<MetaHit<'_>>, Refusal> {
        let flags = &meta.flags;
        if flags.ttl.is_none() && flags.vivify.is_none() && flags.recache.is_none() {
            self.flush_if_due().await;
            let Some(found) = self.find(&meta.key).await else { return Ok(None) };
            let marks = found.header.marks;
            if !marks.is_stale || marks.has_winner {
                return Ok(Some(self.read(found, flags)));
            }
            // The first client that reads a stale item should recache it.
        }
        let _guard = self.lock(&meta.key).await;
        match self.find(&meta.key).await {
            Some(found) => self.change(meta, found).await.map(Some),
            None => self.vivify(meta).await,
        }
    }

    /// A hit without a change.
    fn read<'a>(&self, found: Found<'a>, flags: &MetaFlags) -> MetaHit<'a> {
        let (cas, now_seconds) = (found.header.cas, self.now_seconds());
        let last = self.access.last(cas);
        if !flags.is_unnoticed {
            self.access.note(cas, now_seconds);
        }
        let ttl = Ttl::until(found.expiry_seconds(), now_seconds);
        let last_seconds = last.unwrap_or(0).max(found.header.stored_seconds);
        let idle_seconds = now_seconds.saturating_sub(last_seconds);
        MetaHit { found, old_ttl: ttl, ttl, idle_seconds, was_read: last.is_some(), is_winner: false }
    }

    /// A hit that may change the item. The key is locked.
    async fn change<'a>(&self, meta: &Meta<'_>, found: Found<'a>) -> Result<MetaHit<'a>, Refusal> {
        let (flags, now_seconds) = (&meta.flags, self.now_seconds());
        let mut hit = self.read(found, flags);
        let marks = hit.found.header.marks;
        let ttl = flags.ttl.map_or(hit.old_ttl, |exptime| exptime.ttl(now_seconds));
        let recache = flags.recache.is_some_and(|limit| hit.old_ttl.is_below(limit.ttl(now_seconds)));
        hit.ttl = ttl;
        hit.is_winner = !marks.has_winner && (recache || marks.is_stale);
        if hit.is_winner {
            let header = Header { marks: Marks { has_winner: true, ..marks }, ..hit.found.header };
            self.put(&meta.key, &NewValue { header, pieces: [hit.found.value(), &[]], ttl }).await?;
        } else if flags.ttl.is_some() {
            self.cache.set_ttl(&meta.key, ttl.as_option()).await?;
        }
        Ok(hit)
    }

    /// Creates an empty item after a miss; this client should store its value. The key is locked.
    async fn vivify(&self, meta: &Meta<'_>) -> Result<Option<MetaHit<'_>>, Refusal> {
        let Some(exptime) = meta.flags.vivify else { return Ok(None) };
        let now_seconds = self.now_seconds();
        let marks = Marks { has_winner: true, has_binary_key: meta.flags.has_binary_key, is_stale: false };
        let cas = meta.flags.new_cas.map_or_else(|| self.cas.next(), |cas| cas & MAX_CAS);
        let header = Header { flags: 0, stored_seconds: now_seconds, cas, marks };
        let ttl = meta.flags.ttl.unwrap_or(exptime).ttl(now_seconds);
        self.put(&meta.key, &NewValue { header, pieces: [&[], &[]], ttl }).await?;
        let Some(mut found) = self.find(&meta.key).await else { return Ok(None) };
        // The reply shows the state before the request, in which there was no winner.
        found.header.marks.has_winner = false;
        let hit = self.read(found, &meta.flags);
        Ok(Some(MetaHit { old_ttl: Ttl::Never, ttl, is_winner: true, was_read: false, ..hit }))
    }

    /// Deletes the item of an `md`, or marks it as stale, or removes its value.
    pub async fn meta_delete(&self, meta: &Meta<'_>) -> StoreOutcome {
        let _guard = self.lock(&meta.key).await;
        let flags = &meta.flags;
        let Some(found) = self.find(&meta.key).await else { return StoreOutcome::NotFound };
        if flags.cas.is_some_and(|cas| cas != found.header.cas) {
            return StoreOutcome::Exists;
        }
        if !flags.invalidates && !flags.drops_value {
            self.cache.remove(&meta.key);
            return StoreOutcome::Stored(found.header.cas);
        }
        let now_seconds = self.now_seconds();
        let cas = flags.new_cas.map_or_else(|| self.cas.next(), |cas| cas & MAX_CAS);
        let mut header = Header { cas, ..found.header };
        if flags.invalidates {
            // The next client that reads the item should recache it.
            header.marks = Marks { is_stale: true, has_winner: false, ..header.marks };
        }
        if flags.drops_value {
            header.flags = 0;
        }
        let old_ttl = Ttl::until(found.expiry_seconds(), now_seconds);
        let takes_ttl = flags.ttl.filter(|_| flags.invalidates);
        let ttl = takes_ttl.map_or(old_ttl, |exptime| exptime.ttl(now_seconds));
        let value = if flags.drops_value { &[][..] } else { found.value() };
        match self.put(&meta.key, &NewValue { header, pieces: [value, &[]], ttl }).await {
            Ok(()) => StoreOutcome::Stored(cas),
            Err(refusal) => StoreOutcome::Refused(refusal),
        }
    }

    /// The item of an `me`.
    pub async fn meta_debug(&self, meta: &Meta<'_>) -> Option<MetaHit<'_>> {
        self.flush_if_due().await;
        let found = self.find(&meta.key).await?;
        Some(self.read(found, &meta.flags))
    }
}
