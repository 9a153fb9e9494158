//! A workload like that of a photo CDN's cache: albums of photos are created, are requested most while they are new, and are then
//! forgotten.
//!
//! The model is shot noise (Traverso et al., "Temporal locality in today's content caching: why it matters and how to model it", CCR
//! 2013). Albums are created by a Poisson process. Each has a *volume*, its expected number of visits, drawn from Zipf's law (with
//! Mandelbrot's shift), and its visits are a Poisson process whose intensity falls with age by a Pareto law: the measured decay of
//! photos (Huang et al., "An analysis of Facebook photo caching", SOSP 2013). A visit requests all photos of the album. Sizes are a
//! mixture of log-normals, one per variant that photos are resized to.
//!
//! The run begins in the steady state: it includes the older albums that are requested during the run. The same configuration and seed
//! give the same accesses. Memory is 48 bytes per album with further requests in the run.
//!
//! # Calibration
//! [`CdnConfig::default`] was fitted once, to the hit ratios that Huang et al. give for the Edge and the Origin of
//! Facebook's photo cache: at the size where FIFO hits as often as theirs, the rest is compared. In percent, the first
//! quarter of the requests not counted:
//!
//! | cache | FIFO | LRU | S4LRU | Clairvoyant | FIFO, 2x | S4LRU, 2x |
//! |---|---|---|---|---|---|---|
//! | Origin, 1x = [`ORIGIN_CACHE_BYTES`] | 33.0 (33) | 38.4 | 49.8 | 57.6 | 41.2 (42.5) | 56.6 |
//! | Edge, 1x = [`EDGE_CACHE_BYTES`] | 59.2 (59.2) | 63.6 | 70.3 (67.7) | 75.5 | 65.2 (65) | 74.3 (72.0) |
//!
//! In brackets: the measured values. FIFO hits 68.4 % (68.5) in an Edge cache of three times the size. The ratios hold within a point for
//! other numbers of requests too, see [`CdnConfig::lasting`]. The fit determines the skew of popularity and its decay: photos are
//! requested for much longer than they stay in a cache.

use crate::trace::{Access, AccessKind, Accesses, ReadReport, TraceError};

mod calendar;
mod object;
mod sizes;

use calendar::Calendar;
pub use object::Ageing;
use object::{Album, AlbumGenerator};
use sizes::Sizes;
pub use sizes::Variant;

use super::random::{Stream, stream};

/// Accesses in a batch.
const BATCH_ACCESSES: usize = 4096;

/// Parameters of a photo CDN's workload. [`CdnConfig::default`] is calibrated, see [`Ageing::PHOTOS`].
#[derive(Debug, Clone, PartialEq)]
pub struct CdnConfig {
    /// Number of accesses.
    pub requests: u64,
    /// Photos created during the run. Most requested photos are older.
    pub objects: u64,
    /// Duration of the run in seconds. Ages scale with it: two spans give the same accesses at other times (the last ones can shift
    /// slightly).
    pub span_seconds: u64,
    /// Zipf's exponent: the volume of an album is proportional to `(u + zipf_shift)^-zipf_exponent`, where `u` is the share of albums that
    /// are more popular.
    pub zipf_exponent: f64,
    /// Mandelbrot's shift, as a share of the albums: flattens the head, so that no single album dominates.
    pub zipf_shift: f64,
    /// Decay of requests with age.
    pub ageing: Ageing,
    /// Mean number of photos in an album, which are created together and requested one after the other. At least 1; the number is
    /// geometric.
    pub album_objects: f64,
    /// Distribution of object sizes.
    pub variants: Vec<Variant>,
    /// Daily variation of the interval between visits, as a share of its mean: 0 is none, 1 the maximum. At 0.5 the rate varies from two
    /// thirds of its mean to twice it. Changes times only, not their order.
    pub daily_swing: f64,
}

impl Default for CdnConfig {
    fn default() -> Self {
        Self {
            requests: 10_000_000,
            objects: 3_000_000,
            span_seconds: 30 * DAY_SECONDS,
            zipf_exponent: 1.18,
            zipf_shift: 1e-6,
            ageing: Ageing::PHOTOS,
            album_objects: 1.5,
            variants: Variant::PHOTOS.to_vec(),
            daily_swing: 0.5,
        }
    }
}

impl CdnConfig {
    /// This workload with another length: `requests` requests, with the same request rate and decay of photos.
    #[must_use]
    pub fn lasting(self, requests: u64) -> Self {
        let times = requests as f64 / self.requests as f64;
        // Ages are shares of the span.
        let Ageing { scale, exponent, end } = self.ageing;
        Self {
            requests,
            objects: (self.objects as f64 * times).round() as u64,
            span_seconds: (self.span_seconds as f64 * times).round() as u64,
            ageing: Ageing { scale: scale / times, exponent, end: end / times },
            ..self
        }
    }
}

/// Size of an Origin cache for [`CdnConfig::default`]: FIFO hits 33 % of the requests.
pub const ORIGIN_CACHE_BYTES: u64 = 121_000_000;

/// Size of an Edge cache for [`CdnConfig::default`]: FIFO hits 59 % of the requests.
pub const EDGE_CACHE_BYTES: u64 = 1_350_000_000;

/// Size of all objects requested in [`CdnConfig::default`] together (seed 1; others differ by a few percent).
pub const FOOTPRINT_BYTES: u64 = 46_000_000_000;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// The accesses, in order of time.
pub struct Cdn {
    calendar: Calendar,
    generator: AlbumGenerator,
    sizes: Sizes,
    random: Stream,
    /// The album being requested; `place` is the number of its next photo.
    album: Album,
    place: u32,
    span_ns: f64,
    swing: f64,
    days: f64,
    left: u64,
    report: ReadReport,
}

impl Cdn {
    /// The workload that `config` describes.
    #[must_use]
    pub fn new(config: &CdnConfig, seed: u64) -> Self {
        Self::cancellable(config, seed, &mut || true).expect("the run is never cancelled")
    }

    /// Like [`new`](Self::new); `None` if `keeps_running` returns false. It is called from time to time, because creating the older albums
    /// can take long.
    #[must_use]
    pub fn cancellable(
        config: &CdnConfig,
        seed: u64,
        keeps_running: &mut dyn FnMut() -> bool,
    ) -> Option<Self> {
        let mut random = stream(seed, 0);
        let mut generator = AlbumGenerator::new(config, &mut random);
        let mut calendar = Calendar::new();
        if !generator.before(&mut calendar, &mut random, keeps_running) {
            return None;
        }
        calendar.begin(&mut generator, &mut random);
        Some(Self {
            calendar,
            generator,
            sizes: Sizes::new(&config.variants),
            random,
            album: Album::default(),
            place: 0,
            span_ns: config.span_seconds as f64 * 1e9,
            swing: config.daily_swing.clamp(0.0, 1.0),
            days: config.span_seconds as f64 / DAY_SECONDS as f64,
            left: config.requests,
            report: ReadReport { format: "cdn", has_time: true, ..ReadReport::default() },
        })
    }

    #[inline]
    fn next(&mut self) -> Access {
        if self.place == self.album.objects {
            self.album = self.calendar.next(&mut self.generator, &mut self.random);
            self.place = 0;
        }
        let key = self.album.first_object + u64::from(self.place);
        self.place += 1;
        Access {
            time_ns: self.clock(self.album.at),
            key,
            size_bytes: self.sizes.of(key),
            ttl_seconds: None,
            tenant: None,
            kind: AccessKind::Get,
        }
    }

    /// The time on the clock: the rate varies over each day and is lowest at the start of a day.
    #[inline]
    fn clock(&self, at: f64) -> u64 {
        let turn = std::f64::consts::TAU * self.days;
        ((at + self.swing * (at * turn).sin() / turn) * self.span_ns) as u64
    }
}

impl Accesses for Cdn {
    fn next_batch(&mut self, batch: &mut Vec<Access>) -> Result<bool, TraceError> {
        batch.clear();
        let count = self.left.min(BATCH_ACCESSES as u64);
        for _ in 0..count {
            let access = self.next();
            batch.push(access);
        }
        self.left -= count;
        self.report.rows += count;
        self.report.accesses += count;
        Ok(count > 0)
    }

    fn report(&self) -> &ReadReport {
        &self.report
    }
}
