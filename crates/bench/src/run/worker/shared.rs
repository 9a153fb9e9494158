//! Methods of the shared state.

use std::sync::atomic::Ordering;

use workload::payload::Payload;

use super::Shared;

impl<T> Shared<T> {
    /// The watchdog ignores idle time before `due_ns`.
    pub(in crate::run) fn suppress_stall_warning_until(&self, due_ns: u64) {
        self.idle_until_ns.fetch_max(due_ns, Ordering::Relaxed);
    }

    /// Fills a value. If values are only allocated, a checked run still writes the header.
    pub(super) fn fill(&self, value: &mut [u8], key_id: u64, version: u64) {
        if self.settings.populate {
            self.payload.fill(value, key_id, version);
        } else if self.needs_header() {
            Payload::fill_header_only(value, key_id, version);
        }
    }

    /// Whether found or destroyed values are checked by their header.
    pub(super) fn needs_header(&self) -> bool {
        self.checking.is_some() || self.destructors.as_ref().is_some_and(|it| it.is_checked())
    }

    /// The mark of this run in its versions; 0 if nothing is checked.
    pub(super) fn run_mark(&self) -> u64 {
        let checking = self.checking.as_ref().map(|checking| checking.run_mark);
        checking.or_else(|| Some(self.destructors.as_ref()?.run_mark())).unwrap_or(0)
    }
}
