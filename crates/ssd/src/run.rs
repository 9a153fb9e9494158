//! Runs patterns of writes on the model: fill, warm up, measure.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

use crate::drive::Drive;
use crate::ftl::Ftl;
use crate::geometry::LogicalPage;
use crate::medium::{Medium, Untimed};
use crate::placement::Placement;

/// Streams of one-page writes. Each has its own part of the address space and its own handle: the first handle 0, the second handle 1, …
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    /// The streams, in the order of their parts.
    pub streams: Vec<Stream>,
}

/// One stream of a [`Pattern`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stream {
    /// Its share of the pages.
    pub space: f64,
    /// Its share of the writes.
    pub writes: f64,
    /// The order of its pages.
    pub order: Order,
}

/// The order in which a stream writes its pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Order {
    /// Any page, with equal probability.
    Uniform,
    /// The next page, and the first again after the last.
    Ring,
    /// Page k with a probability proportional to 1/k^exponent; popular pages are scattered.
    Zipf(f64),
}

impl Pattern {
    /// One stream over the whole drive.
    #[must_use]
    pub fn one(order: Order) -> Self {
        Self { streams: vec![Stream { space: 1.0, writes: 1.0, order }] }
    }

    /// The writes of a flash cache: random rewrites of a small part (small objects), and a ring through the rest (large objects).
    #[must_use]
    pub fn mixed(random_space: f64, random_writes: f64) -> Self {
        let random = Stream { space: random_space, writes: random_writes, order: Order::Uniform };
        let ring = Stream { space: 1.0 - random_space, writes: 1.0 - random_writes, order: Order::Ring };
        Self { streams: vec![random, ring] }
    }

    /// Checks the shares.
    ///
    /// # Errors
    /// The reason, as text.
    pub fn check(&self, logical_pages: u32) -> Result<(), String> {
        for (share, message) in [(0, "space"), (1, "writes")] {
            let shares = self.streams.iter().map(|stream| [stream.space, stream.writes][share]);
            let sum: f64 = shares.clone().sum();
            if (sum - 1.0).abs() > 1e-9 || !shares.clone().all(|share| share > 0.0) {
                let shares: Vec<f64> = shares.collect();
                return Err(format!("shares of {message} must be above 0 and add up to 1, not {shares:?}"));
            }
        }
        match self.parts(logical_pages).iter().position(|&(_, pages)| pages == 0) {
            Some(stream) => Err(format!("stream {stream} gets none of the drive's {logical_pages} pages")),
            None => Ok(()),
        }
    }

    /// First page and number of pages of each stream.
    fn parts(&self, logical_pages: u32) -> Vec<(u32, u32)> {
        let mut first = 0;
        let mut space = 0.0;
        let ends = self.streams.iter().map(|stream| {
            space += stream.space;
            (f64::from(logical_pages) * space).round() as u32
        });
        let parts = ends.map(|end| (std::mem::replace(&mut first, end), end));
        parts.map(|(from, end)| (from, end - from)).collect()
    }
}

/// Length of a run, in drive capacities that the host writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Length {
    /// Written before counting begins, after the first fill.
    pub warm_up: f64,
    /// Written while counting.
    pub measured: f64,
}

impl Default for Length {
    fn default() -> Self {
        Self { warm_up: 6.0, measured: 4.0 }
    }
}

/// Generates an endless write pattern.
pub struct Writer {
    lanes: Vec<Lane>,
    random: SmallRng,
}

struct Lane {
    first: u32,
    pages: u32,
    /// Upper bound of this lane in the draw of 32 bits that chooses a lane.
    below: u32,
    next: u32,
    order: Order,
    zipf: Option<Zipf<f64>>,
}

impl Writer {
    /// The writes of `pattern`, which must have been [checked](Pattern::check), on a drive of `logical_pages`.
    #[must_use]
    pub fn new(pattern: &Pattern, logical_pages: u32, seed: u64) -> Self {
        let mut share = 0.0;
        let parts = pattern.parts(logical_pages);
        let lanes = pattern.streams.iter().zip(parts).map(|(stream, (first, pages))| {
            share += stream.writes;
            let below = (share * f64::from(u32::MAX)).round() as u32;
            let zipf = match stream.order {
                Order::Zipf(exponent) => Zipf::new(f64::from(pages), exponent).ok(),
                _ => None,
            };
            Lane { first, pages, below, next: 0, order: stream.order, zipf }
        });
        Self { lanes: lanes.collect(), random: SmallRng::seed_from_u64(seed) }
    }

    /// The next page, and the number of its stream.
    #[inline]
    pub fn next_write(&mut self) -> (LogicalPage, u16) {
        let stream = match &self.lanes[..] {
            [_] => 0,
            lanes => {
                let draw = self.random.next_u32();
                lanes.iter().position(|lane| draw < lane.below).unwrap_or(lanes.len() - 1)
            }
        };
        let Self { lanes, random } = self;
        (LogicalPage(lanes[stream].next_page(random)), stream as u16)
    }
}

impl Lane {
    #[inline]
    fn next_page(&mut self, random: &mut SmallRng) -> u32 {
        let at = match self.order {
            Order::Uniform => ((u64::from(random.next_u32()) * u64::from(self.pages)) >> 32) as u32,
            Order::Ring => {
                let at = self.next;
                self.next = if at + 1 == self.pages { 0 } else { at + 1 };
                at
            }
            Order::Zipf(_) => self.scattered(random),
        };
        self.first + at
    }

    /// Ranks are spread over the part by a multiplication modulo its size. That is a permutation if the two have no common factor;
    /// otherwise a few ranks share a page, which changes the distribution little.
    fn scattered(&self, random: &mut SmallRng) -> u32 {
        let rank = self.zipf.map_or(1.0, |zipf| zipf.sample(random)) as u64 - 1;
        const PRIME: u64 = 2_654_435_761;
        (rank * PRIME % u64::from(self.pages)) as u32
    }
}

/// Fills the drive once in order, one stream after the other.
pub fn fill<M: Medium>(ftl: &mut Ftl, pattern: &Pattern, medium: &mut M) {
    fill_in_steps(ftl, pattern, medium, |_| true);
}

/// As [`fill`]; `progress` receives the pages filled after each step and ends the fill by returning false, which is also returned.
fn fill_in_steps<M: Medium>(
    ftl: &mut Ftl,
    pattern: &Pattern,
    medium: &mut M,
    mut progress: impl FnMut(u64) -> bool,
) -> bool {
    let parts = pattern.parts(ftl.layout().shape().logical_pages);
    let mut done = 0;
    for (stream, (first, pages)) in parts.into_iter().enumerate() {
        for at in (0..pages).step_by(STEP_PAGES as usize) {
            let count = (pages - at).min(STEP_PAGES as u32);
            ftl.write(LogicalPage(first + at), count, Placement::handle(stream as u16), medium);
            done += u64::from(count);
            if !progress(done) {
                return false;
            }
        }
    }
    true
}

/// Preconditions a drive without simulating time: fills it in order, then writes `capacities` times its capacity at random. The counters
/// start at zero afterwards. `progress` is called with the pages written and the total; it ends the run by returning false, which is
/// also returned.
pub fn precondition(
    drive: &mut Drive,
    capacities: f64,
    seed: u64,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> bool {
    let pattern = Pattern::one(Order::Uniform);
    let ftl = drive.ftl_mut();
    let logical_pages = ftl.layout().shape().logical_pages;
    let random = (capacities * f64::from(logical_pages)).round() as u64;
    let total = u64::from(logical_pages) + random;
    if !fill_in_steps(ftl, &pattern, &mut Untimed, |done| progress(done, total)) {
        return false;
    }
    let mut writer = Writer::new(&pattern, logical_pages, seed);
    let mut left = random;
    while left > 0 {
        let step = left.min(STEP_PAGES);
        self::drive(ftl, &mut writer, step, &mut Untimed);
        left -= step;
        if !progress(total - left, total) {
            return false;
        }
    }
    drive.reset_stats();
    true
}

/// Writes `pages` pages of a pattern.
pub fn drive<M: Medium>(ftl: &mut Ftl, writer: &mut Writer, pages: u64, medium: &mut M) {
    for _ in 0..pages {
        let (page, stream) = writer.next_write();
        ftl.write(page, 1, Placement::handle(stream), medium);
    }
}

/// The part of the measurement that the counts cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// The whole measurement.
    All,
    /// The pages written until the run was ended.
    Part,
    /// None of it: the run ended before counting began, and the counts cover the warm-up only.
    Nothing,
}

impl Counted {
    /// The coverage of a run that ended after `written` pages beyond the initial fill.
    fn at_end(written: u64, warm_up: u64) -> Self {
        if written > warm_up { Self::Part } else { Self::Nothing }
    }
}

/// Fills, warms up and measures. Afterwards the drive's counts cover the measured part. `progress` is called with the pages written and
/// the total, both including the fill; it ends the run by returning false.
pub fn run<M: Medium>(
    ftl: &mut Ftl,
    pattern: &Pattern,
    length: Length,
    seed: u64,
    medium: &mut M,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Counted {
    let logical_pages = ftl.layout().shape().logical_pages;
    let times = |capacities: f64| (capacities * f64::from(logical_pages)).round() as u64;
    let (warm_up, total) = (times(length.warm_up), times(length.warm_up) + times(length.measured));
    let mut writer = Writer::new(pattern, logical_pages, seed);
    let (filling, all) = (u64::from(logical_pages), u64::from(logical_pages) + total);
    if !fill_in_steps(ftl, pattern, medium, |done| progress(done, all)) {
        return Counted::Nothing;
    }
    let mut done = 0;
    while done < total {
        if done == warm_up {
            ftl.reset_stats();
        }
        let until = if done < warm_up { warm_up } else { total };
        let step = (until - done).min(STEP_PAGES);
        drive(ftl, &mut writer, step, medium);
        done += step;
        if !progress(filling + done, all) {
            return Counted::at_end(done, warm_up);
        }
    }
    Counted::All
}

/// Pages between two calls of `progress`: some tens of milliseconds.
const STEP_PAGES: u64 = 1 << 18;

/// The load on a drive in virtual time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Share of the requests that read a page, drawn uniformly.
    pub reads: f64,
    /// The arrivals.
    pub arrival: Arrival,
}

/// Arrivals of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrival {
    /// Submits the next request as soon as fewer than this many are in flight.
    QueueDepth(u32),
    /// Submits one request per this many nanoseconds, regardless of completions.
    EveryNs(u64),
}

/// The kind of a completed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// A read of a page.
    Read,
    /// A write of a page.
    Write,
}

/// Virtual time of the measured part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// From the first arrival of a request in the measured part to the last.
    pub arrivals_ns: u64,
    /// From the last completion before it to its own last completion: longer if the drive falls behind.
    pub completions_ns: u64,
}

/// As [`run`], in virtual time. `record` is called with the latency of each request of the measured part.
pub fn run_timed(
    drive: &mut Drive,
    pattern: &Pattern,
    (length, load): (Length, Load),
    seed: u64,
    mut record: impl FnMut(Served, u64),
    mut progress: impl FnMut(u64, u64) -> bool,
) -> (Counted, Span) {
    let logical_pages = drive.ftl().layout().shape().logical_pages;
    let times = |capacities: f64| (capacities * f64::from(logical_pages)).round() as u64;
    let (warm_up, total) = (times(length.warm_up), times(length.warm_up) + times(length.measured));
    let mut writer = Writer::new(pattern, logical_pages, seed);
    let (filling, all) = (u64::from(logical_pages), u64::from(logical_pages) + total);
    let Some(filled_ns) = fill_timed(drive, pattern, |done| progress(done, all)) else {
        return (Counted::Nothing, Span { arrivals_ns: 0, completions_ns: 0 });
    };
    let mut requests = Requests::new(load, seed, filled_ns);
    let (mut written, mut measured_from_ns, mut last_ns) = (0, filled_ns, filled_ns);
    let (mut all_ended_ns, mut done_from_ns) = (filled_ns, filled_ns);
    let (mut made, mut counted) = (0_u64, Counted::All);
    if warm_up == 0 {
        drive.reset_stats();
    }
    while written < total {
        let now_ns = requests.next_ns();
        let (served, end_ns) = if requests.is_read() {
            (Served::Read, drive.read(now_ns, requests.any_page(logical_pages), 1))
        } else {
            let (page, stream) = writer.next_write();
            (Served::Write, drive.write(now_ns, page, 1, Placement::handle(stream)))
        };
        requests.ends(end_ns);
        all_ended_ns = all_ended_ns.max(end_ns);
        if written >= warm_up {
            record(served, end_ns - now_ns);
        }
        last_ns = now_ns;
        if served == Served::Write {
            written += 1;
            if written == warm_up {
                drive.reset_stats();
                (measured_from_ns, done_from_ns) = (now_ns, all_ended_ns);
            }
        }
        made += 1;
        // By requests and not by writes, which are rare if nearly all requests are reads.
        if (made.is_multiple_of(STEP_PAGES) || written == total) && !progress(filling + written, all) {
            counted = if written == total { Counted::All } else { Counted::at_end(written, warm_up) };
            break;
        }
    }
    (counted, Span { arrivals_ns: last_ns - measured_from_ns, completions_ns: all_ended_ns - done_from_ns })
}

/// Fills the drive in order and returns when that is complete; `None` if `progress` returned false.
fn fill_timed(drive: &mut Drive, pattern: &Pattern, mut progress: impl FnMut(u64) -> bool) -> Option<u64> {
    const AT_ONCE: u32 = 32;
    let (mut now_ns, mut done) = (0, 0_u64);
    let parts = pattern.parts(drive.ftl().layout().shape().logical_pages);
    for (stream, (first, pages)) in parts.into_iter().enumerate() {
        for at in (0..pages).step_by(AT_ONCE as usize) {
            let count = AT_ONCE.min(pages - at);
            now_ns = drive.write(now_ns, LogicalPage(first + at), count, Placement::handle(stream as u16));
            let step = done / STEP_PAGES;
            done += u64::from(count);
            if done / STEP_PAGES > step && !progress(done) {
                return None;
            }
        }
    }
    Some(now_ns)
}

struct Requests {
    load: Load,
    in_flight: BinaryHeap<Reverse<u64>>,
    now_ns: u64,
    random: SmallRng,
}

impl Requests {
    fn new(load: Load, seed: u64, from_ns: u64) -> Self {
        // A sequence that differs from the writer's.
        let random = SmallRng::seed_from_u64(seed ^ 0x5eed);
        Self { load, in_flight: BinaryHeap::new(), now_ns: from_ns, random }
    }

    fn next_ns(&mut self) -> u64 {
        match self.load.arrival {
            Arrival::EveryNs(gap_ns) => self.now_ns += gap_ns,
            Arrival::QueueDepth(depth) => {
                if self.in_flight.len() >= depth as usize
                    && let Some(Reverse(end_ns)) = self.in_flight.pop()
                {
                    self.now_ns = self.now_ns.max(end_ns);
                }
            }
        }
        self.now_ns
    }

    fn ends(&mut self, end_ns: u64) {
        if matches!(self.load.arrival, Arrival::QueueDepth(_)) {
            self.in_flight.push(Reverse(end_ns));
        }
    }

    fn is_read(&mut self) -> bool {
        self.load.reads > 0.0 && f64::from(self.random.next_u32()) < self.load.reads * f64::from(u32::MAX)
    }

    fn any_page(&mut self, pages: u32) -> LogicalPage {
        LogicalPage(((u64::from(self.random.next_u32()) * u64::from(pages)) >> 32) as u32)
    }
}
