//! What a hit does for the policy of its class, in one word: a hit reads it instead of the policy's rule, which has parts for other cases.

use std::sync::atomic::{AtomicU16, Ordering};

use policy::HitRule;

/// The work for the policy at a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hits {
    /// The limit up to which an item's mark counts hits.
    pub marks_at_most: u8,
    /// Whether hits are reported in another way than by marks.
    pub are_reported: bool,
}

/// The [`Hits`] of a class, set when the class gets its policy.
#[derive(Debug)]
pub(super) struct SharedHits(AtomicU16);

impl Default for SharedHits {
    /// As if hits were reported: the class has no items that could be hit, and its first insert reads the clock.
    fn default() -> Self {
        let hits = Self(AtomicU16::new(0));
        hits.set(&HitRule::Every);
        hits
    }
}

impl Hits {
    fn of(rule: &HitRule) -> Self {
        match rule {
            HitRule::Ignore => Self { marks_at_most: 0, are_reported: false },
            HitRule::Mark { at_most, .. } => Self { marks_at_most: *at_most, are_reported: false },
            HitRule::Refresh { .. } | HitRule::Every => Self { marks_at_most: 0, are_reported: true },
        }
    }
}

impl SharedHits {
    #[inline]
    pub(super) fn get(&self) -> Hits {
        let [marks_at_most, are_reported] = self.0.load(Ordering::Relaxed).to_le_bytes();
        Hits { marks_at_most, are_reported: are_reported != 0 }
    }

    pub(super) fn set(&self, rule: &HitRule) {
        let Hits { marks_at_most, are_reported } = Hits::of(rule);
        self.0.store(u16::from_le_bytes([marks_at_most, are_reported.into()]), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_without_marks_is_reported_unless_it_ignores_hits() {
        let of = |rule| {
            let hits = SharedHits::default();
            hits.set(&rule);
            hits.get()
        };
        let reported = Hits { marks_at_most: 0, are_reported: true };
        assert_eq!(of(HitRule::Every), reported);
        assert_eq!(of(HitRule::Refresh { refresh_seconds: 60 }), reported);
        assert_eq!(of(HitRule::Ignore), Hits { marks_at_most: 0, are_reported: false });
        let marks = std::sync::Arc::new(policy::marks::Marks::default());
        let counted = of(HitRule::Mark { marks, at_most: 3 });
        assert_eq!(counted, Hits { marks_at_most: 3, are_reported: false });
    }
}
