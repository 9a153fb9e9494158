//! The life of an album: when it is born, how often it is visited, and when next.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Poisson};

use super::CdnConfig;
use super::calendar::Calendar;
use crate::generate::random::Stream;

/// The decay of visits with an album's age `a`: the share still to come is `(1 + a / scale)^-exponent`, minus the part after the maximum
/// age, beyond which there are no visits.
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
    pub const PHOTOS: Self = Self { scale: 16.0, exponent: 0.5, end: 48.0 };

    /// The share of all visits that would come after an age, if there were no end.
    fn after(&self, age: f64) -> f64 {
        (1.0 + age / self.scale).powf(-self.exponent)
    }
}

/// An album that will be asked for again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Life {
    /// The next visit, as a share of the span.
    pub(super) at: f64,
    born: f64,
    /// The share of the foreseen visits that follow the next one.
    left: f64,
    /// What the law leaves for later than is foreseen.
    rest: f64,
    /// Visits from the next one on, as far as they are foreseen.
    visits: u32,
    /// Its photos.
    pub(super) objects: u32,
    pub(super) first_object: u64,
}

const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;

/// How far visits are foreseen, in spans: the run is over before, unless by a rare chance. Albums that are asked for only
/// later take neither time nor memory.
const FORESIGHT: f64 = 1.25;
/// How much further than a span they are foreseen where albums are few, before it is divided by the square root of a span's
/// albums: such a run lasts longer if by chance none of them is popular.
const FORESIGHT_OF_FEW: f64 = 100.0;
/// How much older an album may be than the youngest of its slice, as a share of [`Ageing::scale`] and of its age.
const SLICE: f64 = 0.05;
/// Albums of the past between two looks at whether they are still wanted: some milliseconds.
const LOOK_ALBUMS: u64 = 1 << 16;

/// Makes albums.
pub(super) struct Births {
    ageing: Ageing,
    /// The share of the law that comes before the end.
    whole: f64,
    steepness: f64,
    /// Albums born in a span, and ranks.
    albums: u64,
    zipf_exponent: f64,
    zipf_shift: f64,
    /// The volume of an album at place 0, were the shift 1.
    volume: f64,
    mean_objects: f64,
    /// How far visits are foreseen, in spans.
    foresight: f64,
    /// Where the last one's rank lies among all, from 0 to 1.
    place: f64,
    /// When the next one is born.
    next: f64,
    made: u64,
}

impl Births {
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
            foresight: FORESIGHT.max(1.0 + FORESIGHT_OF_FEW / (albums as f64).sqrt()),
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
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> bool {
        let mut oldest = self.ageing.end;
        while oldest > 0.0 {
            let width = (SLICE * (self.ageing.scale + oldest) / (1.0 + SLICE)).min(oldest);
            if !self.slice(oldest - width, width, calendar, random, is_wanted) {
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
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> bool {
        let most = self.foreseen(youngest);
        let drawn = Drawn::new(self.zipf_exponent, self.zipf_shift, self.volume * most);
        let expected = self.albums as f64 * width * drawn.share();
        let count = (expected + random.random::<f64>()) as u64;
        for number in 0..count {
            if number % LOOK_ALBUMS == 0 && !is_wanted() {
                return false;
            }
            self.place = (self.place + GOLDEN_RATIO).fract();
            let (place, chance) = drawn.at(self.place);
            let age = youngest + width * random.random::<f64>();
            let mean = self.volume_at(place) * self.foreseen(age);
            // At least one visit: of the chance that it was drawn with, the part that is the law's.
            if random.random::<f64>() * chance < 1.0 - (-mean).exp() {
                let visits = at_least_one(mean, random);
                calendar.put(self.life(-age, age, visits, random));
            }
        }
        true
    }

    /// Albums born before `until`.
    pub(super) fn until(&mut self, until: f64, calendar: &mut Calendar, random: &mut Stream) {
        while self.next < until {
            self.place = (self.place + GOLDEN_RATIO).fract();
            let visits = poisson(self.volume_at(self.place) * self.foreseen(0.0), random);
            if visits > 0 {
                calendar.put(self.life(self.next, 0.0, visits, random));
            }
            self.next += self.gap(random);
        }
    }

    fn gap(&self, random: &mut Stream) -> f64 {
        -open_unit(random).ln() / self.albums as f64
    }

    /// The volume of the album at a place among the ranks, from 0 to 1. Places are spread evenly by the golden ratio: by
    /// chance alone, the few most popular albums would be twice as many in one run as in another, and the workload of one
    /// seed not that of the next.
    fn volume_at(&self, place: f64) -> f64 {
        self.volume * (place + self.zipf_shift).powf(-self.zipf_exponent)
    }

    /// The share of its volume that comes within the foresight of an age.
    fn foreseen(&self, age: f64) -> f64 {
        let until = (age + self.foresight).min(self.ageing.end);
        ((self.ageing.after(age) - self.ageing.after(until)) / self.whole).max(0.0)
    }

    /// An album of the given age with `visits` visits within the horizon.
    fn life(&mut self, born: f64, age: f64, visits: u32, random: &mut Stream) -> Life {
        let first_object = self.made;
        let objects = geometric(self.mean_objects, random);
        self.made += u64::from(objects);
        let rest = self.ageing.after((age + self.foresight).min(self.ageing.end));
        let left = (self.ageing.after(age) - rest) / (1.0 - rest);
        self.advance(Life { at: 0.0, born, left, rest, visits, objects, first_object }, random)
    }

    /// Sets the time of the next visit, the earliest remaining one. The remaining visits are uniform in the rest of the law, and the largest
    /// of `n` uniform numbers is distributed as the `n`-th root of one.
    #[inline]
    fn advance(&self, mut life: Life, random: &mut Stream) -> Life {
        life.left *= (open_unit(random).ln() / f64::from(life.visits)).exp();
        let share = life.left * (1.0 - life.rest) + life.rest;
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

/// Places among the ranks, drawn as often as an album there may be visited: always where it has one visit or more in the
/// mean, and in proportion to its volume beyond.
struct Drawn {
    exponent: f64,
    shift: f64,
    /// The mean number of visits at place 0, were the shift 1.
    scale: f64,
    /// Up to here all are drawn.
    certain: f64,
    /// The expected number of draws from the ranks beyond, as a share of all.
    beyond: f64,
}

impl Drawn {
    /// Of albums with `scale * (place + shift)^-exponent` visits in the mean.
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

    /// Of all albums, the share that is drawn.
    fn share(&self) -> f64 {
        self.certain + self.beyond
    }

    /// The place of one of the drawn, by its place among them from 0 to 1, and the chance with which it was drawn.
    fn at(&self, drawn: f64) -> (f64, f64) {
        let sum = drawn * self.share();
        if sum < self.certain {
            return (sum, 1.0);
        }
        let place = self.place_of(sum - self.certain).clamp(self.certain, ONE_BELOW);
        (place, (self.scale * (place + self.shift).powf(-self.exponent)).min(1.0))
    }

    /// Up to which place the integral of the chances beyond certainty is `sum`.
    fn place_of(&self, sum: f64) -> f64 {
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

/// The greatest place: the last rank.
const ONE_BELOW: f64 = 1.0 - f64::EPSILON;

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
        Err(_) if mean > 1.0 => u32::MAX,
        // Nothing is left.
        Err(_) => 0,
    }
}

/// A Poisson number that is not 0.
fn at_least_one(mean: f64, random: &mut Stream) -> u32 {
    if mean > 1.0 {
        return std::iter::repeat_with(|| poisson(mean, random)).find(|count| *count > 0).unwrap_or(1);
    }
    // The first of the visits, given that there is one, leaves the rest of the time to the others.
    let first = -(1.0 - open_unit(random) * (1.0 - (-mean).exp())).ln();
    1 + poisson(mean - first, random)
}

/// The integral of `x^-exponent`.
fn power_sum(exponent: f64, from: f64, to: f64) -> f64 {
    let power = 1.0 - exponent;
    if power.abs() < 1e-9 { (to / from).ln() } else { (to.powf(power) - from.powf(power)) / power }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::random::stream;

    const AGEING: Ageing = Ageing { scale: 0.7, exponent: 0.8, end: 9.0 };

    fn births(config: &CdnConfig) -> Births {
        Births::new(config, &mut stream(1, 0))
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

    /// The averages for a slice of ages if albums are created one by one: visited albums, and visits.
    fn one_by_one(births: &Births, youngest: f64, width: f64) -> (f64, f64) {
        let (mut visited, mut visits) = (0.0, 0.0);
        for album in 0..births.albums {
            let place = (album as f64 + 0.5) / births.albums as f64;
            for part in [0.125, 0.375, 0.625, 0.875] {
                let mean = births.volume_at(place) * births.foreseen(youngest + part * width);
                visited += width / 4.0 * (1.0 - (-mean).exp());
                visits += width / 4.0 * mean;
            }
        }
        (visited, visits)
    }

    #[test]
    fn a_slice_of_ages_has_the_albums_and_the_visits_of_one_by_one() {
        for exponent in [0.0, 0.5, 1.0, 1.2] {
            let config = config(exponent);
            for (youngest, width) in [(0.0, 0.1), (2.0, 1.0), (8.0, 1.0)] {
                let (mut calendar, mut random) = (Calendar::new(), stream(2, 0));
                let mut births = births(&config);
                let (visited, visits) = one_by_one(&births, youngest, width);
                births.slice(youngest, width, &mut calendar, &mut random, &mut || true);
                let lives = calendar.into_lives();
                let drawn: f64 = lives.iter().map(|life| f64::from(life.visits)).sum();
                let told = format!("exponent {exponent}, from age {youngest}: {} of {visited}", lives.len());
                assert!((lives.len() as f64 / visited - 1.0).abs() < 5.0 / visited.sqrt(), "{told}");
                assert!(
                    (drawn / visits - 1.0).abs() < 0.05 + 5.0 / visits.sqrt(),
                    "{told}, visits {drawn} of {visits}"
                );
                assert!(
                    lives.iter().all(|life| (0.0..=births.foresight + 1e-9).contains(&life.at)),
                    "{told}"
                );
            }
        }
    }

    #[test]
    fn albums_are_forgotten_at_the_end() {
        let births = births(&config(1.0));
        assert_eq!(births.foreseen(AGEING.end), 0.0);
        assert!(births.foreseen(AGEING.end - 0.1) > 0.0);
        let spans: f64 = (0..8).map(|span| births.foreseen(f64::from(span) * births.foresight)).sum();
        assert!((spans - 1.0).abs() < 1e-9, "foresights side by side are a life: {spans}");
    }

    #[test]
    fn a_visit_is_never_none_and_their_mean_is_the_laws() {
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
