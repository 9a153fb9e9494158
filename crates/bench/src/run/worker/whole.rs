//! Requests for several items: an object in pieces, chunks of a file. They come item by item; what became of the whole is
//! counted with the last one, so that a request which the end of a run cuts off is in none of these counts.

use workload::trace::Miss;
use workload::{Fetch, Part, Request};

use super::super::counts::Counting;
use super::super::misses::MissTrace;
use super::super::target::Target;
use super::Worker;

/// What became of the items so far.
#[derive(Debug, Default)]
pub(super) struct Whole {
    /// What was missed is fetched with all that follows.
    turned_to_sets: bool,
    items_missed: u64,
    asked_bytes: u64,
    found_bytes: u64,
    fetched_bytes: u64,
    /// For a trace of misses: what the keys of the items begin with, and what is missing.
    name: Vec<u8>,
    missing: Option<Fetch>,
}

impl<T: Target> Worker<'_, T> {
    /// One item of a request: looked for, and set where it is missing. In an object that was fetched whole from the first
    /// missing piece on, nobody looks for those behind it.
    pub(super) async fn get_part(&mut self, request: &Request<'_>, part: Part) {
        let misses = self.shared.misses.as_ref();
        if part.is_first {
            self.whole = Whole { name: std::mem::take(&mut self.whole.name), ..Whole::default() };
            if misses.is_some() {
                // The first item of an object has its name, and no more, for a key.
                self.whole.name.clear();
                self.whole.name.extend_from_slice(request.key);
            }
        }
        let is_found = !self.whole.turned_to_sets && self.find(request).await;
        if !is_found {
            let how = self.how(request, false);
            self.set(request, how).await;
        }
        self.whole.add(request.value_bytes, part, is_found);
        if part.is_last {
            self.whole.count(&self.board.counting);
            if let Some(misses) = misses {
                self.whole.tell(misses, request);
            }
        }
    }
}

impl Whole {
    fn add(&mut self, item_bytes: u64, part: Part, is_found: bool) {
        // A trace may say anything of a length, and ampSizeFactor multiplies it.
        let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
        add(&mut self.asked_bytes, part.asked_bytes.saturating_add(part.uncached_bytes));
        add(&mut self.fetched_bytes, part.uncached_bytes);
        if is_found {
            add(&mut self.found_bytes, part.asked_bytes);
        } else {
            self.items_missed += 1;
            add(&mut self.fetched_bytes, item_bytes);
            self.turned_to_sets = part.misses_spread;
        }
        if !is_found && self.missing.is_none() {
            self.missing = part.fetch;
        } else if part.uncached_bytes > 0 && self.missing.is_none() {
            // All that could be there was.
            let end = |fetch: Fetch| Fetch {
                from_bytes: fetch.to_bytes.saturating_sub(part.uncached_bytes),
                ..fetch
            };
            self.missing = part.fetch.map(end);
        }
    }

    /// Hands a request in that was not answered in full.
    fn tell(&self, misses: &MissTrace, request: &Request<'_>) {
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
        counting.egress_bytes.several(self.asked_bytes);
        counting.egress_bytes_found.several(self.found_bytes);
        counting.ingress_bytes.several(self.fetched_bytes);
    }
}
