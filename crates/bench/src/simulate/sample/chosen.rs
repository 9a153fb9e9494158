//! The choice of a sample's objects, and the trace of their requests.

use policy::simulate::{Access, hash_of};

use super::tally::GROUPS;
use crate::simulate::spool::Spool;
use crate::simulate::{Batch, Batches, Sampled, SimulateError};

/// Hot objects: this share of all,
const HOT_ONE_IN: usize = 1000;
/// but at least this number.
const MIN_HOT: usize = 100;
/// An object is a giant if it has this many times the mean.
const GIANT_FACTOR: u64 = 10;
/// Makes the group of an object independent of whether it is drawn.
const GROUP_SEED: u64 = 0x6B1F_5D0E_93A7_C241;

/// The objects of a sample.
pub(super) struct Sample {
    pub(super) rate: f64,
    /// Weight factor of drawn objects: bytes of all objects that are not hot per byte of a drawn one. It is close to 1/rate
    /// only if sizes are similar.
    pub(super) stands_for: f64,
    /// Mean size of a drawn object at its first request.
    pub(super) drawn_mean_bytes: f64,
    /// Mean size of a drawn object weighted by its bytes: the size of the object to which an average byte belongs.
    pub(super) drawn_typical_bytes: f64,
    /// Bytes per unit of weight, a power of two, so that weighted sizes fit in 32 bits.
    pub(super) unit_bytes: f64,
    /// Group of each object; [`HOT`] is in all groups.
    groups: Vec<u8>,
    /// Number of each object in its group.
    numbers: Vec<u32>,
    /// The weight factor in each group.
    group_stands_for: [f64; GROUPS as usize],
    /// Requests and bytes of all objects of the trace that are not hot.
    pub(super) cold_requests: u64,
    pub(super) cold_bytes: u64,
}

impl Sample {
    pub(super) fn counts(&self, objects: u64) -> Sampled {
        let drawn = self.drawn();
        let hot_objects = (self.groups.len() - drawn) as u64;
        Sampled {
            hot_objects,
            drawn_objects: drawn as u64,
            other_objects: objects.saturating_sub(hot_objects),
        }
    }

    /// Number of objects that are not hot.
    pub(super) fn drawn(&self) -> usize {
        self.groups.iter().filter(|group| **group != HOT).count()
    }

    pub(super) fn is_hot(&self, object: u32) -> bool {
        self.groups[object as usize] == HOT
    }

    /// The object's number in the group, or without a group in the whole sample; `None` if the group does not have the object.
    pub(super) fn number_in(&self, group: Option<u8>, object: u32) -> Option<u32> {
        let Some(group) = group else { return Some(object) };
        let of_object = self.groups[object as usize];
        (of_object == HOT || of_object == group).then(|| self.numbers[object as usize])
    }

    /// Weight factor of objects that are not hot, in the group or in the whole sample.
    pub(super) fn weight_factor(&self, group: Option<u8>) -> f64 {
        group.map_or(self.stands_for, |group| self.group_stands_for[usize::from(group)])
    }
}

/// Group of the objects that are in all groups.
const HOT: u8 = u8::MAX;
/// An object that is not in the sample, or not seen yet.
const OUT: u32 = u32::MAX;
/// An object that is only removed and never requested. It is in no cache and represents no others.
const NEVER_REQUESTED: u32 = OUT - 1;

/// Filters a trace to the objects of the sample, with new numbers.
pub(super) struct Chosen {
    whole: Spool,
    rate: f64,
    seed: u64,
    is_hot: Vec<bool>,
    numbers: Vec<u32>,
    /// Size of each object at its first request, sums over the drawn objects, and the largest size of any request.
    first_weights: Vec<u32>,
    drawn_bytes: u64,
    drawn_squares: f64,
    heaviest: u32,
    /// Bytes and number of the drawn objects of each group, and number of hot objects seen.
    group_bytes: [u64; GROUPS as usize],
    group_objects: [u32; GROUPS as usize],
    hot_objects: u32,
    all_hot_objects: u32,
    sample: Sample,
    batch: Batch,
}

impl Chosen {
    pub(super) fn of(mut whole: Spool, rate: f64, seed: u64, objects: usize) -> Result<Self, SimulateError> {
        let mut batch = Batch::default();
        let mut requests_of = vec![(0_u32, 0_u64); objects];
        let mut first_weights = vec![0; objects];
        let mut heaviest = 0;
        while whole.next(&mut batch)? {
            for access in batch.accesses.iter().filter(|access| !access.is_removal) {
                let (requests, bytes) = &mut requests_of[access.object as usize];
                if *requests == 0 {
                    first_weights[access.object as usize] = access.weight;
                }
                *requests = requests.saturating_add(1);
                *bytes += u64::from(access.weight);
                heaviest = heaviest.max(access.weight);
            }
        }
        whole.rewind();
        let is_hot = certain(&requests_of, &first_weights);
        let cold = || {
            requests_of
                .iter()
                .zip(&is_hot)
                .filter(|(_, is_hot)| !**is_hot)
                .map(|(requests_of, _)| requests_of)
        };
        let sample = Sample {
            rate,
            stands_for: 1.0 / rate,
            drawn_mean_bytes: 0.0,
            drawn_typical_bytes: 0.0,
            unit_bytes: 1.0,
            groups: Vec::new(),
            numbers: Vec::new(),
            group_stands_for: [1.0; GROUPS as usize],
            cold_requests: cold().map(|(requests, _)| u64::from(*requests)).sum(),
            cold_bytes: cold().map(|(_, bytes)| bytes).sum(),
        };
        let number = |(requests, _): &(u32, u64)| if *requests == 0 { NEVER_REQUESTED } else { OUT };
        let numbers = requests_of.iter().map(number).collect();
        let all_hot_objects = is_hot.iter().filter(|is_hot| **is_hot).count() as u32;
        Ok(Self {
            whole,
            rate,
            seed,
            is_hot,
            numbers,
            first_weights,
            drawn_bytes: 0,
            drawn_squares: 0.0,
            heaviest,
            group_bytes: [0; GROUPS as usize],
            group_objects: [0; GROUPS as usize],
            hot_objects: 0,
            all_hot_objects,
            sample,
            batch,
        })
    }

    /// Number of the object in the sample, if it is in it. Numbers are assigned in order of first use.
    fn number(&mut self, object: u32) -> Option<u32> {
        let number = &mut self.numbers[object as usize];
        if *number == NEVER_REQUESTED {
            return None;
        }
        if *number == OUT {
            let is_hot = self.is_hot[object as usize];
            let drawn = hash_of(u64::from(object) ^ self.seed.rotate_left(32));
            if !is_hot && drawn as f64 >= self.rate * u64::MAX as f64 {
                return None;
            }
            *number = self.sample.groups.len() as u32;
            self.add(object, is_hot);
        }
        Some(self.numbers[object as usize])
    }

    /// Adds an object to the sample and to a group.
    fn add(&mut self, object: u32, is_hot: bool) {
        let group =
            (hash_of(u64::from(object) ^ self.seed.rotate_left(32) ^ GROUP_SEED) % u64::from(GROUPS)) as u8;
        let of_group = usize::from(group);
        self.sample.groups.push(if is_hot { HOT } else { group });
        if is_hot {
            self.sample.numbers.push(self.hot_objects);
            self.hot_objects += 1;
            return;
        }
        self.sample.numbers.push(self.all_hot_objects + self.group_objects[of_group]);
        self.group_objects[of_group] += 1;
        let weight = self.first_weights[object as usize];
        self.group_bytes[of_group] += u64::from(weight);
        self.drawn_bytes += u64::from(weight);
        self.drawn_squares += f64::from(weight).powi(2);
    }

    pub(super) fn into_sample(self) -> Sample {
        let cold = self.first_weights.iter().zip(&self.is_hot).filter(|(_, is_hot)| !**is_hot);
        let cold_bytes: u64 = cold.map(|(weight, _)| u64::from(*weight)).sum();
        let mut sample = self.sample;
        if self.drawn_bytes > 0 {
            sample.drawn_mean_bytes = self.drawn_bytes as f64 / sample.drawn() as f64;
            sample.drawn_typical_bytes = self.drawn_squares / self.drawn_bytes as f64;
            sample.stands_for = cold_bytes as f64 / self.drawn_bytes as f64;
        }
        for (factor, bytes) in sample.group_stands_for.iter_mut().zip(self.group_bytes) {
            *factor = if bytes > 0 { cold_bytes as f64 / bytes as f64 } else { 1.0 };
        }
        let largest = sample.group_stands_for.iter().copied().fold(sample.stands_for, f64::max);
        sample.unit_bytes = unit_bytes(f64::from(self.heaviest) * largest);
        sample
    }
}

impl Batches for Chosen {
    fn next(&mut self, batch: &mut Batch) -> Result<bool, SimulateError> {
        batch.clear();
        let mut all = std::mem::take(&mut self.batch);
        while batch.accesses.is_empty() && self.whole.next(&mut all)? {
            for (place, access) in all.accesses.iter().enumerate() {
                let Some(object) = self.number(access.object) else { continue };
                batch.push(Access { object, ..*access }, all.ttl_seconds(place));
            }
        }
        self.batch = all;
        Ok(!batch.accesses.is_empty())
    }
}

/// The smallest unit in which this weight fits in 32 bits.
fn unit_bytes(heaviest: f64) -> f64 {
    (heaviest / f64::from(u32::MAX)).max(1.0).log2().ceil().exp2()
}

/// Selects the objects that are always in the sample: those with the most requests, the largest ones, and those with the most bytes requested.
/// Without them the share of the cache or of the bytes that such an object has would be missing or multiplied.
fn certain(requests_of: &[(u32, u64)], first_weights: &[u32]) -> Vec<bool> {
    let mut is_hot = vec![false; requests_of.len()];
    let count = (requests_of.len() / HOT_ONE_IN).max(MIN_HOT).min(requests_of.len());
    mark_most(&mut is_hot, count, 0, |object| u64::from(requests_of[object].0));
    let giant = |all: u64| GIANT_FACTOR * all / requests_of.len().max(1) as u64;
    let (weight, bytes) = (
        first_weights.iter().map(|weight| u64::from(*weight)).sum(),
        requests_of.iter().map(|requests_of| requests_of.1).sum(),
    );
    mark_most(&mut is_hot, count, giant(weight), |object| u64::from(first_weights[object]));
    mark_most(&mut is_hot, count, giant(bytes), |object| requests_of[object].1);
    is_hot
}

/// Marks up to `count` objects with the largest values above `least`.
fn mark_most(is_marked: &mut [bool], count: usize, least: u64, of: impl Fn(usize) -> u64) {
    let mut order: Vec<u32> =
        (0..is_marked.len() as u32).filter(|object| of(*object as usize) > least).collect();
    if count < order.len() {
        order.select_nth_unstable_by_key(count, |object| std::cmp::Reverse((of(*object as usize), *object)));
    }
    order.iter().take(count).for_each(|object| is_marked[*object as usize] = true);
}
