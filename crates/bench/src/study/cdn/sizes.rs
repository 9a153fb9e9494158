//! Hit ratios of caching policies for a photo CDN: figure 2 of "The Evolution of Advanced Caching in the Facebook CDN"
//! (Facebook Research, 2016; first measured in "An analysis of Facebook photo caching", SOSP'13), and the loss by RIPQ's
//! insertion points (part III there; "RIPQ", FAST'15).
//!
//! Simulates every object of the generated workload that all photo CDN figures share, at its own scale: 1/128 of a cache and of
//! a block of 64 MiB, independent of `--scale`. With a given trace, cache and block sizes have the same ratio to its footprint.

use workload::generate::cdn::{Cdn, CdnConfig, EDGE_CACHE_BYTES, FOOTPRINT_BYTES, ORIGIN_CACHE_BYTES};
use workload::trace::Accesses;

use super::super::{Chart, Line, Outcome, Point, Runner, StudyError};
use crate::simulate::{self, FlashSettings, Plan, RuleBook, Settings, SimulateError, Size, Warmup};

/// 64 MiB at the workload's scale.
const BLOCK_BYTES: u64 = 512 << 10;
/// Warm-up, a share of the requests, with which the workload was calibrated.
const WARMUP: f64 = 0.25;
/// Cache sizes, relative to production.
const SIZES: [f64; 5] = [0.5, 1.0, 2.0, 3.0, 4.0];
/// Maximum number of insertion points.
const MAX_POINTS: usize = 16;
/// Accepted loss of eight insertion points: half a point of hit ratio. A gain is possible, because an item that was hit is
/// reinserted at the head of its section, slightly above its exact position.
const HALF_A_POINT: (f64, f64) = (-0.5, 1.0);

/// Sizes of production, scaled to the workload.
struct Caches {
    origin_bytes: u64,
    edge_bytes: u64,
    block_bytes: u64,
}

/// Limits of the block size.
const BLOCKS_BYTES: (u64, u64) = (1 << 10, 64 << 20);
/// If a block holds fewer objects than this on average, the result has a note. Blocks of the generated workload hold twenty.
const FEW_OBJECTS: u64 = 8;
/// Minimum size of the Origin cache: a smaller one cannot have the regions for [`MAX_POINTS`] insertion points.
const MIN_ORIGIN_BYTES: u64 = 2 * 20 * BLOCKS_BYTES.0;

impl Caches {
    fn of(runner: &Runner) -> Result<Self, StudyError> {
        let Some(given) = &runner.given else {
            return Ok(Self {
                origin_bytes: ORIGIN_CACHE_BYTES,
                edge_bytes: EDGE_CACHE_BYTES,
                block_bytes: BLOCK_BYTES,
            });
        };
        let share = given.footprint_bytes as f64 / FOOTPRINT_BYTES as f64;
        let of = |bytes: u64| (bytes as f64 * share) as u64;
        if of(ORIGIN_CACHE_BYTES) < MIN_ORIGIN_BYTES {
            let least = MIN_ORIGIN_BYTES * (FOOTPRINT_BYTES / ORIGIN_CACHE_BYTES);
            return Err(StudyError::Output(format!(
                "{given}: caches in proportion would be too small; the trace needs a footprint of at least {least} bytes"
            )));
        }
        Ok(Self {
            origin_bytes: of(ORIGIN_CACHE_BYTES),
            edge_bytes: of(EDGE_CACHE_BYTES),
            block_bytes: of(BLOCK_BYTES).clamp(BLOCKS_BYTES.0, BLOCKS_BYTES.1),
        })
    }

    /// Notes for the result.
    fn notes(&self, runner: &Runner) -> Vec<String> {
        let few = runner.given.as_ref().filter(|given| self.block_bytes < FEW_OBJECTS * given.mean_bytes);
        let warning = few.map(|given| {
            format!(
                "Blocks hold fewer than {FEW_OBJECTS} objects ({} bytes on average): RIPQ has a lower hit ratio than the exact policy because of that, and not \
                 because of its insertion points. A trace with a larger footprint has larger blocks.",
                given.mean_bytes
            )
        });
        std::iter::once(self.note(runner)).chain(warning).collect()
    }

    fn note(&self, runner: &Runner) -> String {
        let Self { origin_bytes, edge_bytes, block_bytes } = self;
        match &runner.given {
            None => format!(
                "Generated photo-CDN workload, {} requests, the first quarter not counted; blocks of {} KiB.",
                CdnConfig::default().requests,
                block_bytes >> 10,
            ),
            Some(given) => format!(
                "{given}, the first quarter not counted; 1x is {origin_bytes} bytes of an Origin cache and {edge_bytes} of an Edge \
                 cache, blocks of {block_bytes} bytes; larger objects stay out of RIPQ.",
            ),
        }
    }
}

/// Hit ratios in percent, by policy and size.
struct HitRatios {
    policies: Vec<String>,
    rows: Vec<Vec<f64>>,
}

impl HitRatios {
    fn of(&self, policy: &str) -> &[f64] {
        let place = self.policies.iter().position(|it| it == policy);
        &self.rows[place.expect("the study simulates it")]
    }

    fn line(&self, policy: &str, name: &str) -> Line {
        Line::new(name, SIZES.into_iter().zip(self.of(policy).iter().copied()))
    }
}

fn simulated(
    runner: &Runner,
    policies: Vec<String>,
    sizes: &[f64],
    (once_bytes, block_bytes): (u64, u64),
) -> Result<HitRatios, StudyError> {
    let plan = Plan {
        policies: policies.iter().map(|name| name.parse().expect("a policy's name")).collect(),
        sizes: sizes.iter().map(|times| Size::Bytes((once_bytes as f64 * times) as u64)).collect(),
        settings: Settings { rule_book: RuleBook::Paper, seed: runner.seed, ..Settings::default() },
        flash: FlashSettings { block_bytes: Some(block_bytes), ..FlashSettings::default() },
        warmup: Warmup::Share(WARMUP),
        series: None,
        first_size: false,
        ignore_size: false,
        ignore_ttl: false,
        sample: None,
        tenants: None,
        shard: None,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let workload: Box<dyn Accesses> = match &runner.given {
        None => Box::new(Cdn::new(&CdnConfig::default(), runner.seed)),
        Some(given) => given.open()?,
    };
    let outcome = simulate::run(&plan, workload, &runner.stop, |_, _| ()).map_err(|error| match error {
        SimulateError::Interrupted => StudyError::Interrupted,
        other => StudyError::Output(other.to_string()),
    })?;
    if outcome.was_stopped {
        return Err(StudyError::Interrupted);
    }
    let percent = |row: &simulate::Row| row.object_hit_ratio().unwrap_or(0.0) * 100.0;
    // With a tiny trace, two sizes may be equal and are simulated once.
    let at = |policy: &str, size: Size| {
        let mut rows = outcome.rows.iter();
        rows.find(|row| row.as_given == policy && Size::Bytes(row.size_bytes) == size).map_or(0.0, percent)
    };
    let rows = policies.iter().map(|policy| plan.sizes.iter().map(|size| at(policy, *size)).collect());
    let rows = rows.collect();
    Ok(HitRatios { policies, rows })
}

/// Figure 2: hit ratio of Clairvoyant, S4LRU, LRU and FIFO over sizes of the Origin cache, and of RIPQ next to the policies
/// that it approximates.
pub(in crate::study) fn fig2(runner: &Runner) -> Result<Outcome, StudyError> {
    let policies = ["clairvoyant", "slru4", "lru", "fifo", "gdsf", "ripq8", "ripq8-gdsf"];
    let caches = Caches::of(runner)?;
    let of = |policies: &[&str], once_bytes| {
        let policies = policies.iter().map(ToString::to_string).collect();
        simulated(runner, policies, &SIZES, (once_bytes, caches.block_bytes))
    };
    let origin = of(&policies, caches.origin_bytes)?;
    let edge = of(&["slru4", "fifo"], caches.edge_bytes)?;
    let mut points = Vec::new();
    let mut shown = |name: &str, paper: f64, ours: f64| {
        points.push(Point::shown(name, Some(paper), ours).in_unit("%"));
    };
    shown("origin, FIFO at 1x", 33.0, origin.of("fifo")[1]);
    shown("origin, FIFO at 2x", 42.5, origin.of("fifo")[2]);
    shown("edge, FIFO at 1x", 59.2, edge.of("fifo")[1]);
    shown("edge, FIFO at 2x", 65.0, edge.of("fifo")[2]);
    shown("edge, FIFO at 3x", 68.5, edge.of("fifo")[3]);
    shown("edge, S4LRU at 1x", 67.7, edge.of("slru4")[1]);
    shown("edge, S4LRU at 2x", 72.0, edge.of("slru4")[2]);
    // The gain of advanced algorithms, from the text near the figure.
    let gain = origin.of("slru4")[1] - origin.of("fifo")[1];
    points.push(accepted("origin, S4LRU over FIFO at 1x", gain, (8.0, 21.0)));
    for (exact, ripq) in [("slru4", "ripq8"), ("gdsf", "ripq8-gdsf")] {
        for (size, times) in SIZES.iter().enumerate() {
            let differs = origin.of(ripq)[size] - origin.of(exact)[size];
            points.push(accepted(
                format!("origin, RIPQ over exact {exact} at {times}x"),
                differs,
                HALF_A_POINT,
            ));
        }
    }
    let lines = [
        ("clairvoyant", "Clairvoyant"),
        ("gdsf", "GDSF"),
        ("slru4", "S4LRU"),
        ("lru", "LRU"),
        ("fifo", "FIFO"),
        ("ripq8", "RIPQ, S4LRU on top"),
    ];
    let mut lines: Vec<Line> = lines.iter().map(|(policy, name)| origin.line(policy, name)).collect();
    if runner.given.is_none() {
        lines.push(Line::marks("FIFO, published", [(1.0, 33.0), (2.0, 42.5)]));
    }
    let chart = Chart {
        title: "Hit ratio over sizes of the Origin cache".to_owned(),
        x: "size, times production's",
        y: "hits, % of requests",
        lines,
    };
    Ok(Outcome { points, charts: vec![chart], notes: caches.notes(runner) })
}

/// Hit ratio over the number of insertion points, compared with the exact policy.
pub(in crate::study) fn insertion_points(runner: &Runner) -> Result<Outcome, StudyError> {
    let count = MAX_POINTS;
    let mut policies = vec!["slru4".to_owned(), "gdsf".to_owned()];
    policies.extend((1..=count).map(|points| format!("ripq{points}")));
    policies.extend((1..=count).map(|points| format!("ripq{points}-gdsf")));
    let caches = Caches::of(runner)?;
    let all = simulated(runner, policies, &[1.0], (caches.origin_bytes, caches.block_bytes))?;
    let ratio = |place: usize| all.rows[place][0];
    let (mut points, mut lines) = (Vec::new(), Vec::new());
    for (policy, name, first, over_one) in [(0, "S4LRU", 2, (5.0, 15.0)), (1, "GDSF", 2 + count, (1.0, 6.0))]
    {
        let exact = ratio(policy);
        let by_points: Vec<f64> = (first..first + count).map(ratio).collect();
        for (place, ours) in by_points.iter().enumerate().filter(|(place, _)| [0, 1, 3].contains(place)) {
            points.push(
                Point::shown(
                    format!("{name}, {} insertion points, over exact", place + 1),
                    None,
                    ours - exact,
                )
                .in_unit("points"),
            );
        }
        let (eight, sixteen) = (by_points[7], by_points[15]);
        points.push(accepted(format!("{name}, 8 insertion points, over exact"), eight - exact, HALF_A_POINT));
        points.push(accepted(format!("{name}, 8 insertion points, over 16"), eight - sixteen, (-0.2, 0.2)));
        points.push(accepted(format!("{name}, 8 insertion points, over 1"), eight - by_points[0], over_one));
        lines.push(Line::new(
            &format!("RIPQ, {name} on top"),
            by_points.iter().enumerate().map(|(place, ours)| (place as f64 + 1.0, *ours)),
        ));
        lines.push(Line::new(&format!("{name}, exact"), [(1.0, exact), (count as f64, exact)]));
    }
    let chart = Chart {
        title: "Hit ratio over RIPQ's insertion points, Origin cache".to_owned(),
        x: "insertion points",
        y: "hits, % of requests",
        lines,
    };
    Ok(Outcome { points, charts: vec![chart], notes: caches.notes(runner) })
}

/// A difference in points of hit ratio that must lie within `low_and_high`.
fn accepted(name: impl Into<String>, ours: f64, low_and_high: (f64, f64)) -> Point {
    Point { name: name.into(), paper: None, ours, unit: "points", accepted: Some(low_and_high) }
}
