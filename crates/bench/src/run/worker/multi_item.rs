//! Requests for several items: the pieces of an object, or the chunks of a file. They arrive item by item. The request as a whole is
//! counted at its last item, so a request that the end of the run interrupts is not counted.

use workload::trace::Miss;
use workload::{Fetch, Part, Request};

use super::super::counts::Counting;
use super::super::misses::MissTrace;
use super::super::target::Target;
use super::Worker;

/// Progress of a request for several items.
#[derive(Debug, Default)]
pub(super) struct MultiItem {
    /// Whether a miss makes the worker fetch all later items of the request, so that it sets them without a lookup.
    sets_only: bool,
    items_missed: u64,
    requested_bytes: u64,
    found_bytes: u64,
    fetched_bytes: u64,
    /// The common prefix of the items' keys, for the trace of misses.
    name: Vec<u8>,
    /// The missing part, for the trace of misses.
    missing: Option<Fetch>,
}

impl<T: Target> Worker<'_, T> {
    /// Looks up one item of a request, and sets it after a miss. If the request fetches the whole rest of an object after its first
    /// missing piece, the later pieces are set without a lookup.
    pub(super) async fn get_part(&mut self, request: &Request<'_>, part: Part) {
        let misses = self.shared.misses.as_ref();
        if part.is_first {
            self.multi_item =
                MultiItem { name: std::mem::take(&mut self.multi_item.name), ..MultiItem::default() };
            if misses.is_some() {
                // The key of the first item is the name of the object.
                self.multi_item.name.clear();
                self.multi_item.name.extend_from_slice(request.key);
            }
        }
        let is_found = !self.multi_item.sets_only && self.find(request).await;
        if !is_found {
            let how = self.how(request, false);
            self.set(request, how).await;
        }
        self.multi_item.add(request.value_bytes, part, is_found);
        if part.is_last {
            self.multi_item.count(&self.stats.counting);
            if let Some(misses) = misses {
                self.multi_item.record_miss(misses, request);
            }
        }
    }
}

impl MultiItem {
    fn add(&mut self, item_bytes: u64, part: Part, is_found: bool) {
        // Lengths in a trace may be arbitrarily large, and ampSizeFactor multiplies them.
        let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
        add(&mut self.requested_bytes, part.requested_bytes.saturating_add(part.uncached_bytes));
        add(&mut self.fetched_bytes, part.uncached_bytes);
        if is_found {
            add(&mut self.found_bytes, part.requested_bytes);
        } else {
            self.items_missed += 1;
            add(&mut self.fetched_bytes, item_bytes);
            self.sets_only = part.fetches_rest_on_miss;
        }
        if !is_found && self.missing.is_none() {
            self.missing = part.fetch;
        } else if part.uncached_bytes > 0 && self.missing.is_none() {
            // All cacheable parts were found; only the uncached end is fetched.
            let end = |fetch: Fetch| Fetch {
                from_bytes: fetch.to_bytes.saturating_sub(part.uncached_bytes),
                ..fetch
            };
            self.missing = part.fetch.map(end);
        }
    }

    /// Writes the request to the trace of misses, if it was not fully found.
    fn record_miss(&self, misses: &MissTrace, request: &Request<'_>) {
        let Some(fetch) = self.missing else { return };
        let tenant = request.tenant.and_then(|tenant| misses.tenants().of(tenant));
        misses.add(&Miss {
            time_ns: request.time_ns.unwrap_or(0),
            key: &self.name,
            fetch,
            ttl_seconds: request.ttl_seconds.unwrap_or(0),
            tenant: tenant.as_deref().unwrap_or_default(),
        });
    }

    fn count(&self, counting: &Counting) {
        let is_whole = self.items_missed == 0 && self.fetched_bytes == 0;
        counting.objects.one();
        if is_whole {
            counting.object_hits.one();
        } else if self.found_bytes > 0 {
            counting.object_partial_hits.one();
        }
        counting.egress_bytes.several(self.requested_bytes);
        counting.egress_bytes_found.several(self.found_bytes);
        counting.ingress_bytes.several(self.fetched_bytes);
    }
}
