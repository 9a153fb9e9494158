//! Writes the model drive as a cache would: random writes for small objects and cyclic writes for large ones.

use ssd::card::MIN_SCALED_PAGES;
use ssd::run::{self, Arrival, Counted, Length, Load, Order, Pattern, Served, Stream};
use ssd::{Card, Drive, Ftl, Shape, Untimed};

use super::{Figure, SmallEngine};
use crate::run::latency::Histogram;

/// The load of a cache on a drive.
#[derive(Debug, Clone)]
pub(super) struct Use<'a> {
    /// The drive, at full size.
    pub card: &'a Card,
    /// Share of the drive that is written.
    pub utilization: f64,
    /// Share of the written part for small objects.
    pub small_share: f64,
    /// Whether small and large objects have a handle each.
    pub placement: bool,
    /// Bytes that the host writes per second.
    pub host_bytes_per_second: f64,
    /// The part of `host_bytes_per_second` for small objects.
    pub small_bytes_per_second: f64,
    /// The engine for small objects.
    pub small: SmallEngine,
    /// Size of a set.
    pub set_bytes: u32,
    /// Pages that the host reads per second.
    pub reads_per_second: f64,
}

/// Seeds over which write amplification is averaged.
const SEEDS: u64 = 3;
/// Pages of the model drive: one GiB of 4 KiB pages, which takes seconds for all seeds.
const PAGES: u64 = 1 << 18;
/// Pages of the model drive for the simulation of latencies.
const TIMED_PAGES: u64 = 1 << 16;
/// A drive of few pages relocates less than a whole one, by up to this factor (docs/studies.md: 3.32 at 1/2048, 3.51 at 1/16).
const MOVES_MORE: f64 = 0.1;
/// An engine that merges changes to one set into one write makes the drive relocate less, by up to this factor
/// (docs/predict.md).
const MOVES_LESS: f64 = 0.25;
/// Additional relocation if regions end in the middle of a unit.
const AT_THE_ENDS: f64 = 0.05;
/// Additional relocation if small and large objects have a placement handle each: 1.10 to 1.22 were measured where 1.00 was predicted,
/// with regions of a 12th to a 48th of a unit (docs/predict.md).
const AT_THE_ENDS_PLACED: f64 = 0.25;
/// Largest share of reads in the simulated load. Limited because a run ends after a number of writes.
const MOST_READS: f64 = 0.98;

/// Latency of reads from flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// There are no reads, or their rate is unknown.
    Unknown,
    /// The load exceeds the drive's rate.
    TooMany,
    /// The latencies.
    Take(ReadLatency),
}

/// Latencies of reads from flash, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLatency {
    /// The mean.
    pub mean_ns: u64,
    /// The 1st percentile.
    pub p01_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
}

impl Use<'_> {
    /// Pages per second of the host's writes of small objects and of its other writes.
    fn pages_per_second(&self) -> (f64, f64) {
        let page = f64::from(self.card.space.page_bytes);
        let small = match self.small {
            SmallEngine::Sets => {
                let set = f64::from(self.set_bytes);
                self.small_bytes_per_second / set * (set / page).ceil()
            }
            SmallEngine::Log => self.small_bytes_per_second / page,
        };
        (small, (self.host_bytes_per_second - self.small_bytes_per_second) / page)
    }

    fn pattern(&self) -> Pattern {
        let (small, large) = self.pages_per_second();
        let of_small = small / (small + large);
        let order = match self.small {
            SmallEngine::Sets => Order::Uniform,
            SmallEngine::Log => Order::Ring,
        };
        let streams = [
            Stream { space: self.small_share, writes: of_small, order },
            Stream { space: 1.0 - self.small_share, writes: 1.0 - of_small, order: Order::Ring },
        ];
        // Space that is never written acts as over-provisioning.
        match streams.iter().filter(|it| it.space > 0.0 && it.writes > 0.0).count() {
            2 => Pattern { streams: streams.to_vec() },
            _ => Pattern::one(if of_small > 0.5 { order } else { Order::Ring }),
        }
    }

    /// Share of the drive that is written.
    fn written_share(&self) -> f64 {
        match (self.pages_per_second(), self.pattern().streams.len()) {
            (_, 2) => self.utilization,
            ((small, _), _) if small > 0.0 => self.utilization * self.small_share,
            _ => self.utilization * (1.0 - self.small_share),
        }
    }

    /// The shape of the drive on `card`, with its logical space reduced to the written part.
    fn shape(&self, card: &Card) -> Result<Shape, String> {
        let mut shape = card.shape(self.placement);
        let pages = (f64::from(shape.logical_pages) * self.written_share()).round().max(1.0);
        shape.logical_pages = pages as u32;
        self.pattern().check(shape.logical_pages)?;
        Ok(shape)
    }

    /// Media bytes per host byte. `progress` receives the share that is done and ends the run by returning false.
    pub(super) fn dlwa(
        &self,
        seed: u64,
        mut progress: impl FnMut(f64) -> bool,
    ) -> Result<Option<Figure>, String> {
        let card = at_most(self.card, PAGES)?;
        let shape = self.shape(&card)?;
        let (small, large) = self.pages_per_second();
        let page = f64::from(shape.page_bytes);
        let in_pages = (small + large) * page / self.host_bytes_per_second;
        let mut all = Vec::new();
        for number in 0..SEEDS {
            let seed = seed.wrapping_add(number);
            let layout = shape.clone().layout().map_err(|error| error.to_string())?;
            let mut ftl = Ftl::new(layout, card.upkeep(seed));
            let mut is_wanted = true;
            let counted =
                run::run(&mut ftl, &self.pattern(), Length::default(), seed, &mut Untimed, |done, of| {
                    is_wanted = progress((number as f64 + done as f64 / of as f64) / SEEDS as f64);
                    is_wanted
                });
            let Some(dlwa) = ftl.stats().dlwa(shape.page_bytes).filter(|_| counted == Counted::All) else {
                return Ok(None);
            };
            all.push(dlwa * in_pages);
        }
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(0.0, f64::max);
        let value = all.iter().sum::<f64>() / all.len() as f64;
        let moved = |dlwa: f64| (dlwa - in_pages).max(0.0);
        let bounds = Figure { value, low: least, high: most };
        let at_the_ends = if self.placement { AT_THE_ENDS_PLACED } else { AT_THE_ENDS };
        Ok(Some(bounds.widened(MOVES_LESS * moved(least), MOVES_MORE * moved(most) + at_the_ends)))
    }

    /// Latency of a read under this load.
    pub(super) fn reads(&self, seed: u64) -> Result<Reads, String> {
        if self.reads_per_second <= 0.0 {
            return Ok(Reads::Unknown);
        }
        let card = at_most(self.card, TIMED_PAGES)?;
        let shape = self.shape(&card)?;
        let (small, large) = self.pages_per_second();
        let writes = (small + large).max(self.reads_per_second * (1.0 - MOST_READS) / MOST_READS);
        let all = self.reads_per_second + writes;
        let gap_ns = (1e9 / all).round();
        if gap_ns < 1.0 {
            return Ok(Reads::TooMany);
        }
        let load = Load { reads: self.reads_per_second / all, arrival: Arrival::EveryNs(gap_ns as u64) };
        let mut drive = Drive::new(&card, &shape, card.upkeep(seed)).map_err(|error| error.to_string())?;
        let (mut reads, mut writes) = (Histogram::default(), Histogram::default());
        let record = |served, took_ns| match served {
            Served::Read => reads.record(took_ns),
            Served::Write => writes.record(took_ns),
        };
        let length = Length { warm_up: 2.0, measured: 0.5 };
        let (_, took) =
            run::run_timed(&mut drive, &self.pattern(), (length, load), seed, record, |_, _| true);
        let (Some(mean_ns), Some(p01_ns), Some(p99_ns)) =
            (reads.mean_ns(), reads.quantile_ns(0.01), reads.quantile_ns(0.99))
        else {
            return Ok(Reads::Unknown);
        };
        if writes.mean_ns().unwrap_or(0.0).max(mean_ns) > BEHIND * took.arrivals_ns as f64 {
            return Ok(Reads::TooMany);
        }
        // If all latencies are equal, the histogram's resolution may put a percentile above or below the mean.
        let mean_ns = mean_ns as u64;
        Ok(Reads::Take(ReadLatency { mean_ns, p01_ns: p01_ns.min(mean_ns), p99_ns: p99_ns.max(mean_ns) }))
    }
}

/// A drive under a load above its rate falls behind steadily: its requests then take at least this share of the whole simulated time.
const BEHIND: f64 = 0.02;

/// The card with about `pages` pages, or with the minimum that its units allow.
fn at_most(card: &Card, pages: u64) -> Result<Card, String> {
    let space = &card.space;
    let wanted = (space.usable_bytes / u64::from(space.page_bytes)).div_ceil(pages);
    let most = space.unit_bytes / u64::from(space.page_bytes) / MIN_SCALED_PAGES;
    let divisor = u32::try_from(wanted.min(most).max(1)).unwrap_or(u32::MAX);
    card.scaled(divisor).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(card: &Card) -> Use<'_> {
        Use {
            card,
            utilization: 1.0,
            small_share: 0.04,
            placement: false,
            host_bytes_per_second: 3.0 * 4096.0,
            small_bytes_per_second: 2.0 * 4096.0,
            small: SmallEngine::Sets,
            set_bytes: 4096,
            reads_per_second: 1.0,
        }
    }

    #[test]
    fn write_of_a_set_takes_whole_drive_pages() {
        let (small, large) = (Card::load("pm9d3").unwrap(), Card::load("qlc").unwrap());
        assert_eq!(used(&small).pages_per_second(), (2.0, 1.0));
        assert_eq!(used(&large).pages_per_second(), (2.0, 0.25), "of 16 KiB");
        let log = Use { small: SmallEngine::Log, ..used(&large) };
        assert_eq!(log.pages_per_second(), (0.5, 0.25), "a log fills its pages");
        let orders = |of: &Use<'_>| of.pattern().streams.iter().map(|it| it.order).collect::<Vec<_>>();
        assert_eq!(orders(&log), [Order::Ring, Order::Ring]);
        assert_eq!(orders(&used(&large)), [Order::Uniform, Order::Ring]);
        // Only sets, on so little of the drive that nothing is relocated: the drive writes four times the requested bytes.
        let alone = Use { host_bytes_per_second: 2.0 * 4096.0, utilization: 0.2, ..used(&large) };
        let written = alone.dlwa(1, |_| true).unwrap().unwrap();
        assert!((written.value - 4.0).abs() < 0.01, "{written:?}");
    }

    #[test]
    fn unwritten_space_is_spare() {
        let card = Card::load("pm9d3").unwrap();
        let dlwa = |of: Use<'_>| of.dlwa(1, |_| true).unwrap().unwrap().value;
        let all = dlwa(used(&card));
        let half = dlwa(Use { utilization: 0.5, ..used(&card) });
        assert!(all > half + 1.0, "{half} of half of the drive, {all} of all");
        let sets_alone = Use { host_bytes_per_second: 2.0 * 4096.0, ..used(&card) };
        assert_eq!(sets_alone.pattern(), Pattern::one(Order::Uniform));
        assert!((sets_alone.written_share() - 0.04).abs() < 1e-12);
        let ring_alone = Use { small_bytes_per_second: 0.0, ..used(&card) };
        assert_eq!((ring_alone.pattern(), ring_alone.written_share()), (Pattern::one(Order::Ring), 0.96));
        assert!((dlwa(ring_alone) - 1.0).abs() < 1e-9, "a ring moves nothing");
        let log = |placement| dlwa(Use { small: SmallEngine::Log, placement, ..used(&card) });
        assert!(
            log(false) > 1.05 && log(true) < 1.01,
            "two rings of different speed share units without placement"
        );
    }

    #[test]
    fn stopped_run_returns_no_dlwa() {
        let card = Card::load("pm9d3").unwrap();
        assert_eq!(used(&card).dlwa(1, |share| share < 0.5), Ok(None));
    }

    #[test]
    fn read_latency_rises_with_load_until_the_drive_is_overloaded() {
        let card = Card::load("pm9d3").unwrap();
        let at = |times: f64| {
            let it = used(&card);
            let heavy = Use {
                host_bytes_per_second: it.host_bytes_per_second * times,
                small_bytes_per_second: it.small_bytes_per_second * times,
                reads_per_second: it.reads_per_second * times,
                ..it
            };
            heavy.reads(1).unwrap()
        };
        let (Reads::Take(idle), Reads::Take(busy)) = (at(10.0), at(30_000.0)) else {
            panic!("{:?}", at(30_000.0))
        };
        assert!(idle.p99_ns < busy.p99_ns && idle.p01_ns <= idle.mean_ns, "{idle:?} {busy:?}");
        assert!(idle.mean_ns >= card.nand.read_ns, "{idle:?}");
        assert_eq!(at(1e6), Reads::TooMany);
        assert_eq!(Use { reads_per_second: 0.0, ..used(&card) }.reads(1), Ok(Reads::Unknown));
    }
}
