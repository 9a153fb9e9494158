//! Caching policies over a priority queue: the priority of an item when it is inserted and when it is read.
//!
//! The queue orders items by priority, and a policy is a few lines. To add one from outside, implement [`CachingPolicy`] and wrap it in
//! [`Caching::Own`]; to add one here, add a line to [`Caching`] and to its table of names.
//!
//! Sources: the article's part III (LRU and segmented LRU on relative priorities; GDSF through a map from absolute ones);
//! Cherkasova: "Improving WWW proxies performance with greedy-dual-size-frequency caching policy", HP Labs 1998 (GDSF);
//! Arlitt, Cherkasova, Dilley, Friedrich, Jin: "Evaluating content management techniques for web proxy caches", 1999
//! (LFU-DA).

use std::fmt;
use std::str::FromStr;

/// The position of an item in the queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Priority {
    /// The share of the queue behind the item: 1 is the head, near 0 the end.
    Relative(f64),
    /// A number that is compared with those of other items. The queue maps it to a position.
    Absolute(f64),
}

/// The properties of an item that determine its priority.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Object {
    /// Size of the item in bytes, rounded up.
    pub bytes: f64,
    /// Requests for the item, including the insertion.
    pub uses: f64,
}

/// The state of the queue that determines priorities.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueState {
    /// The share of the queue that lies behind the item's section: from 0, below 1. 0 for a new item.
    pub behind: f64,
    /// The absolute priority of the item evicted last (GreedyDual's L).
    pub floor: f64,
}

/// Assigns priorities to items.
pub trait CachingPolicy: Send {
    /// The priority of a new item.
    fn insert(&self, object: &Object, queue: &QueueState) -> Priority;

    /// The priority of an item that was read. Ignored if it is below the current one.
    fn hit(&self, object: &Object, queue: &QueueState) -> Priority;
}

/// Evicts the least recently used item first.
struct Lru;

impl CachingPolicy for Lru {
    fn insert(&self, _object: &Object, _queue: &QueueState) -> Priority {
        Priority::Relative(1.0)
    }

    fn hit(&self, _object: &Object, _queue: &QueueState) -> Priority {
        Priority::Relative(1.0)
    }
}

/// Segmented LRU: an item enters at the head of the lowest of K segments; each hit moves it to the head of the next.
struct Slru {
    segments: f64,
}

impl CachingPolicy for Slru {
    fn insert(&self, _object: &Object, _queue: &QueueState) -> Priority {
        Priority::Relative(1.0 / self.segments)
    }

    fn hit(&self, _object: &Object, queue: &QueueState) -> Priority {
        // Rounding must not move an item at the start of a segment into the one below.
        let segment = (queue.behind * self.segments + 1e-9).floor() + 1.0;
        Priority::Relative((segment + 1.0).min(self.segments) / self.segments)
    }
}

/// Greedy-dual-size-frequency: uses per byte plus the priority of the last eviction, so that unused items are overtaken.
struct Gdsf {
    max_frequency: f64,
}

impl CachingPolicy for Gdsf {
    fn insert(&self, object: &Object, queue: &QueueState) -> Priority {
        self.hit(object, queue)
    }

    fn hit(&self, object: &Object, queue: &QueueState) -> Priority {
        Priority::Absolute(queue.floor + object.uses.min(self.max_frequency) / object.bytes)
    }
}

/// LFU with dynamic ageing: GDSF without sizes.
struct LfuDa;

impl CachingPolicy for LfuDa {
    fn insert(&self, object: &Object, queue: &QueueState) -> Priority {
        self.hit(object, queue)
    }

    fn hit(&self, object: &Object, queue: &QueueState) -> Priority {
        Priority::Absolute(queue.floor + object.uses)
    }
}

/// A caching policy by name: `lru`, `slru-4`, `gdsf`, `gdsf-3`, `lfu-da`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Least recently used.
    Lru,
    /// Segmented LRU.
    Slru {
        /// Number of segments; at most the number of sections of the queue.
        segments: u8,
    },
    /// Greedy-dual-size-frequency.
    Gdsf {
        /// Uses are counted up to this value. The index counts up to 256.
        max_frequency: u16,
    },
    /// LFU with dynamic ageing.
    LfuDa,
    /// A policy from another crate.
    Own(OwnCaching),
}

/// A caching policy from another crate. Two with the same name are considered equal.
///
/// ```
/// use flashwright_cache::config::regions::{Caching, CachingPolicy, Object, OwnCaching, Priority, RegionConfig, QueueState};
///
/// /// Read items go to the head of the queue, new ones to the middle.
/// struct MidPoint;
///
/// impl CachingPolicy for MidPoint {
///     fn insert(&self, _: &Object, _: &QueueState) -> Priority {
///         Priority::Relative(0.5)
///     }
///     fn hit(&self, _: &Object, _: &QueueState) -> Priority {
///         Priority::Relative(1.0)
///     }
/// }
///
/// const MID_POINT: Caching = Caching::Own(OwnCaching {
///     name: "mid-point",
///     build: |_sections| Box::new(MidPoint),
///     is_absolute: false,
///     single_point: 0.5,
/// });
/// let regions = RegionConfig::ripq(64 << 30, MID_POINT);
/// assert_eq!(MID_POINT.to_string(), "mid-point");
/// # let _ = regions;
/// ```
#[derive(Debug, Clone, Copy)]
pub struct OwnCaching {
    /// Its name in results.
    pub name: &'static str,
    /// Builds the policy for a queue of this many sections.
    pub build: fn(sections: u8) -> Box<dyn CachingPolicy>,
    /// Whether its priorities are [absolute](Caching::is_absolute).
    pub is_absolute: bool,
    /// The position, from 0 to 1, of all items' data if there is a [single point](Caching::single_point).
    pub single_point: f64,
}

impl PartialEq for OwnCaching {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for OwnCaching {}

/// Uses that the index can count: eight bits of hits, and the insertion.
const MOST_USES: u16 = 256;

impl Caching {
    /// GDSF with the largest frequency that the index can count.
    pub const GDSF: Self = Self::Gdsf { max_frequency: MOST_USES };

    /// The policy for a queue of this many sections.
    #[must_use]
    pub fn build(self, sections: u8) -> Box<dyn CachingPolicy> {
        match self {
            Self::Lru => Box::new(Lru),
            // With fewer sections than segments, an item could never climb: its next segment would be in its own section.
            Self::Slru { segments } => Box::new(Slru { segments: f64::from(segments.min(sections)) }),
            Self::Gdsf { max_frequency } => Box::new(Gdsf { max_frequency: f64::from(max_frequency) }),
            Self::LfuDa => Box::new(LfuDa),
            Self::Own(own) => (own.build)(sections),
        }
    }

    /// Whether priorities are absolute. The queue then moves blocks in both directions to balance its sections, because their boundaries
    /// are the map from absolute to relative priorities.
    #[must_use]
    pub fn is_absolute(self) -> bool {
        match self {
            Self::Lru | Self::Slru { .. } => false,
            Self::Gdsf { .. } | Self::LfuDa => true,
            Self::Own(own) => own.is_absolute,
        }
    }

    /// The position of the insertion point if there is only one: that of new items, if the policy inserts all of them at one position.
    #[must_use]
    pub fn single_point(self) -> f64 {
        match self {
            Self::Lru => 1.0,
            Self::Slru { segments } => 1.0 / f64::from(segments),
            Self::Gdsf { .. } | Self::LfuDa => 0.5,
            Self::Own(own) => own.single_point,
        }
    }

    pub(crate) fn fault(self) -> Option<String> {
        match self {
            Self::Slru { segments: 0 } => Some("a segmented LRU needs at least one segment".to_owned()),
            Self::Gdsf { max_frequency } if !(1..=MOST_USES).contains(&max_frequency) => {
                Some(format!("the largest frequency must be from 1 to {MOST_USES}, not {max_frequency}"))
            }
            Self::Own(own) if !(0.0..=1.0).contains(&own.single_point) => Some(format!(
                "the single point of `{}` must be between 0 and 1, not {}",
                own.name, own.single_point
            )),
            _ => None,
        }
    }
}

impl fmt::Display for Caching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lru => f.write_str("lru"),
            Self::Slru { segments } => write!(f, "slru-{segments}"),
            Self::Gdsf { max_frequency: MOST_USES } => f.write_str("gdsf"),
            Self::Gdsf { max_frequency } => write!(f, "gdsf-{max_frequency}"),
            Self::LfuDa => f.write_str("lfu-da"),
            Self::Own(own) => f.write_str(own.name),
        }
    }
}

/// No caching policy has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a caching policy; valid policies are `lru`, `slru-4` (any number), `gdsf`, `gdsf-3` (any number), `lfu-da`"
)]
pub struct UnknownCaching(pub String);

impl FromStr for Caching {
    type Err = UnknownCaching;

    fn from_str(name: &str) -> Result<Self, UnknownCaching> {
        let unknown = || UnknownCaching(name.to_owned());
        let (head, number) = match name.rsplit_once('-') {
            Some((head, tail)) if tail.bytes().all(|byte| byte.is_ascii_digit()) => (head, tail),
            _ => (name, ""),
        };
        let caching = match (head, number) {
            ("lru", "") => Self::Lru,
            ("gdsf", "") => Self::GDSF,
            ("lfu-da", "") => Self::LfuDa,
            ("slru", number) => Self::Slru { segments: number.parse().map_err(|_| unknown())? },
            ("gdsf", number) => Self::Gdsf { max_frequency: number.parse().map_err(|_| unknown())? },
            _ => return Err(unknown()),
        };
        if caching.fault().is_some() { Err(unknown()) } else { Ok(caching) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: Object = Object { bytes: 100.0, uses: 3.0 };

    fn hit(caching: Caching, behind: f64) -> Priority {
        caching.build(8).hit(&OBJECT, &QueueState { behind, floor: 10.0 })
    }

    #[test]
    fn caching_policy_names_parse_and_display() {
        for name in ["lru", "slru-4", "slru-1", "gdsf", "gdsf-3", "lfu-da"] {
            assert_eq!(name.parse::<Caching>().expect(name).to_string(), name);
        }
        for name in
            ["", "LRU", "slru", "slru-0", "slru-x", "slru-300", "gdsf-0", "gdsf-300", "lfu-da-2", "arc"]
        {
            assert!(name.parse::<Caching>().is_err(), "{name}");
        }
    }

    #[test]
    fn hit_moves_an_item_to_the_head_of_the_next_segment() {
        let slru = Caching::Slru { segments: 4 };
        // Two of the queue's eight sections are a segment.
        let expected = [0.5, 0.5, 0.75, 0.75, 1.0, 1.0, 1.0, 1.0];
        for (section, priority) in (0_u8..8).zip(expected) {
            assert_eq!(hit(slru, f64::from(section) / 8.0), Priority::Relative(priority), "{section}");
        }
        // Thirds are not exact in binary.
        let thirds = Caching::Slru { segments: 3 };
        assert_eq!(hit(thirds, 1.0 / 3.0), Priority::Relative(1.0));
    }

    #[test]
    fn gdsf_priority_is_frequency_per_byte_above_the_last_eviction() {
        assert_eq!(hit(Caching::GDSF, 0.0), Priority::Absolute(10.03));
        assert_eq!(hit(Caching::Gdsf { max_frequency: 2 }, 0.0), Priority::Absolute(10.02));
        assert_eq!(hit(Caching::LfuDa, 0.5), Priority::Absolute(13.0));
        assert_eq!(hit(Caching::Lru, 0.5), Priority::Relative(1.0));
    }
}
