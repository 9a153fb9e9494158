//! Reports in progress: callbacks for items that have left the cache. Settling waits for them.

use std::sync::atomic::{AtomicUsize, Ordering};

use event_listener::Event;

/// Counts reports in progress.
#[derive(Default)]
pub(crate) struct Reports(AtomicUsize);

/// A report in progress. Its end notifies `ended`.
pub(crate) struct Report<'a> {
    reports: &'a Reports,
    ended: &'a Event,
}

impl Reports {
    pub(crate) fn begin<'a>(&'a self, ended: &'a Event) -> Report<'a> {
        self.0.fetch_add(1, Ordering::AcqRel);
        Report { reports: self, ended }
    }

    pub(crate) fn is_any_in_progress(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        self.reports.0.fetch_sub(1, Ordering::AcqRel);
        self.ended.notify(usize::MAX);
    }
}
