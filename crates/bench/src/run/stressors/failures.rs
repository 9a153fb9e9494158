//! Failures and figures of a stressor.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Limit of described failures; all are counted.
const DESCRIBED: usize = 10;

/// The failures of a stressor.
#[derive(Default)]
pub(in crate::run) struct Failures {
    pub(super) count: AtomicU64,
    pub(super) described: Mutex<Vec<String>>,
}

/// The figures and failures of a stressor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StressorReport {
    /// CacheBench's name of the stressor.
    pub name: &'static str,
    /// Each figure's name in the JSON, label in the text, and value.
    pub figures: Vec<(&'static str, &'static str, u64)>,
    /// Number of failures.
    pub failed: u64,
    /// Descriptions of the first failures.
    pub failures: Vec<String>,
}

impl Failures {
    pub(super) fn add(&self, message: impl FnOnce() -> String) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut described = self.described.lock();
        if described.len() < DESCRIBED {
            described.push(message());
        }
    }
}

impl StressorReport {
    /// The failures, in one sentence.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let message =
            || format!("Found {} {} failures: {}", self.failed, self.name, self.failures.join("; "));
        (self.failed > 0).then(message)
    }
}
