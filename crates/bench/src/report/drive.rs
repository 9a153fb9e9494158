//! Figures of a model drive, which the caches on it cannot measure.

use std::fmt::Write as _;

use serde_json::{Value, json};
use ssd::{Assignment, Stats};

use super::numbers::grouped;
use crate::run::InstanceReport;
use crate::run::model_drive::ModelDrive;
use crate::run::target::Snapshot;

/// A model drive after a run.
#[derive(Debug, Clone)]
pub struct DriveReport {
    /// The card's name.
    pub card: String,
    /// Size of a mapping page.
    pub page_bytes: u32,
    /// Number of reclaim units.
    pub units: u64,
    /// Size of a reclaim unit.
    pub unit_bytes: u64,
    /// The drive's counters.
    pub stats: Stats,
    /// The placement handle of each consumer, by instance.
    pub assignments: Vec<Vec<Assignment>>,
    /// Bytes that hosts wrote during the warm-up.
    pub before_host_bytes: u64,
}

impl DriveReport {
    /// The report of `drive`. `before` are its counters at the end of the warm-up, which are subtracted.
    #[must_use]
    pub fn since(drive: &ModelDrive, before: Option<&Stats>) -> Self {
        let stats = drive.stats().unwrap_or_default();
        let space = &drive.card().space;
        Self {
            card: drive.card().name.clone(),
            page_bytes: space.page_bytes,
            units: space.raw_bytes / space.unit_bytes,
            unit_bytes: space.unit_bytes,
            before_host_bytes: before.map_or(0, |before| before.host_bytes),
            stats: before.map_or_else(|| stats.clone(), |before| stats.since(before)),
            assignments: drive.assignments(),
        }
    }

    /// Bytes that hosts wrote, as the drive counted them.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        self.stats.host_bytes
    }

    /// Replaces the byte counters of `report`, a sum over all instances, by those of the drive. The drive counts a write when it is
    /// submitted, and an instance when it completes, so ratios must not mix the two.
    pub fn apply_to(&self, report: &mut InstanceReport) {
        self.apply_to_flash(&mut report.snapshot);
        if let Some(warmup) = &mut report.warmup {
            warmup.flash_bytes = self.before_host_bytes;
        }
    }

    /// Replaces the byte counters of flash only.
    pub fn apply_to_flash(&self, snapshot: &mut Snapshot) {
        if let Some(flash) = &mut snapshot.stats.flash {
            flash.device.written_bytes = self.host_bytes();
            flash.device.media_written_bytes = Some(self.media_bytes());
        }
    }

    /// Media writes in bytes.
    #[must_use]
    pub fn media_bytes(&self) -> u64 {
        self.stats.media_pages() * u64::from(self.page_bytes)
    }

    /// Media writes over host writes.
    #[must_use]
    pub fn dlwa(&self) -> Option<f64> {
        self.stats.dlwa(self.page_bytes)
    }

    /// The drive's figures for the result file.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let stats = &self.stats;
        json!({
            "card": self.card,
            "page_bytes": self.page_bytes,
            "reclaim_units": self.units,
            "reclaim_unit_bytes": self.unit_bytes,
            "dlwa": self.dlwa(),
            "host_bytes": stats.host_bytes,
            "host_pages": stats.host_pages,
            "partial_pages": stats.partial_pages,
            "media_pages": stats.media_pages(),
            "relocated_pages": stats.relocated_pages,
            "gc_relocated_bytes": stats.relocated_pages * u64::from(self.page_bytes),
            "gc_events": stats.gc_events,
            "erases": stats.erases,
            "handles": self.handles(),
        })
    }

    /// The drive's figures as text, with the placement handles of each instance.
    #[must_use]
    pub fn to_text(&self) -> String {
        const GIB: f64 = (1_u64 << 30) as f64;
        let stats = &self.stats;
        let gib = |bytes: u64| bytes as f64 / GIB;
        let dlwa = self.dlwa().map_or_else(|| "unknown".to_owned(), |dlwa| format!("{dlwa:.3}"));
        let mut out = format!("\n== Model Drive ==\nCard          : {}\n", self.card);
        let _ = writeln!(out, "Host writes   : {:6.2} GiB", gib(stats.host_bytes));
        let _ = writeln!(out, "Media writes  : {:6.2} GiB, amplification {dlwa}", gib(self.media_bytes()));
        let (moved, erased) = (grouped(stats.gc_events), grouped(stats.erases));
        let _ = writeln!(out, "Units         : {moved} collected with live pages, {erased} erased");
        for (instance, given) in self.assignments.iter().enumerate() {
            let handles = given.iter().map(|it| format!("{} handle {}", it.consumer, it.drive_handle));
            let handles: Vec<String> = handles.collect();
            if !handles.is_empty() {
                let _ = writeln!(out, "Instance {instance:<5}: {}", handles.join(", "));
            }
        }
        out
    }

    fn handles(&self) -> Value {
        let one = |(instance, given): (usize, &Vec<Assignment>)| {
            given
                .iter()
                .map(|it| {
                    json!({
                        "instance": instance,
                        "consumer": it.consumer,
                        "handle": it.handle.0,
                        "drive_handle": it.drive_handle,
                        "shared_default": it.is_shared,
                    })
                })
                .collect::<Vec<_>>()
        };
        self.assignments.iter().enumerate().flat_map(one).collect()
    }
}
