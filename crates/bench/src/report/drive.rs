//! What a model drive went through: what no figure of a cache tells.

use serde_json::{Value, json};
use ssd::{Assignment, Stats};

use crate::run::model_drive::ModelDrive;

/// A model drive after a run.
#[derive(Debug, Clone)]
pub struct DriveReport {
    /// The card's name.
    pub card: String,
    /// Bytes of a page of the drive's mapping.
    pub page_bytes: u32,
    /// Reclaim units.
    pub units: u64,
    /// Bytes of one.
    pub unit_bytes: u64,
    /// Its counts.
    pub stats: Stats,
    /// Which consumer of which instance was given which handle.
    pub assignments: Vec<Vec<Assignment>>,
}

impl DriveReport {
    /// The report of `drive`, as it is now.
    #[must_use]
    pub fn of(drive: &ModelDrive) -> Self {
        let space = &drive.card().space;
        Self {
            card: drive.card().name.clone(),
            page_bytes: space.page_bytes,
            units: space.raw_bytes / space.unit_bytes,
            unit_bytes: space.unit_bytes,
            stats: drive.stats().unwrap_or_default(),
            assignments: drive.assignments(),
        }
    }

    /// Bytes that the medium wrote for each that the host did.
    #[must_use]
    pub fn dlwa(&self) -> Option<f64> {
        self.stats.dlwa(self.page_bytes)
    }

    /// The drive's part of the result file.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let stats = &self.stats;
        json!({
            "card": self.card,
            "page_bytes": self.page_bytes,
            "reclaim_units": self.units,
            "reclaim_unit_bytes": self.unit_bytes,
            "dlwa": self.dlwa(),
            "host_pages": stats.host_pages,
            "media_pages": stats.media_pages(),
            "relocated_pages": stats.relocated_pages,
            "gc_relocated_bytes": stats.relocated_pages * u64::from(self.page_bytes),
            "gc_events": stats.gc_events,
            "erases": stats.erases,
            "handles": self.handles(),
        })
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
                        "shared_default": it.is_shared,
                    })
                })
                .collect::<Vec<_>>()
        };
        self.assignments.iter().enumerate().flat_map(one).collect()
    }
}
