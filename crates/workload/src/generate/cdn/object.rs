//! Albums: creation time, number of visits, and time of the next visit.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Poisson};

use super::CdnConfig;
use super::calendar::Calendar;
use crate::generate::random::Stream;

/// The decay of visits with an album's age `a`: the share of later visits is `(1 + a / scale)^-exponent`, minus the part after the maximum
/// age, beyond which there are no visits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ageing {
    /// Age at which the decay sets in, as a share of the span.
    pub scale: f64,
    /// Exponent of the decay.
    pub exponent: f64,
    /// Age after which albums are never visited, as a share of the span.
    pub end: f64,
}

impl Ageing {
    /// The calibrated decay of photos.
    pub const PHOTOS: Self = Self { scale: 16.0, exponent: 0.5, end: 48.0 };

    /// The share of all visits after an age, without a maximum age.
    fn after(&self, age: f64) -> f64 {
        (1.0 + age / self.scale).powf(-self.exponent)
    }
}

/// An album with further visits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Album {
    /// Time of the next visit, as a share of the span.
    pub(super) at: f64,
    born: f64,
    /// The share of the visits within the horizon that follow the next one.
    left: f64,
    /// The share of the decay law that lies beyond the horizon.
    rest: f64,
    /// Remaining visits within the horizon, including the next one.
    visits: u32,
    /// Number of its photos.
    pub(super) objects: u32,
    pub(super) first_object: u64,
}

const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;

/// Horizon, in spans: visits later than this are not simulated, because the run ends before, except by a rare chance. Albums visited only
/// later cost neither time nor memory.
const HORIZON: f64 = 1.25;
/// Extension of the horizon for few albums: divided by the square root of the albums per span. A run with few albums lasts longer if by
/// chance none of them is popular.
const FEW_ALBUMS_HORIZON: f64 = 100.0;
/// Width of an age slice, as a share of [`Ageing::scale`] and of the age.
const SLICE: f64 = 0.05;
/// Albums created between two cancellation checks: some milliseconds.
const CANCEL_CHECK_ALBUMS: u64 = 1 << 16;

/// Creates albums.
pub(super) struct AlbumGenerator {
    ageing: Ageing,
    /// The share of the decay law before the maximum age.
    whole: f64,
    steepness: f64,
    /// Albums created per span; also the number of ranks.
    albums: u64,
    zipf_exponent: f64,
    zipf_shift: f64,
    /// The volume of an album at rank position 0 if the shift were 1.
    volume: f64,
    mean_objects: f64,
    /// Horizon, in spans.
    horizon: f64,
    /// Rank position of the last album, from 0 to 1.
    place: f64,
    /// Creation time of the next album.
    next: f64,
    made: u64,
}

impl AlbumGenerator {
    pub(super) fn new(config: &CdnConfig, random: &mut Stream) -> Self {
        let album = config.album_objects.max(1.0);
        let albums = ((config.objects as f64 / album) as u64).max(1);
        let zipf_exponent = config.zipf_exponent;
        // No album exists below the first rank, although the law assigns visits to it.
        let first_rank = 0.5 / (albums as f64 * (config.ageing.end + 1.0));
        let zipf_shift = config.zipf_shift.max(first_rank);
        let mean_volume = config.requests as f64 / album / albums as f64;
        Self {
            ageing: config.ageing,
            whole: 1.0 - config.ageing.after(config.ageing.end),
            steepness: -1.0 / config.ageing.exponent,
            albums,
            zipf_exponent,
            zipf_shift,
            volume: mean_volume / power_sum(zipf_exponent, zipf_shift, 1.0 + zipf_shift),
            mean_objects: album,
            horizon: HORIZON.max(1.0 + FEW_ALBUMS_HORIZON / (albums as f64).sqrt()),
            place: random.random(),
            next: 0.0,
            made: 0,
        }
    }

    /// Creates the albums born before the run that are visited during it. Most are never visited, so they are not created one by one: for
    /// each slice of ages, the expected maximum number of visited albums is drawn, and some of them are dropped. Returns false if the
    /// caller stopped the creation.
    pub(super) fn before(
        &mut self,
        calendar: &mut Calendar,
        random: &mut Stream,
        keeps_running: &mut dyn FnMut() -> bool,
    ) -> bool {
        let mut oldest = self.ageing.end;
        while oldest > 0.0 {
            let width = (SLICE * (self.ageing.scale + oldest) / (1.0 + SLICE)).min(oldest);
            if !self.slice(oldest - width, width, calendar, random, keeps_running) {
                return false;
            }
            oldest -= width;
        }
        self.next = self.gap(random);
        true
    }

    /// Albums whose ages lie within `width` above `youngest`.
    fn slice(
        &mut self,
        youngest: f64,
        width: f64,
        calendar: &mut Calendar,
        random: &mut Stream,
        keeps_running: &mut dyn FnMut() -> bool,
    ) -> bool {
        let most = self.share_within_horizon(youngest);
        let drawn = RankSampler::new(self.zipf_exponent, self.zipf_shift, self.volume * most);
        let expected = self.albums as f64 * width * drawn.share();
        let count = (expected + random.random::<f64>()) as u64;
        for number in 0..count {
            if number % CANCEL_CHECK_ALBUMS == 0 && !keeps_running() {
                return false;
            }
            self.place = (self.place + GOLDEN_RATIO).fract();
            let (place, chance) = drawn.at(self.place);
            let age = youngest + width * random.random::<f64>();
            let mean = self.volume_at(place) * self.share_within_horizon(age);
            // Rejection sampling: accepts with the exact chance of at least one visit, relative to the chance of the draw.
            if random.random::<f64>() * chance < 1.0 - (-mean).exp() {
                let visits = at_least_one(mean, random);
                calendar.insert(self.album(-age, age, visits, random));
            }
        }
        true
    }

    /// Creates the albums born before `until`.
    pub(super) fn until(&mut self, until: f64, calendar: &mut Calendar, random: &mut Stream) {
        while self.next < until {
            self.place = (self.place + GOLDEN_RATIO).fract();
            let visits = poisson(self.volume_at(self.place) * self.share_within_horizon(0.0), random);
            if visits > 0 {
                calendar.insert(self.album(self.next, 0.0, visits, random));
            }
            self.next += self.gap(random);
        }
    }

    fn gap(&self, random: &mut Stream) -> f64 {
        -open_unit(random).ln() / self.albums as f64
    }

    /// The volume of the album at a rank position from 0 to 1. Positions follow the golden ratio and so are spread evenly: with random
    /// positions, the number of very popular albums could double from one seed to the next.
    fn volume_at(&self, place: f64) -> f64 {
        self.volume * (place + self.zipf_shift).powf(-self.zipf_exponent)
    }

    /// The share of an album's volume that falls within the horizon at this age.
    fn share_within_horizon(&self, age: f64) -> f64 {
        let until = (age + self.horizon).min(self.ageing.end);
        ((self.ageing.after(age) - self.ageing.after(until)) / self.whole).max(0.0)
    }

    /// An album of the given age with `visits` visits within the horizon.
    fn album(&mut self, born: f64, age: f64, visits: u32, random: &mut Stream) -> Album {
        let first_object = self.made;
        let objects = geometric(self.mean_objects, random);
        self.made += u64::from(objects);
        let rest = self.ageing.after((age + self.horizon).min(self.ageing.end));
        let left = (self.ageing.after(age) - rest) / (1.0 - rest);
        self.advance(Album { at: 0.0, born, left, rest, visits, objects, first_object }, random)
    }

    /// Sets the time of the next visit, the earliest remaining one. The remaining visits are uniform in the rest of the law, and the largest
    /// of `n` uniform numbers is distributed as the `n`-th root of one.
    #[inline]
    fn advance(&self, mut album: Album, random: &mut Stream) -> Album {
        album.left *= (open_unit(random).ln() / f64::from(album.visits)).exp();
        let share = album.left * (1.0 - album.rest) + album.rest;
        let age = self.ageing.scale * (share.powf(self.steepness) - 1.0);
        album.at = (album.born + age).max(album.at);
        album
    }

    /// The album after its next visit; `None` if that was the last.
    #[inline]
    pub(super) fn after(&self, mut album: Album, random: &mut Stream) -> Option<Album> {
        album.visits -= 1;
        (album.visits > 0).then(|| self.advance(album, random))
    }
}

/// A sampler of rank positions: draws every album with at least one expected visit, and others in proportion to their volume.
struct RankSampler {
    exponent: f64,
    shift: f64,
    /// Expected visits at position 0 if the shift were 1.
    scale: f64,
    /// Albums up to this position are always drawn.
    certain: f64,
    /// Expected draws beyond that position, as a share of all albums.
    beyond: f64,
}

impl RankSampler {
    /// Creates a sampler of albums that have `scale * (position + shift)^-exponent` expected visits.
    fn new(exponent: f64, shift: f64, scale: f64) -> Self {
        let mut drawn = Self { exponent, shift, scale, certain: 1.0, beyond: 0.0 };
        if exponent > 0.0 {
            drawn.certain = (scale.powf(1.0 / exponent) - shift).clamp(0.0, 1.0);
        } else if scale < 1.0 {
            drawn.certain = 0.0;
        }
        drawn.beyond = scale * power_sum(exponent, drawn.certain + shift, 1.0 + shift);
        drawn
    }

    /// Expected draws, as a share of all albums.
    fn share(&self) -> f64 {
        self.certain + self.beyond
    }

    /// The position of a drawn album and the chance of its draw, by its place among the drawn ones from 0 to 1.
    fn at(&self, drawn: f64) -> (f64, f64) {
        let sum = drawn * self.share();
        if sum < self.certain {
            return (sum, 1.0);
        }
        let place = self.position_of(sum - self.certain).clamp(self.certain, ONE_BELOW);
        (place, (self.scale * (place + self.shift).powf(-self.exponent)).min(1.0))
    }

    /// The position up to which the integral of the draw chances beyond `certain` is `sum`.
    fn position_of(&self, sum: f64) -> f64 {
        let from = self.certain + self.shift;
        let power = 1.0 - self.exponent;
        let to = if power.abs() < 1e-9 {
            from * (sum / self.scale).exp()
        } else {
            (sum / self.scale * power + from.powf(power)).powf(1.0 / power)
        };
        to - self.shift
    }
}

/// The largest position: the last rank.
const ONE_BELOW: f64 = 1.0 - f64::EPSILON;

/// A random number above 0 and at most 1.
#[inline]
fn open_unit(random: &mut Stream) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A geometric random number, at least 1.
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
        Err(_) if mean > 1.0 => u32::MAX,
        // A mean of 0.
        Err(_) => 0,
    }
}

/// A Poisson random number, conditioned on being above 0.
fn at_least_one(mean: f64, random: &mut Stream) -> u32 {
    if mean > 1.0 {
        return std::iter::repeat_with(|| poisson(mean, random)).find(|count| *count > 0).unwrap_or(1);
    }
    // The time of the first visit, given that there is one; the others fall into the remaining time.
    let first = -(1.0 - open_unit(random) * (1.0 - (-mean).exp())).ln();
    1 + poisson(mean - first, random)
}

/// The integral of `x^-exponent`.
fn power_sum(exponent: f64, from: f64, to: f64) -> f64 {
    let power = 1.0 - exponent;
    if power.abs() < 1e-9 { (to / from).ln() } else { (to.powf(power) - from.powf(power)) / power }
}

impl PartialEq for Album {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Album {}

impl PartialOrd for Album {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Reversed by the time of the next visit: heaps pop their greatest element.
impl Ord for Album {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.total_cmp(&self.at).then(other.first_object.cmp(&self.first_object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::random::stream;

    const AGEING: Ageing = Ageing { scale: 0.7, exponent: 0.8, end: 9.0 };

    fn generator(config: &CdnConfig) -> AlbumGenerator {
        AlbumGenerator::new(config, &mut stream(1, 0))
    }

    fn config(zipf_exponent: f64) -> CdnConfig {
        CdnConfig {
            requests: 200_000,
            objects: 60_000,
            zipf_exponent,
            zipf_shift: 1e-4,
            ageing: AGEING,
            album_objects: 1.0,
            ..CdnConfig::default()
        }
    }

    /// Expected visited albums and visits of a slice of ages if albums are created one by one.
    fn one_by_one(generator: &AlbumGenerator, youngest: f64, width: f64) -> (f64, f64) {
        let (mut visited, mut visits) = (0.0, 0.0);
        for album in 0..generator.albums {
            let place = (album as f64 + 0.5) / generator.albums as f64;
            for part in [0.125, 0.375, 0.625, 0.875] {
                let mean =
                    generator.volume_at(place) * generator.share_within_horizon(youngest + part * width);
                visited += width / 4.0 * (1.0 - (-mean).exp());
                visits += width / 4.0 * mean;
            }
        }
        (visited, visits)
    }

    #[test]
    fn age_slice_matches_albums_and_visits_of_one_by_one_creation() {
        for exponent in [0.0, 0.5, 1.0, 1.2] {
            let config = config(exponent);
            for (youngest, width) in [(0.0, 0.1), (2.0, 1.0), (8.0, 1.0)] {
                let (mut calendar, mut random) = (Calendar::new(), stream(2, 0));
                let mut generator = generator(&config);
                let (visited, visits) = one_by_one(&generator, youngest, width);
                generator.slice(youngest, width, &mut calendar, &mut random, &mut || true);
                let albums = calendar.into_albums();
                let drawn: f64 = albums.iter().map(|album| f64::from(album.visits)).sum();
                let context =
                    format!("exponent {exponent}, from age {youngest}: {} of {visited}", albums.len());
                assert!((albums.len() as f64 / visited - 1.0).abs() < 5.0 / visited.sqrt(), "{context}");
                assert!(
                    (drawn / visits - 1.0).abs() < 0.05 + 5.0 / visits.sqrt(),
                    "{context}, visits {drawn} of {visits}"
                );
                assert!(
                    albums.iter().all(|album| (0.0..=generator.horizon + 1e-9).contains(&album.at)),
                    "{context}"
                );
            }
        }
    }

    #[test]
    fn albums_have_no_visits_after_the_maximum_age() {
        let generator = generator(&config(1.0));
        assert_eq!(generator.share_within_horizon(AGEING.end), 0.0);
        assert!(generator.share_within_horizon(AGEING.end - 0.1) > 0.0);
        let spans: f64 =
            (0..8).map(|span| generator.share_within_horizon(f64::from(span) * generator.horizon)).sum();
        assert!((spans - 1.0).abs() < 1e-9, "consecutive horizons must cover the whole age range: {spans}");
    }

    #[test]
    fn conditional_poisson_is_at_least_one_with_the_expected_mean() {
        for mean in [0.001, 0.3, 1.0, 1.7, 40.0] {
            let mut random = stream(3, 0);
            let counts: Vec<u32> = (0..20_000).map(|_| at_least_one(mean, &mut random)).collect();
            assert!(counts.iter().all(|count| *count > 0));
            let ours = counts.iter().map(|count| f64::from(*count)).sum::<f64>() / counts.len() as f64;
            let law = mean / (1.0 - (-mean).exp());
            assert!((ours / law - 1.0).abs() < 0.03, "mean {mean}: {ours} for {law}");
        }
    }
}
