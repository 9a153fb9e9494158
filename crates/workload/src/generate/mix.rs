//! The frequencies of operations.

use super::error::Problem;
use super::interval_index::IntervalIndex;
use crate::RequestKind;

/// Relative frequencies of the kinds of requests: CacheBench's ratios, which do not have to sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mix {
    /// Lookups.
    pub get: f64,
    /// Stores.
    pub set: f64,
    /// Removals.
    pub delete: f64,
    /// Additions of chained items.
    pub add_chained: f64,
    /// Lookups of keys that no other request uses: certain misses.
    pub lone_get: f64,
    /// Stores of keys that no other request uses: they are never read.
    pub lone_set: f64,
    /// Overwrites in place.
    pub update: f64,
    /// Checks whether a key may be present.
    pub could_exist: f64,
}

impl Mix {
    /// The weight of `kind`.
    #[must_use]
    pub fn weight(&self, kind: RequestKind) -> f64 {
        match kind {
            RequestKind::Get => self.get,
            RequestKind::Set => self.set,
            RequestKind::Delete => self.delete,
            RequestKind::AddChained => self.add_chained,
            RequestKind::LoneGet => self.lone_get,
            RequestKind::LoneSet => self.lone_set,
            RequestKind::Update => self.update,
            RequestKind::CouldExist => self.could_exist,
        }
    }
}

/// A mix, prepared for drawing.
#[derive(Debug, Clone)]
pub(crate) struct Kinds(IntervalIndex);

impl Kinds {
    pub(crate) fn new(mix: &Mix) -> Result<Self, Problem> {
        IntervalIndex::by_weight(&RequestKind::ALL.map(|kind| mix.weight(kind))).map(Self)
    }

    /// The operation at `point` of `0..2^64`.
    #[inline]
    pub(crate) fn at(&self, point: u64) -> RequestKind {
        RequestKind::ALL[self.0.find(point)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = u64::MAX / 10_000;

    #[test]
    fn ratios_are_normalised() {
        let kinds = Kinds::new(&Mix { get: 1.5, set: 8.0, delete: 0.5, ..Mix::default() }).unwrap();
        let count = |kind| (0..10_000u64).filter(|i| kinds.at(i * STEP + STEP / 2) == kind).count();
        assert_eq!([RequestKind::Get, RequestKind::Set, RequestKind::Delete].map(count), [1500, 8000, 500]);
        assert_eq!(count(RequestKind::Update), 0);
    }

    #[test]
    fn mix_without_weights_is_rejected() {
        assert_eq!(Kinds::new(&Mix::default()).unwrap_err(), Problem::NoWeight);
    }
}
