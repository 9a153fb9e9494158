//! The simulation of a layout: its hits and writes.

use policy::simulate::Access;
use policy::simulate::flash::{Hybrid, HybridCounts, HybridRules};

use super::layout::ENGINE_REGION_BYTES;
use super::{Figure, OverTime};
use crate::run::counts::ratio;
use crate::simulate::Batch;
use crate::simulate::parallel::Work;

/// The smallest scale, as 1/N, at which the engine was measured against predictions for drives with units of this size.
pub(super) fn smallest_scale(unit_bytes: u64) -> u32 {
    u32::try_from(unit_bytes / (MEASURED_REGIONS * ENGINE_REGION_BYTES)).unwrap_or(u32::MAX).max(1)
}

/// Number of equal parts of the counted accesses; the lowest and highest ratio among them are the spread over time.
pub(super) const WINDOWS: u64 = 10;

/// The largest deviation measured between the engine and the simulation, rounded up (docs/predict.md). Both are measured at scales at
/// which the engine has few slabs, and merges more changes into one write of a set than at full size.
pub(super) const HITS_OFF: f64 = 0.025;
pub(super) const DRAM_HITS_OFF: f64 = 0.05;
/// The share of set bytes that the engine saves by merging changes to one set. Regions have no such merging.
pub(super) const SETS_LESS: f64 = 0.15;
pub(super) const WRITES_MORE: f64 = 0.06;
/// Minimum number of regions per reclaim unit for which the engine was measured against predictions. With fewer, a write fills such a
/// part of a unit that the drive relocates less than predicted; no bounds were measured for that.
const MEASURED_REGIONS: u64 = 12;

/// A simulation of a layout.
pub(super) struct Candidate {
    hybrid: Hybrid,
    /// Numbers of accesses at which the warm-up and each window end.
    ends: Vec<u64>,
    seen: u64,
    /// The counts at each end reached so far.
    marks: Vec<HybridCounts>,
    /// Bytes of flash for small objects and of regions: the bytes to write before flash is full.
    room: (u64, u64),
    set_bytes: u32,
}

/// Predicted figures per access.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Traffic {
    /// Share of gets that hit.
    pub hit_ratio: Option<Figure>,
    /// Share of gets that hit in DRAM.
    pub hit_ratio_dram: Option<Figure>,
    /// Bytes that the host writes per byte of the admitted objects.
    pub alwa: Option<Figure>,
    /// Variation of the ratios above over time.
    pub over_time: OverTime,
    /// Bytes that the host writes per access.
    pub host_bytes: Figure,
    /// The part of `host_bytes` for small objects.
    pub small_bytes: f64,
    /// Pages read per access.
    pub reads: f64,
    /// Share of the objects evicted from DRAM that are too large for flash.
    pub too_large: f64,
    /// Whether every part of flash that the trace writes was full when counting began.
    pub is_filled: bool,
}

impl Candidate {
    /// A layout before a trace of `accesses` accesses. The first `warm_up` are not counted.
    pub(super) fn new(rules: HybridRules, accesses: u64, warm_up: u64) -> Self {
        let ends = (0..=WINDOWS).map(|window| warm_up + (accesses - warm_up) * window / WINDOWS);
        let mut candidate = Self {
            room: (room_of_small(&rules), rules.large_weight),
            set_bytes: rules.set_weight,
            hybrid: Hybrid::new(rules),
            ends: ends.collect(),
            seen: 0,
            marks: Vec::new(),
        };
        candidate.mark();
        candidate
    }

    fn mark(&mut self) {
        while self.ends.get(self.marks.len()).is_some_and(|end| *end == self.seen) {
            self.marks.push(self.hybrid.counts());
        }
    }

    /// Simulates accesses; `ttls` as for [`Hybrid::run`].
    fn accesses(&mut self, mut accesses: &[Access], mut ttls: &[u32]) {
        while !accesses.is_empty() {
            let end = self.ends.get(self.marks.len()).map_or(u64::MAX, |end| end - self.seen);
            let (now, later) = accesses.split_at((accesses.len() as u64).min(end) as usize);
            self.hybrid.run(now, ttls);
            ttls = ttls.get(now.len()..).unwrap_or(&[]);
            self.seen += now.len() as u64;
            self.mark();
            accesses = later;
        }
    }

    /// The result; `None` if the trace was not run to its end.
    pub(super) fn traffic(&self, page_bytes: u32) -> Option<Traffic> {
        let (first, last) = (self.marks.first()?, self.marks.get(WINDOWS as usize)?);
        let windows: Vec<HybridCounts> = self.marks.windows(2).map(|pair| pair[1].since(&pair[0])).collect();
        let all = last.since(first);
        let set_bytes = u64::from(self.set_bytes);
        let small_bytes = |counts: &HybridCounts| counts.sets_written * set_bytes + counts.small_log_weight;
        let host_bytes = |counts: &HybridCounts| small_bytes(counts) + counts.log_weight;
        let of_sets = (all.sets_written * set_bytes) as f64 / host_bytes(&all).max(1) as f64;
        let hits = |of: fn(&HybridCounts) -> u64, off: f64| {
            let value = ratio(of(&all), all.gets)?;
            Some(Figure::exact(value).widened(off, off).clamp(0.0, 1.0))
        };
        let writes = |below: fn(&HybridCounts) -> u64| {
            let value = ratio(host_bytes(&all), below(&all))?;
            Some(Figure::exact(value).widened(value * SETS_LESS * of_sets, value * WRITES_MORE))
        };
        let spread = |above: &dyn Fn(&HybridCounts) -> u64, below: fn(&HybridCounts) -> u64| {
            let ratios = || windows.iter().filter_map(|it| ratio(above(it), below(it)));
            ratios().reduce(f64::min).zip(ratios().reduce(f64::max))
        };
        let accesses = calls(&all) as f64;
        let pages = |bytes: u64| bytes as f64 / f64::from(page_bytes);
        // A set is read for a lookup, and before it is rewritten unless it is empty. A log reads one page.
        let set_reads = (all.hits_small + all.sets_read) as f64 * pages(set_bytes).ceil();
        // A large object may begin anywhere in a page, so it covers one page more than its bytes fill.
        let reads = set_reads + all.hits_large as f64 + pages(all.hit_weight_large);
        Some(Traffic {
            hit_ratio: hits(HybridCounts::hits, HITS_OFF),
            hit_ratio_dram: hits(|it| it.hits_dram, DRAM_HITS_OFF),
            alwa: writes(|it| it.taken_weight),
            over_time: OverTime {
                hit_ratio: spread(&HybridCounts::hits, |it| it.gets),
                hit_ratio_dram: spread(&|it| it.hits_dram, |it| it.gets),
                alwa: spread(&host_bytes, |it| it.taken_weight),
            },
            host_bytes: writes(calls)?,
            small_bytes: small_bytes(&all) as f64 / accesses,
            reads: reads / accesses,
            too_large: all.too_large as f64 / all.offered.max(1) as f64,
            // A part that the trace never writes is ignored, such as the sets in a trace without small objects.
            is_filled: (small_bytes(first) >= self.room.0 || small_bytes(last) == 0)
                && (first.log_weight >= self.room.1 || last.log_weight == 0),
        })
    }
}

fn calls(counts: &HybridCounts) -> u64 {
    counts.gets + counts.sets + counts.removals
}

/// Bytes of whole sets, or of the regions of a log without the open one.
fn room_of_small(rules: &HybridRules) -> u64 {
    match rules.small_log {
        Some(log) => (rules.small_weight / log.region_weight).saturating_sub(1) * log.region_weight,
        None => rules.small_weight / u64::from(rules.set_weight) * u64::from(rules.set_weight),
    }
}

impl Work for Candidate {
    fn cost(&self) -> u32 {
        1
    }

    fn run(&mut self, batch: &Batch) {
        self.accesses(&batch.accesses, &batch.ttls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{Layout, SET_BYTES, Settings, SmallEngine};

    fn get(object: u32, weight: u32) -> Access {
        Access { object, weight, now_seconds: 0, is_removal: false, is_set: false }
    }

    fn layout(small_share: f64) -> Layout {
        Layout {
            dram_bytes: 0,
            utilization: 1.0,
            flash_bytes: 64 << 20,
            small_share,
            admission: 1.0,
            small: SmallEngine::Sets,
            settings: Settings::default(),
        }
    }

    fn traffic(layout: &Layout, accesses: &[Access], warm_up: f64) -> Traffic {
        let all = accesses.len() as u64;
        let mut candidate = Candidate::new(layout.rules(1, 1), all, (all as f64 * warm_up) as u64);
        // Batches that do not end where windows do.
        accesses.chunks(777).for_each(|some| candidate.accesses(some, &[]));
        candidate.traffic(4096).expect("it was run to its end")
    }

    #[test]
    fn accesses_of_the_warm_up_are_not_counted() {
        // 1000 objects of 100 bytes, requested repeatedly: each misses once, in the first quarter.
        let accesses: Vec<Access> = (0..4000).map(|number| get(number % 1000, 100)).collect();
        let all = traffic(&layout(0.5), &accesses, 0.0);
        assert!((all.hit_ratio.unwrap().value - 0.75).abs() < 1e-9 && !all.is_filled);
        // One access in four writes a set, which is usually empty before; three read one.
        assert!(
            (all.host_bytes.value - 4096.0 / 4.0).abs() < 1e-9 && (all.small_bytes - 1024.0).abs() < 1e-9
        );
        assert!((all.alwa.unwrap().value - 40.96).abs() < 1e-9 && (0.75..0.77).contains(&all.reads));
        let warm = traffic(&layout(0.5), &accesses, 0.25);
        assert_eq!((warm.hit_ratio.unwrap().value, warm.host_bytes.value, warm.reads), (1.0, 0.0, 1.0));
        assert_eq!(warm.alwa, None, "nothing was taken");
    }

    /// Catches a regression: a non-empty set is written without a read of its content, so that only hits read.
    #[test]
    fn nonempty_set_is_read_before_its_write() {
        let passing: Vec<Access> = (0..4000).map(|number| get(number, 100)).collect();
        let of_one_set = f64::from(SET_BYTES) / f64::from(64 << 20);
        let found = traffic(&layout(of_one_set), &passing, 0.0);
        assert_eq!((found.host_bytes.value, found.reads), (4096.0, 3999.0 / 4000.0), "all but the first");
        let mut candidate = Candidate::new(layout(of_one_set).rules(1, 1), 4000, 0);
        candidate.accesses(&passing, &[]);
        assert_eq!(candidate.traffic(512).map(|it| it.reads), Some(8.0 * 3999.0 / 4000.0), "of eight pages");
    }

    #[test]
    fn large_object_is_read_in_one_page_more_than_its_bytes() {
        // 8 KiB with its header is 129 units of 64 bytes; each of 40 MiB of objects is requested twice.
        let accesses: Vec<Access> = (0..10_240).map(|number| get(number % 5120, 8192)).collect();
        let found = traffic(&layout(0.0), &accesses, 0.5);
        assert_eq!((found.hit_ratio.unwrap().value, found.reads), (1.0, 3.0));
        assert!(!found.is_filled, "40 of 64 MiB");
        let passing: Vec<Access> = (0..20_480).map(|number| get(number, 8192)).collect();
        let full = traffic(&layout(0.0), &passing, 0.5);
        assert!(
            full.is_filled && (full.host_bytes.value - 129.0 * 64.0).abs() < 1e-9 && full.small_bytes == 0.0
        );
        let [low, high] = [full.alwa.unwrap().low, full.alwa.unwrap().high];
        let value = 129.0 * 64.0 / 8192.0;
        assert!((low - value).abs() < 1e-9 && (high - value * 1.06).abs() < 1e-9, "{low} {high}");
    }

    /// Catches a regression: such objects are neither written nor hit.
    #[test]
    fn objects_up_to_a_region_are_kept_at_any_scale() {
        let whole = Layout { flash_bytes: 16 << 30, ..layout(0.0) };
        let run = |weight: u32| {
            let accesses: Vec<Access> = (0..4000).map(|number| get(number % 20, weight)).collect();
            let mut candidate = Candidate::new(whole.rules(256, 1), 4000, 2000);
            candidate.accesses(&accesses, &[]);
            candidate.traffic(4096).expect("it was run to its end")
        };
        let kept = run(1_000_000);
        assert_eq!((kept.hit_ratio.unwrap().value, kept.too_large), (1.0, 0.0), "20 of 1 MB in 64 MiB");
        let refused = run(17 << 20);
        assert_eq!((refused.hit_ratio.unwrap().value, refused.too_large), (0.0, 1.0), "a region is 16 MiB");
    }

    #[test]
    fn small_objects_in_a_log_are_written_once_and_fill_it() {
        // Objects of 1000 bytes, each requested once, into a log of 8 MiB.
        let whole = Layout { flash_bytes: 16 << 20, small: SmallEngine::Log, ..layout(0.5) };
        let passing = |count: u32| (0..count).map(|number| get(number, 1000)).collect::<Vec<_>>();
        let full = traffic(&whole, &passing(20_000), 0.5);
        // Four objects fill a page of 4096 bytes; whole regions are counted.
        assert!((1.02..1.2).contains(&full.alwa.unwrap().value), "{full:?}");
        assert!((full.small_bytes - full.host_bytes.value).abs() < 1e-9 && full.small_bytes >= 1000.0);
        assert!(full.is_filled, "10 MB before counting began");
        let rules = whole.rules(1, 1);
        let region = rules.small_log.map_or(0, |log| log.region_weight);
        assert_eq!(room_of_small(&rules), (8 << 20) - region, "without the open region");
        assert!(!traffic(&whole, &passing(12_000), 0.5).is_filled, "6 MB");
    }

    /// Catches a regression: a trace without small objects never counts as filling flash.
    #[test]
    fn flash_is_filled_when_every_written_part_is_full() {
        // Large objects alone fill their half three times; no set is written.
        let large = |number: u32| get(number, 8192);
        let only_large: Vec<Access> = (0..24_576).map(large).collect();
        assert!(traffic(&layout(0.5), &only_large, 0.5).is_filled);
        // One small object in eight writes 3,072 of 8,192 sets.
        let few_small: Vec<Access> = (0..24_576)
            .map(|number| if number % 8 == 0 { get(number, 100) } else { large(number) })
            .collect();
        assert!(!traffic(&layout(0.5), &few_small, 0.5).is_filled);
        let only_small: Vec<Access> = (0..40_000).map(|number| get(number, 100)).collect();
        assert!(traffic(&layout(0.5), &only_small, 0.5).is_filled, "no region is ever written");
    }

    /// Catches a regression: the interval of the error includes the variation of the trace over time, which is no error of the
    /// prediction.
    #[test]
    fn change_over_time_widens_the_spread_and_not_the_interval() {
        // One half repeats 100 objects; the other half requests each object once.
        let accesses: Vec<Access> = (0..20_000)
            .map(|number| if number < 10_000 { get(number % 100, 100) } else { get(number, 100) })
            .collect();
        let found = traffic(&layout(0.5), &accesses, 0.0);
        let hits = found.hit_ratio.unwrap();
        assert!((hits.value - 0.495).abs() < 1e-9, "{hits:?}");
        assert!(
            (hits.value - hits.low - HITS_OFF).abs() < 1e-9
                && (hits.high - hits.value - HITS_OFF).abs() < 1e-9
        );
        assert_eq!(found.over_time.hit_ratio, Some((0.0, 1.0)));
        assert!(found.over_time.hit_ratio_dram.is_some());
        let nothing_taken = traffic(&layout(0.5), &vec![get(1, 100); 10_000], 0.5);
        assert_eq!((nothing_taken.alwa, nothing_taken.over_time.alwa), (None, None));
    }
}
