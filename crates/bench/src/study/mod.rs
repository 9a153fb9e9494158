//! Reproduces published figures with the cache engine on the model drive, next to the published values.
//!
//! [`STUDIES`] is the table of studies. A study runs [experiments](experiment) on its [`Runner`] and returns [`Point`]s and a
//! [`Chart`]. Each figure uses one card, workload and scale; no parameter is tuned for a point. Some studies also run on a
//! [`GivenTrace`].

mod carbon;
mod cdn;
mod error;
pub mod experiment;
mod flashcache;
mod given;
pub mod ring;
mod runner;
mod small_objects;
mod soc_size;
mod tenants;
mod utilisation;
pub mod warp;

pub use crate::side_by_side::Progress;
pub use cdn::photo_workload;
pub use error::StudyError;
pub use given::GivenTrace;
pub use runner::{BUCKET_WRITES, Runner};

use crate::chart::{Chart, Line};

/// A published figure or table.
pub struct Study {
    /// Name on the command line.
    pub name: &'static str,
    /// Title.
    pub title: &'static str,
    /// Whether it can run on a given trace.
    pub takes_trace: bool,
    /// Whether its drive and cache use the runner's scale.
    pub takes_scale: bool,
    /// Whether it compares the model with logs of drives, from the runner's folder.
    pub needs_logs: bool,
    /// Runs the study.
    pub run: fn(&Runner) -> Result<Outcome, StudyError>,
}

impl Study {
    const fn with_trace(self) -> Self {
        Self { takes_trace: true, ..self }
    }

    const fn with_scale(self) -> Self {
        Self { takes_scale: true, ..self }
    }

    const fn with_logs(self) -> Self {
        Self { needs_logs: true, ..self }
    }

    /// Runs the study, on the runner's trace if it has one. Published values and accepted ranges apply to the generated
    /// workload, so they are removed for a trace.
    ///
    /// # Errors
    /// A run failed or was stopped, or the study takes no trace.
    pub fn make(&self, runner: &Runner) -> Result<Outcome, StudyError> {
        if runner.given.is_none() {
            return (self.run)(runner);
        }
        if !self.takes_trace {
            return Err(StudyError::TakesNoTrace);
        }
        let mut outcome = (self.run)(runner)?;
        for point in &mut outcome.points {
            (point.paper, point.accepted) = (None, None);
        }
        Ok(outcome)
    }
}

/// Warning for a scale at which the FDP paper's figures are not valid, because reclaim units have too few regions.
///
/// # Errors
/// The drive's card cannot be loaded.
pub fn scale_warning(scale: u32) -> Result<Option<String>, StudyError> {
    let card = ssd::Card::load(experiment::CARD).map_err(|error| StudyError::Output(error.to_string()))?;
    let smallest = crate::predict::smallest_scale(&card);
    Ok((scale > smallest).then(|| {
        format!(
            "--scale 1/{scale}: beyond 1/{smallest}, reclaim units are so small relative to the engine's regions that less is relocated: \
             write amplification differs from that of the full-size drive"
        )
    }))
}

/// Results of a study.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Values of the figure.
    pub points: Vec<Point>,
    /// Charts of the figure.
    pub charts: Vec<Chart>,
    /// Notes on the setup, and on differences from the published values.
    pub notes: Vec<String>,
}

/// A value of a figure.
#[derive(Debug, Clone)]
pub struct Point {
    /// Name.
    pub name: String,
    /// Published value; `None` if there is none.
    pub paper: Option<f64>,
    /// Measured value.
    pub ours: f64,
    /// Unit of both values.
    pub unit: &'static str,
    /// Accepted range, inclusive; `None` if the value is only reported.
    pub accepted: Option<(f64, f64)>,
}

impl Point {
    /// A value that must lie within `accepted`.
    pub(crate) fn within(name: impl Into<String>, paper: f64, ours: f64, accepted: (f64, f64)) -> Self {
        Self { accepted: Some(accepted), ..Self::shown(name, Some(paper), ours) }
    }

    /// A value without a published number that must lie within `accepted`.
    pub(crate) fn expected(name: impl Into<String>, ours: f64, accepted: (f64, f64)) -> Self {
        Self { name: name.into(), paper: None, ours, unit: "ratio", accepted: Some(accepted) }
    }

    /// A value that is only reported, with the published number if there is one.
    pub(crate) fn shown(name: impl Into<String>, paper: Option<f64>, ours: f64) -> Self {
        Self { name: name.into(), paper, ours, unit: "ratio", accepted: None }
    }

    /// Sets the unit.
    pub(crate) fn in_unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Whether the value is accepted; `None` if it is only reported.
    #[must_use]
    pub fn ok(&self) -> Option<bool> {
        self.accepted.map(|(low, high)| (low..=high).contains(&self.ours))
    }
}

/// A row of a table in `docs/study-results.md`: study, value, published, ours, accepted.
#[must_use]
pub fn table_row(study: &str, point: &Point) -> String {
    let paper = point.paper.map_or_else(|| "-".to_owned(), |paper| format!("{paper:.2}"));
    let accepted = point
        .accepted
        .map_or_else(|| REPORTED_ONLY.to_owned(), |(low, high)| format!("{low:.2} to {high:.2}"));
    format!("| {study} | {} | {paper} | {:.3} | {accepted} |\n", point.name, point.ours)
}

/// Replaces the accepted range of a value that is only reported.
pub const REPORTED_ONLY: &str = "reported only";

/// All studies, by paper in order of figures: `fdp-`, "Towards Efficient Flash Caches with Emerging NVMe Flexible Data
/// Placement SSDs", EuroSys '25; `cdn-`, "The Evolution of Advanced Caching in the Facebook CDN", Facebook Research, 2016;
/// `flashcache-`, "Flashcache at Facebook: From 2010 to 2013 and beyond", 2013; `small-objects`, several papers; `warp`,
/// "Characterizing and Emulating FDP SSDs with WARP", FAST '26.
pub const STUDIES: &[Study] = &[
    study(
        "fdp-fig5",
        "Write amplification over time, key-value cache on half of the drive",
        utilisation::fig5,
    )
    .with_scale(),
    study(
        "fdp-fig6",
        "Write amplification, hit ratio and tails over utilisation, key-value cache",
        utilisation::fig6,
    )
    .with_scale(),
    study("fdp-fig7", "Write amplification, Twitter's cluster 12", utilisation::fig7).with_scale(),
    study("fdp-fig8", "Write amplification, sets only", utilisation::fig8).with_scale(),
    study("fdp-fig9", "Write amplification over the small-object cache's share", soc_size::fig9).with_scale(),
    study("fdp-fig10", "Carbon and collection events", carbon::fig10).with_scale(),
    study("fdp-fig11", "Two caches on one drive", tenants::fig11).with_scale(),
    study("fdp-fig12", "Theorem 1 against measurement", soc_size::fig12).with_scale(),
    study("fdp-fig13", "Write amplification and tails over utilisation, sets only", utilisation::fig13)
        .with_scale(),
    study(
        "fdp-plateau",
        "Write amplification without placement before and after the first wrap of the regions",
        ring::plateau,
    ),
    study(
        "fdp-shares",
        "Write amplification over the small-object cache's share, with the bucket writes of real caches",
        ring::shares,
    ),
    study("fdp-table2", "Carbon with less DRAM", carbon::table2),
    study("cdn-fig1", "Hit ratio against write amplification of McDipper, BlockCache and RIPQ", cdn::fig1)
        .with_trace(),
    study(
        "cdn-fig2",
        "Photo CDN: Clairvoyant, S4LRU, LRU, FIFO over sizes of the Origin cache",
        cdn::sizes::fig2,
    )
    .with_trace(),
    study(
        "cdn-insertion-points",
        "Photo CDN: RIPQ's hit ratio over its insertion points",
        cdn::sizes::insertion_points,
    )
    .with_trace(),
    study("cdn-fig8", "BlockCache to RIPQ: hit ratio and backend reads", cdn::fig8).with_trace(),
    study("cdn-fig9", "Write amplification of the drive: McDipper, BlockCache, RIPQ", cdn::fig9).with_trace(),
    study("cdn-fig10", "95th percentile of hits, with the refinements and without", cdn::fig10).with_trace(),
    study("cdn-fdp", "RIPQ's insertion points with placement handles", cdn::placement).with_trace(),
    study(
        "flashcache-sets",
        "Block cache: how evenly the disk's work spreads over sets",
        flashcache::sets::run,
    ),
    study("flashcache-midpoint", "Block cache: hit rate over the insertion point", flashcache::midpoint::run),
    study(
        "flashcache-dirty",
        "Block cache: when dirty blocks are written back, and in what runs",
        flashcache::dirty::run,
    ),
    study("flashcache-scan", "Block cache: hits after a full scan", flashcache::scan::run),
    study(
        "flashcache-fairness",
        "Block cache: a server that becomes busy gets its share",
        flashcache::fairness::run,
    ),
    study(
        "flashcache-linkbench",
        "Block cache: Flashcache 2 against Flashcache 3 under LinkBench",
        flashcache::linkbench::run,
    ),
    study("flashcache-v2-v3", "Block cache: Flashcache 2 against Flashcache 3", flashcache::v2_v3::run),
    study("small-objects", "Small objects on flash: sets, Kangaroo, logs", small_objects::run).with_trace(),
    study("warp", "Logs of real and emulated drives beside the model", warp::run).with_logs(),
];

/// A study that takes no trace, has sizes of its own and needs no logs.
const fn study(
    name: &'static str,
    title: &'static str,
    run: fn(&Runner) -> Result<Outcome, StudyError>,
) -> Study {
    Study { name, title, takes_trace: false, takes_scale: false, needs_logs: false, run }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_warning_is_given_beyond_the_smallest_valid_scale() {
        let warning = |scale| scale_warning(scale).expect("the card is there");
        assert!(warning(16_384).is_some_and(|text| text.contains("beyond 1/8192")));
        assert_eq!((warning(8192), warning(2048)), (None, None));
    }
}
