//! The life of an album: when it is born, how often it is visited, and when next.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Poisson};

use super::CdnConfig;
use super::calendar::Calendar;
use crate::generate::random::Stream;

/// How visits fall with an album's age `a`: the share that is still to come is `(1 + a / scale)^-exponent`, less what
/// would come after the end, when nobody asks any more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ageing {
    /// The age at which the fall begins, as a share of the span.
    pub scale: f64,
    /// How steep it is.
    pub exponent: f64,
    /// The age at which albums are forgotten, as a share of the span.
    pub end: f64,
}

impl Ageing {
    /// As calibrated.
    pub const PHOTOS: Self = Self { scale: 0.03, exponent: 0.6, end: 1.0 };

    /// What would come after the end.
    fn rest(&self) -> f64 {
        (1.0 + self.end / self.scale).powf(-self.exponent)
    }

    /// The share of the visits that is still to come at an age.
    fn left(&self, age: f64) -> f64 {
        let rest = self.rest();
        (((1.0 + age / self.scale).powf(-self.exponent) - rest) / (1.0 - rest)).max(0.0)
    }
}

/// An album that will be asked for again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Life {
    /// The next visit, as a share of the span.
    pub(super) at: f64,
    born: f64,
    /// The share of all its visits that come after the next one, by the law.
    left: f64,
    /// Visits from the next one on.
    visits: u32,
    /// Its photos.
    pub(super) objects: u32,
    pub(super) first_object: u64,
}

const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;

/// Makes albums.
pub(super) struct Births {
    ageing: Ageing,
    rest: f64,
    steepness: f64,
    /// Albums born in a span, and ranks.
    albums: u64,
    zipf_exponent: f64,
    zipf_shift: f64,
    /// The volume of the most popular rank.
    top_volume: f64,
    mean_objects: f64,
    /// Where the next one's rank lies among all, from 0 to 1.
    place: f64,
    /// When the next one is born.
    next: f64,
    made: u64,
}

impl Births {
    pub(super) fn new(config: &CdnConfig, random: &mut Stream) -> Self {
        let album = config.album_objects.max(1.0);
        let albums = ((config.objects as f64 / album) as u64).max(1);
        let exponent = config.zipf_exponent;
        let shift = config.zipf_shift.max(0.0) * albums as f64;
        let mean_share = harmonic(albums, exponent, shift) / albums as f64;
        let mean_volume = config.requests as f64 / album / albums as f64;
        Self {
            ageing: config.ageing,
            rest: config.ageing.rest(),
            steepness: -1.0 / config.ageing.exponent,
            albums,
            zipf_exponent: exponent,
            zipf_shift: shift,
            top_volume: mean_volume / mean_share,
            mean_objects: album,
            place: random.random(),
            next: 0.0,
            made: 0,
        }
    }

    /// The albums born before the run, as far as they will be asked for in it.
    pub(super) fn before(&mut self, calendar: &mut Calendar, random: &mut Stream) {
        let mut born = -self.ageing.end;
        while born < 0.0 {
            let volume = self.volume();
            let left = self.ageing.left(-born);
            if let Some(life) = self.life(born, left, volume, random) {
                calendar.put(life);
            }
            born += self.gap(random);
        }
        self.next = born;
    }

    /// Albums born before `until`.
    pub(super) fn until(&mut self, until: f64, calendar: &mut Calendar, random: &mut Stream) {
        while self.next < until {
            let volume = self.volume();
            if let Some(life) = self.life(self.next, 1.0, volume, random) {
                calendar.put(life);
            }
            self.next += self.gap(random);
        }
    }

    fn gap(&self, random: &mut Stream) -> f64 {
        -open_unit(random).ln() / self.albums as f64
    }

    /// The volume of the next album. Every rank comes once in as many births as there are ranks, spread evenly by the
    /// golden ratio: by chance alone, the few most popular albums would be twice as many in one run as in another,
    /// and the workload of one seed not that of the next.
    fn volume(&mut self) -> f64 {
        self.place = (self.place + GOLDEN_RATIO).fract();
        let rank = 1.0 + (self.place * self.albums as f64).floor();
        self.top_volume * (rank + self.zipf_shift).powf(-self.zipf_exponent)
    }

    /// An album of which the share `left` of its volume is still to come; `None` if nobody will come.
    fn life(&mut self, born: f64, left: f64, volume: f64, random: &mut Stream) -> Option<Life> {
        let first_object = self.made;
        let objects = geometric(self.mean_objects, random);
        self.made += u64::from(objects);
        let visits = poisson(volume * left, random);
        let life = Life { at: 0.0, born, left, visits, objects, first_object };
        (visits > 0).then(|| self.advance(life, random))
    }

    /// Sets the time of the next visit: the earliest of those that are left. Their places in the law are uniform
    /// in what is left of it, and the largest of `n` uniform numbers is the `n`-th root of one.
    #[inline]
    fn advance(&self, mut life: Life, random: &mut Stream) -> Life {
        life.left *= (open_unit(random).ln() / f64::from(life.visits)).exp();
        let share = life.left * (1.0 - self.rest) + self.rest;
        let age = self.ageing.scale * (share.powf(self.steepness) - 1.0);
        life.at = (life.born + age).max(life.at);
        life
    }

    /// The album after its next visit; `None` if that was the last.
    #[inline]
    pub(super) fn after(&self, mut life: Life, random: &mut Stream) -> Option<Life> {
        life.visits -= 1;
        (life.visits > 0).then(|| self.advance(life, random))
    }
}

/// Above 0 and at most 1.
#[inline]
fn open_unit(random: &mut Stream) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// At least 1.
fn geometric(mean: f64, random: &mut Stream) -> u32 {
    const MOST: f64 = 1000.0;
    if mean <= 1.0 {
        return 1;
    }
    let more = open_unit(random).ln() / (1.0 - 1.0 / mean).ln();
    (1.0 + more.floor()).min(MOST) as u32
}

fn poisson(mean: f64, random: &mut Stream) -> u32 {
    match Poisson::new(mean) {
        Ok(law) => law.sample(random).min(f64::from(u32::MAX)) as u32,
        // Nothing is left.
        Err(_) => 0,
    }
}

/// The sum of `(r + shift)^-exponent` over the ranks: exact for the first, an integral for the rest.
fn harmonic(ranks: u64, exponent: f64, shift: f64) -> f64 {
    const EXACT: u64 = 10_000;
    let exact: f64 = (1..=ranks.min(EXACT)).map(|rank| (rank as f64 + shift).powf(-exponent)).sum();
    if ranks <= EXACT {
        return exact;
    }
    let (from, to) = (EXACT as f64 + 0.5 + shift, ranks as f64 + 0.5 + shift);
    let rest = if (exponent - 1.0).abs() < 1e-9 {
        (to / from).ln()
    } else {
        (to.powf(1.0 - exponent) - from.powf(1.0 - exponent)) / (1.0 - exponent)
    };
    exact + rest
}

impl PartialEq for Life {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Life {}

impl PartialOrd for Life {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By the time of the next visit, the earliest greatest: heaps give their greatest.
impl Ord for Life {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.total_cmp(&self.at).then(other.first_object.cmp(&self.first_object))
    }
}
