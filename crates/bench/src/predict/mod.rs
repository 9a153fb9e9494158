//! Predicts hits, wear, cost and latency of a cache on a drive from a trace or a config, without an engine, a drive or data.
//!
//! [`configured`] reads the cache and the requests of a config. A [`Plan`] has the layouts of a cache and the drive. The trace is read
//! once, into a temporary file. [`candidate`] simulates each layout object by object, and [`wear`] writes the model drive as the layout
//! would. [`point`] computes years, carbon and price from both. Every figure has bounds ([`Figure`]). [`target`] selects a point;
//! [`report`] and [`plot`] present the result.

mod candidate;
pub mod configured;
mod figure;
mod layout;
pub mod plot;
mod point;
pub mod report;
pub mod target;
mod wear;

use ssd::Card;
use ssd::model::lifetime::Endurance;
use workload::trace::{Accesses, ReadReport};

pub use figure::{Figure, OverTime};
pub use layout::{Layout, SET_BYTES, SMALL_AT_MOST, Settings, SmallEngine};
pub use point::{Inputs, Point};
pub use wear::{ReadLatency, Reads};

use crate::report::amount::trimmed;
use crate::run::stop::Stop;
use crate::side_by_side::Progress;
use crate::simulate::numbered::Numbered;
use crate::simulate::spool::Spool;
use crate::simulate::{SimulateError, Totals, parallel};
use candidate::{Candidate, Traffic};
use wear::Use;

/// The layouts to compare and the drive.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The drive, at full size.
    pub card: Card,
    /// Share of the drive's load that the trace represents, as 1/N; `None` is the scale at which the drive holds [`HELD`] of the
    /// trace's bytes.
    pub scale: Option<u32>,
    /// Requests per second that the drive's cache serves. `None` is the trace's own rate times the scale if `scale` is given, and
    /// unknown otherwise: a scale derived from the drive's size does not determine its load.
    pub requests_per_second: Option<f64>,
    /// DRAM of the cache.
    pub dram: Vec<Dram>,
    /// Shares of the drive that the cache takes.
    pub utilizations: Vec<f64>,
    /// Shares of the cache's flash for small objects.
    pub small_shares: Vec<f64>,
    /// Engines for small objects.
    pub small: Vec<SmallEngine>,
    /// Settings of the cache in all layouts.
    pub settings: Settings,
    /// Admission probabilities of objects that DRAM evicts.
    pub admissions: Vec<f64>,
    /// Whether to use placement handles; both values are predicted.
    pub placements: Vec<bool>,
    /// The accesses that are not counted.
    pub warm_up: WarmUp,
    /// Whether objects never expire.
    pub ignore_ttl: bool,
    /// Prices and endurance assumptions.
    pub prices: Prices,
    /// Number of simulation threads.
    pub threads: usize,
    /// Seed of all random draws.
    pub seed: u64,
}

/// The first accesses, which warm up the cache and are not counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WarmUp {
    /// A share of all accesses.
    Share(f64),
    /// A number of accesses.
    Accesses(u64),
}

impl WarmUp {
    /// Length of the warm-up in accesses, if the trace has `all`.
    fn accesses(self, all: u64) -> u64 {
        match self {
            Self::Share(share) => (all as f64 * share) as u64,
            Self::Accesses(number) => number,
        }
    }
}

/// A size of DRAM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Dram {
    /// Bytes, at full size.
    Bytes(u64),
    /// A share of the cache's bytes on flash.
    OfFlash(f64),
}

/// Prices and endurance assumptions that are not on the drive's card.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// Years of operation of the system.
    pub system_years: f64,
    /// Write amplification that the drive's rating assumes.
    pub rated_dlwa: f64,
    /// US dollars per GB of DRAM.
    pub dram_usd_per_gb: f64,
    /// kg CO2e per GB of DRAM.
    pub dram_kg_per_gb: f64,
}

/// Share of the trace's bytes that a drive holds if no scale is given.
pub const HELD: f64 = 0.25;
/// Minimum number of accesses of a trace.
pub const LEAST_ACCESSES: u64 = 10_000;

/// The result.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Totals of the trace.
    pub totals: Totals,
    /// Report of the reader.
    pub read: ReadReport,
    /// Share of the drive's load that the trace represents, as 1/N.
    pub scale: u32,
    /// Accesses that were not counted.
    pub warm_up_accesses: u64,
    /// Requests per second at full size; `None` if neither the plan nor a scale with timestamps gives a rate.
    pub requests_per_second: Option<f64>,
    /// Requests per second of the trace itself; `None` without times.
    pub trace_requests_per_second: Option<f64>,
    /// One for each layout and placement.
    pub points: Vec<Point>,
}

/// Why there is no prediction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] SimulateError),
    /// The trace or the config's run is too short.
    #[error("has {accesses} accesses; a prediction needs at least {LEAST_ACCESSES}")]
    TooShort {
        /// Number of its accesses.
        accesses: u64,
    },
    /// All accesses are in the warm-up.
    #[error("has {accesses} accesses, and all are in the warm-up ({warm_up}): nothing is counted")]
    NothingCounted {
        /// Number of accesses.
        accesses: u64,
        /// Number of accesses of the warm-up.
        warm_up: u64,
    },
    /// A layout leaves no space for a cache.
    #[error("{0}")]
    Layout(String),
    /// The run was interrupted.
    #[error("interrupted: nothing was predicted yet")]
    Interrupted,
}

/// Predicts all layouts of `plan` for `trace`. `progress` receives the number of accesses made, and their total if it is known.
///
/// # Errors
/// The trace cannot be read or is too short, a layout has no space for a cache, or the run was interrupted.
pub fn run(
    plan: &Plan,
    trace: Box<dyn Accesses>,
    stop: &Stop,
    quiet: bool,
    mut progress: impl FnMut(u64, Option<u64>),
) -> Result<Outcome, PredictError> {
    let mut numbered = Numbered::new(trace, false).with_ttls(!plan.ignore_ttl);
    let mut spool = Spool::of(&mut numbered, false, stop, |done| progress(done, None))?;
    let (totals, accesses) = (numbered.totals(), spool.len());
    if stop.is_set() {
        return Err(PredictError::Interrupted);
    }
    if accesses < LEAST_ACCESSES {
        return Err(PredictError::TooShort { accesses });
    }
    let warm_up = plan.warm_up.accesses(accesses);
    if warm_up >= accesses {
        return Err(PredictError::NothingCounted { accesses, warm_up });
    }
    let scale = plan.scale.unwrap_or_else(|| fitting_scale(&plan.card, totals.footprint_bytes));
    let layouts = plan.layouts(scale)?;
    let traffic =
        traffic(plan, &layouts, (scale, warm_up), &mut spool, stop, |done| progress(done, Some(accesses)))?;
    let timed_accesses = accesses.saturating_sub(numbered.report().untimed);
    let own_rate = numbered.report().has_time.then(|| timed_accesses as f64 / totals.span_seconds);
    let own_rate = own_rate.filter(|rate| rate.is_finite());
    let scaled_rate = own_rate.zip(plan.scale).map(|(rate, scale)| rate * f64::from(scale));
    let rate = plan.requests_per_second.or(scaled_rate);
    let cases: Vec<Case> = layouts
        .into_iter()
        .zip(traffic)
        .flat_map(|(layout, traffic)| plan.placements.iter().map(move |placed| (layout, traffic, *placed)))
        .collect();
    Ok(Outcome {
        points: points(plan, &cases, rate, stop, quiet)?,
        totals,
        read: numbered.report().clone(),
        scale,
        warm_up_accesses: warm_up,
        requests_per_second: rate,
        trace_requests_per_second: own_rate,
    })
}

/// A layout, its traffic, and whether writes are placed.
type Case = (Layout, Traffic, bool);

/// Simulates all layouts in one pass over the trace.
fn traffic(
    plan: &Plan,
    layouts: &[Layout],
    (scale, warm_up): (u32, u64),
    spool: &mut Spool,
    stop: &Stop,
    progress: impl FnMut(u64),
) -> Result<Vec<Traffic>, PredictError> {
    let accesses = spool.len();
    let candidates = layouts.iter().map(|it| Candidate::new(it.rules(scale, plan.seed), accesses, warm_up));
    let simulated = parallel::run(spool, candidates.collect(), plan.threads, stop, progress)?;
    let page_bytes = plan.card.space.page_bytes;
    let traffic: Option<Vec<Traffic>> = simulated.iter().map(|it| it.traffic(page_bytes)).collect();
    traffic.filter(|_| !stop.is_set()).ok_or(PredictError::Interrupted)
}

/// Writes the model drive, once for each case.
fn points(
    plan: &Plan,
    cases: &[Case],
    rate: Option<f64>,
    stop: &Stop,
    quiet: bool,
) -> Result<Vec<Point>, PredictError> {
    let points = parking_lot::Mutex::new(vec![None; cases.len()]);
    Progress::new(quiet).each(plan.threads, cases.len(), |number, progress| {
        let (layout, traffic, placement) = &cases[number];
        let wear = plan.wear(layout, traffic, *placement, rate);
        let dlwa = match &wear {
            Some(wear) => wear.dlwa(plan.seed, |share| {
                progress(share);
                !stop.is_set()
            }),
            None => Ok(None),
        };
        let dlwa = dlwa.map_err(PredictError::Layout)?;
        if stop.is_set() {
            return Err(PredictError::Interrupted);
        }
        let reads = match wear.filter(|_| rate.is_some()) {
            Some(wear) => wear.reads(plan.seed).map_err(PredictError::Layout)?,
            None => Reads::Unknown,
        };
        let inputs = Inputs { layout: *layout, placement: *placement };
        points.lock()[number] = Some(Point::new(inputs, traffic, (dlwa, reads), rate, plan));
        Ok(())
    })?;
    let mut points: Vec<Point> = points.into_inner().into_iter().flatten().collect();
    point::mark_best(&mut points);
    Ok(points)
}

impl Outcome {
    /// A warning if the error of figures may exceed their bounds.
    #[must_use]
    pub fn warning(&self, plan: &Plan) -> Option<String> {
        let warnings: Vec<String> = self.scale_warning(plan).into_iter().chain(self.size_warning()).collect();
        (!warnings.is_empty()).then(|| warnings.join("; "))
    }

    /// A warning if the trace is smaller than all for which the bounds were measured.
    fn scale_warning(&self, plan: &Plan) -> Option<String> {
        let smallest = smallest_scale(&plan.card);
        (self.scale > smallest).then(|| {
            format!(
                "at 1/{} of {} the bounds of write amplification are not known: the engine was measured with reclaim units \
                 as small as those of {} at 1/{smallest}, and relocates less in smaller ones (with pm9d3 at 1/16384 1.85, \
                 where 2.2 to 2.9 was predicted); use a larger trace, or a smaller N in --scale 1/N",
                self.scale, plan.card.name, plan.card.name
            )
        })
    }

    /// A warning if objects of the trace are too large for flash.
    fn size_warning(&self) -> Option<String> {
        let worst = self.points.iter().max_by(|a, b| a.too_large.total_cmp(&b.too_large))?;
        (worst.too_large > 0.0).then(|| {
            let limit = worst.inputs.layout.item_bytes_at_most(self.scale);
            format!(
                "{} % of the objects that left DRAM were too large for flash and were dropped: {} at most have room in a \
                 region of the drive and in all regions at 1/{}",
                if worst.too_large < 1e-4 { "Fewer than 0.01".to_owned() } else { trimmed(worst.too_large * 100.0) },
                crate::simulate::report::bytes(limit),
                self.scale
            )
        })
    }
}

impl Plan {
    fn layouts(&self, scale: u32) -> Result<Vec<Layout>, PredictError> {
        let mut layouts: Vec<Layout> = Vec::new();
        for &utilization in &self.utilizations {
            for &dram in &self.dram {
                for &small_share in &self.small_shares {
                    for &small in &self.small {
                        for &admission in &self.admissions {
                            let layout = self.layout(dram, utilization, (small_share, small), admission);
                            check(&layout, scale)?;
                            if !layouts.contains(&layout) {
                                layouts.push(layout);
                            }
                        }
                    }
                }
            }
        }
        Ok(layouts)
    }

    fn layout(
        &self,
        dram: Dram,
        utilization: f64,
        (small_share, small): (f64, SmallEngine),
        admission: f64,
    ) -> Layout {
        let flash_bytes = (self.card.space.usable_bytes as f64 * utilization) as u64;
        let dram_bytes = match dram {
            Dram::Bytes(bytes) => bytes,
            Dram::OfFlash(share) => (flash_bytes as f64 * share) as u64,
        };
        // Without small objects, both engines are the same.
        let small = if small_share > 0.0 { small } else { SmallEngine::Sets };
        let settings = self.settings;
        Layout { dram_bytes, utilization, flash_bytes, small_share, admission, small, settings }
    }

    /// The load on the drive; `None` if it is not written. Without a rate, one request per second is assumed: write amplification
    /// does not depend on the rate.
    fn wear(
        &self,
        layout: &Layout,
        traffic: &Traffic,
        placement: bool,
        rate: Option<f64>,
    ) -> Option<Use<'_>> {
        let rate = rate.unwrap_or(1.0);
        (traffic.host_bytes.value > 0.0).then_some(Use {
            card: &self.card,
            utilization: layout.utilization,
            small_share: layout.small_share,
            placement,
            host_bytes_per_second: traffic.host_bytes.value * rate,
            small_bytes_per_second: traffic.small_bytes * rate,
            small: layout.small,
            set_bytes: layout.settings.set_bytes,
            reads_per_second: traffic.reads * rate,
        })
    }

    /// The drive's rated endurance.
    pub(super) fn endurance(&self) -> Endurance {
        let rated = &self.card.endurance;
        let capacity_bytes = self.card.space.usable_bytes as f64;
        Endurance::from_dwpd(capacity_bytes, rated.dwpd, rated.warranty_years, self.prices.rated_dlwa)
    }
}

/// Minimum flash of a layout in bytes, at the trace's scale.
const LEAST_FLASH_BYTES: u64 = 1 << 20;

fn check(layout: &Layout, scale: u32) -> Result<(), PredictError> {
    let flash = layout.flash_bytes / u64::from(scale);
    if flash < LEAST_FLASH_BYTES {
        return Err(PredictError::Layout(format!(
            "at 1/{scale} the cache has {flash} bytes of flash, and needs at least {LEAST_FLASH_BYTES}: \
             use a larger trace, or a smaller N in --scale 1/N"
        )));
    }
    Ok(())
}

/// The smallest scale of `card`, as 1/N, at which the engine was measured.
#[must_use]
pub fn smallest_scale(card: &Card) -> u32 {
    candidate::smallest_scale(card.space.unit_bytes)
}

/// The scale at which the drive holds [`HELD`] of the trace.
fn fitting_scale(card: &Card, footprint_bytes: u64) -> u32 {
    let held = (footprint_bytes as f64 * HELD).max(1.0);
    (card.space.usable_bytes as f64 / held).round().clamp(1.0, f64::from(u32::MAX)) as u32
}
