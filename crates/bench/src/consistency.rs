//! Checks that every value found by a get is a value that it may return.
//!
//! A key is a register that can also become empty: sets write versions, deletes empty it, and a miss shows that it was empty.
//! Each operation is an interval on the key's logical clock. A version is *dead* after another state was provably seen: a set,
//! a delete, a miss, or a hit of another version that began after the version's set completed or after the version was found. A
//! get that begins later must not return a dead version; an operation that overlaps may be ordered either way.
//!
//! CacheBench keeps the last 480 events of a key. Here a version is dropped when no get in flight may still return it, so no
//! limit is needed.
//!
//! Pure logic with a lock for each shard of keys; [`crate::run`] calls it.

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;

/// Version that a set writes into its value and a get reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub u64);

/// A time on one key's logical clock.
type Moment = u64;

const NEVER: Moment = Moment::MAX;

/// An operation in flight: returned by `begin_*` and passed to `end_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an operation without an end keeps its key's history growing"]
pub struct Begun(Moment);

/// A value that must not be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inconsistency {
    /// The version was overwritten, deleted or missed before the get began.
    Stale {
        /// Id of the key.
        key_id: u64,
        /// Version found.
        found: Version,
    },
    /// The version was never set, or was dropped long ago.
    Unknown {
        /// Id of the key.
        key_id: u64,
        /// Version found.
        found: Version,
    },
    /// The bytes differ from those of the version's set.
    Damaged {
        /// Id of the key.
        key_id: u64,
    },
}

impl fmt::Display for Inconsistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { key_id, found } => write!(
                f,
                "key {key_id}: version {} is older than what a completed set, delete or get left",
                found.0
            ),
            Self::Unknown { key_id, found } => {
                write!(f, "key {key_id}: version {} was never set, or overwritten long ago", found.0)
            }
            Self::Damaged { key_id } => {
                write!(f, "key {key_id}: the value's bytes differ from those that were set")
            }
        }
    }
}

/// Checks all keys.
pub struct Checker {
    shards: Box<[Shard]>,
    /// Whether keys may have versions of an earlier run.
    inherits: bool,
}

#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<HashMap<u64, History>>);

const SHARD_BITS: u32 = 10;

impl Checker {
    /// Creates a checker; `inherits` if the cache may have values of an earlier run.
    #[must_use]
    pub fn new(inherits: bool) -> Self {
        Self { shards: std::iter::repeat_with(Shard::default).take(1 << SHARD_BITS).collect(), inherits }
    }

    /// Call at the start of a get.
    pub fn begin_get(&self, key_id: u64) -> Begun {
        self.with(key_id, |history| {
            let begun = history.begin();
            history.open_gets.push(begun.0);
            begun
        })
    }

    /// Call at the end of a get that found `found`, or nothing. `inherited`: the value was written by an earlier run.
    ///
    /// # Errors
    /// The inconsistency; the key is not checked any further.
    pub fn end_get(
        &self,
        key_id: u64,
        get: Begun,
        found: Option<Version>,
        inherited: bool,
    ) -> Result<(), Inconsistency> {
        self.with(key_id, |history| {
            let version = if inherited { found.map(|_| PRIOR) } else { found };
            let verdict = history.judge(key_id, get, version);
            history.close_get(get);
            history.observe(get.0, version);
            history.take_effect(version);
            history.end();
            history.failed |= verdict.is_err();
            verdict
        })
    }

    /// Call at the start of a set of `version`.
    pub fn begin_set(&self, key_id: u64, version: Version) -> Begun {
        self.with(key_id, |history| {
            history.sets.push(Set { version, ended: None, dead: NEVER });
            history.begin()
        })
    }

    /// Call after a set that succeeded.
    pub fn end_set(&self, key_id: u64, set: Begun, version: Version) {
        self.with(key_id, |history| {
            history.observe(set.0, Some(version));
            history.take_effect(Some(version));
            history.end();
        });
    }

    /// Call after a set that was refused and changed nothing.
    pub fn abort_set(&self, key_id: u64, _set: Begun, version: Version) {
        self.with(key_id, |history| {
            history.sets.retain(|record| record.version != version);
            history.end();
        });
    }

    /// Call at the start of a delete.
    pub fn begin_delete(&self, key_id: u64) -> Begun {
        self.with(key_id, History::begin)
    }

    /// Call at the end of a delete, whether it found the key or not.
    pub fn end_delete(&self, key_id: u64, delete: Begun) {
        self.with(key_id, |history| {
            history.observe(delete.0, None);
            history.end();
        });
    }

    /// Reports wrong bytes of a value; the key is not checked any further.
    pub fn damaged(&self, key_id: u64) -> Inconsistency {
        self.with(key_id, |history| history.failed = true);
        Inconsistency::Damaged { key_id }
    }

    fn with<T>(&self, key_id: u64, act: impl FnOnce(&mut History) -> T) -> T {
        // Neighbouring keys are often requested together, so they are spread over shards.
        let shard = (key_id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SHARD_BITS)) as usize;
        let mut histories = self.shards[shard].0.lock();
        let history = histories.entry(key_id).or_insert_with(|| History::new(self.inherits));
        let outcome = act(history);
        // Most keys of a large run are absent. Dropping their histories avoids a history for each key of the trace.
        if !self.inherits && history.is_blank() {
            histories.remove(&key_id);
        }
        outcome
    }
}

/// Stands for any version from before the run.
const PRIOR: Version = Version(0);

/// History of one key.
struct History {
    now: Moment,
    sets: Vec<Set>,
    /// Operations in flight.
    in_flight: usize,
    /// Start times of gets in flight.
    open_gets: Vec<Moment>,
    /// Set after the first error, so that a key is reported once.
    failed: bool,
}

struct Set {
    version: Version,
    /// Time at which the value was known to exist: it was found, or its set completed. `None` before that.
    ended: Option<Moment>,
    /// Time after which the version must not be found.
    dead: Moment,
}

impl History {
    fn new(inherits: bool) -> Self {
        let prior = Set { version: PRIOR, ended: Some(0), dead: NEVER };
        let sets = if inherits { vec![prior] } else { Vec::new() };
        Self { now: 0, sets, in_flight: 0, open_gets: Vec::new(), failed: false }
    }

    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    fn begin(&mut self) -> Begun {
        self.in_flight += 1;
        Begun(self.tick())
    }

    fn end(&mut self) {
        self.in_flight -= 1;
        self.forget();
    }

    /// Whether it equals a new history. The clock can restart only if no operation in flight has a time of it.
    fn is_blank(&self) -> bool {
        self.in_flight == 0 && self.sets.is_empty() && !self.failed
    }

    fn judge(&self, key_id: u64, get: Begun, version: Option<Version>) -> Result<(), Inconsistency> {
        let Some(found) = version else { return Ok(()) };
        if self.failed {
            return Ok(());
        }
        match self.sets.iter().find(|set| set.version == found) {
            None => Err(Inconsistency::Unknown { key_id, found }),
            Some(set) if set.dead < get.0 => Err(Inconsistency::Stale { key_id, found }),
            Some(_) => Ok(()),
        }
    }

    /// The key had `version` (or nothing) at some time since `began`: versions that completed before are dead from now on.
    fn observe(&mut self, began: Moment, version: Option<Version>) {
        let now = self.tick();
        for set in &mut self.sets {
            if Some(set.version) != version && set.ended.is_some_and(|ended| ended < began) {
                set.dead = set.dead.min(now);
            }
        }
    }

    /// Records that the set of `version` has taken effect.
    fn take_effect(&mut self, version: Option<Version>) {
        let now = self.now;
        if let Some(set) = self.sets.iter_mut().find(|set| Some(set.version) == version) {
            set.ended.get_or_insert(now);
        }
    }

    fn close_get(&mut self, get: Begun) {
        if let Some(at) = self.open_gets.iter().position(|begun| *begun == get.0) {
            self.open_gets.swap_remove(at);
        }
    }

    /// Drops versions that no get in flight may still return.
    fn forget(&mut self) {
        let oldest = self.open_gets.iter().copied().min().unwrap_or(NEVER);
        self.sets.retain(|set| set.dead == NEVER || set.dead >= oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 7;

    fn set(checker: &Checker, version: u64) {
        let begun = checker.begin_set(KEY, Version(version));
        checker.end_set(KEY, begun, Version(version));
    }

    fn get(checker: &Checker, found: Option<u64>) -> Result<(), Inconsistency> {
        let begun = checker.begin_get(KEY);
        checker.end_get(KEY, begun, found.map(Version), false)
    }

    fn delete(checker: &Checker) {
        let begun = checker.begin_delete(KEY);
        checker.end_delete(KEY, begun);
    }

    #[test]
    fn get_of_last_value_is_consistent() {
        let checker = Checker::new(false);
        set(&checker, 1);
        set(&checker, 2);
        assert_eq!(get(&checker, Some(2)), Ok(()));
        assert_eq!(get(&checker, Some(2)), Ok(()));
    }

    #[test]
    fn get_of_overwritten_value_is_reported() {
        let checker = Checker::new(false);
        set(&checker, 1);
        set(&checker, 2);
        assert_eq!(get(&checker, Some(1)), Err(Inconsistency::Unknown { key_id: KEY, found: Version(1) }));
    }

    #[test]
    fn get_of_deleted_value_is_reported() {
        let checker = Checker::new(false);
        set(&checker, 1);
        delete(&checker);
        assert!(get(&checker, Some(1)).is_err());
    }

    #[test]
    fn get_of_value_after_miss_is_reported() {
        let checker = Checker::new(false);
        set(&checker, 1);
        assert_eq!(get(&checker, None), Ok(()));
        assert!(get(&checker, Some(1)).is_err());
    }

    #[test]
    fn get_of_value_never_set_is_reported_once() {
        let checker = Checker::new(false);
        assert!(get(&checker, Some(9)).is_err());
        assert_eq!(get(&checker, Some(8)), Ok(()), "a failed key is not checked");
    }

    #[test]
    fn overlapping_sets_may_take_effect_in_either_order() {
        for winner in [1, 2] {
            let checker = Checker::new(false);
            let (one, two) = (checker.begin_set(KEY, Version(1)), checker.begin_set(KEY, Version(2)));
            checker.end_set(KEY, one, Version(1));
            checker.end_set(KEY, two, Version(2));
            assert_eq!(get(&checker, Some(winner)), Ok(()));
            assert_eq!(get(&checker, Some(winner)), Ok(()));
            assert!(get(&checker, Some(3 - winner)).is_err(), "the observed order cannot change");
        }
    }

    #[test]
    fn get_of_value_in_flight_makes_previous_value_stale() {
        let checker = Checker::new(false);
        set(&checker, 1);
        let in_flight = checker.begin_set(KEY, Version(2));
        assert_eq!(get(&checker, Some(1)), Ok(()));
        assert_eq!(get(&checker, Some(2)), Ok(()));
        assert!(get(&checker, Some(1)).is_err());
        checker.end_set(KEY, in_flight, Version(2));
    }

    /// A value that was found exists: a later set or miss replaces it, even if its own set has not returned.
    #[test]
    fn value_found_before_its_set_returns_is_stale_after_a_later_set() {
        let checker = Checker::new(false);
        let slow = checker.begin_set(KEY, Version(1));
        assert_eq!(get(&checker, Some(1)), Ok(()));
        set(&checker, 2);
        checker.end_set(KEY, slow, Version(1));
        assert_eq!(get(&checker, Some(2)), Ok(()));
        assert!(get(&checker, Some(1)).is_err(), "it was overwritten");
        let checker = Checker::new(false);
        let slow = checker.begin_set(KEY, Version(1));
        assert_eq!(get(&checker, Some(1)), Ok(()));
        assert_eq!(get(&checker, None), Ok(()));
        assert!(get(&checker, Some(1)).is_err(), "it was evicted");
        checker.end_set(KEY, slow, Version(1));
    }

    #[test]
    fn concurrent_gets_may_find_overlapping_sets() {
        let checker = Checker::new(false);
        let (one, two) = (checker.begin_set(KEY, Version(1)), checker.begin_set(KEY, Version(2)));
        let early = checker.begin_get(KEY);
        assert_eq!(get(&checker, Some(1)), Ok(()));
        assert_eq!(get(&checker, Some(2)), Ok(()));
        assert_eq!(
            checker.end_get(KEY, early, Some(Version(1)), false),
            Ok(()),
            "it began before the second set was seen"
        );
        checker.end_set(KEY, one, Version(1));
        checker.end_set(KEY, two, Version(2));
        assert_eq!(get(&checker, Some(2)), Ok(()));
    }

    #[test]
    fn get_begun_before_overwrite_may_find_old_value() {
        let checker = Checker::new(false);
        set(&checker, 1);
        let slow = checker.begin_get(KEY);
        set(&checker, 2);
        assert_eq!(checker.end_get(KEY, slow, Some(Version(1)), false), Ok(()));
        assert!(get(&checker, Some(1)).is_err());
    }

    #[test]
    fn get_begun_after_overwrite_is_stale_while_older_get_is_open() {
        let checker = Checker::new(false);
        set(&checker, 1);
        let slow = checker.begin_get(KEY);
        set(&checker, 2);
        assert_eq!(get(&checker, Some(1)), Err(Inconsistency::Stale { key_id: KEY, found: Version(1) }));
        assert_eq!(checker.end_get(KEY, slow, Some(Version(1)), false), Ok(()));
    }

    #[test]
    fn delete_overlapping_a_set_may_take_effect_before_or_after() {
        for found in [None, Some(1)] {
            let checker = Checker::new(false);
            let setting = checker.begin_set(KEY, Version(1));
            let deleting = checker.begin_delete(KEY);
            checker.end_set(KEY, setting, Version(1));
            checker.end_delete(KEY, deleting);
            assert_eq!(get(&checker, found), Ok(()));
        }
    }

    #[test]
    fn aborted_set_keeps_previous_value() {
        let checker = Checker::new(false);
        set(&checker, 1);
        let refused = checker.begin_set(KEY, Version(2));
        checker.abort_set(KEY, refused, Version(2));
        assert_eq!(get(&checker, Some(1)), Ok(()));
        assert!(get(&checker, Some(2)).is_err());
    }

    #[test]
    fn inherited_value_may_be_found_until_replaced() {
        let inherited = |checker: &Checker| {
            let begun = checker.begin_get(KEY);
            checker.end_get(KEY, begun, Some(Version(77)), true)
        };
        let checker = Checker::new(true);
        assert_eq!(inherited(&checker), Ok(()));
        set(&checker, 1);
        assert!(inherited(&checker).is_err());
        assert!(
            inherited(&Checker::new(false)).is_err(),
            "a cache that was empty at the start has no inherited values"
        );
    }

    #[test]
    fn history_of_many_sets_stays_short() {
        let checker = Checker::new(false);
        for version in 1..10_000 {
            set(&checker, version);
            assert_eq!(get(&checker, Some(version)), Ok(()));
        }
        checker.with(KEY, |history| assert!(history.sets.len() <= 2 && history.open_gets.is_empty()));
    }

    #[test]
    fn absent_keys_keep_no_history() {
        let checker = Checker::new(false);
        for key in 0..10_000 {
            let begun = checker.begin_get(key);
            assert_eq!(checker.end_get(key, begun, None, false), Ok(()));
            let begun = checker.begin_set(key, Version(key));
            checker.end_set(key, begun, Version(key));
            let begun = checker.begin_delete(key);
            checker.end_delete(key, begun);
            let begun = checker.begin_set(key, Version(key));
            checker.abort_set(key, begun, Version(key));
        }
        assert_eq!(checker.shards.iter().map(|shard| shard.0.lock().len()).sum::<usize>(), 0);
    }

    /// An open delete must keep the clock, because it is later than the start of a new clock.
    #[test]
    fn clock_is_not_reset_while_an_operation_is_open() {
        let checker = Checker::new(false);
        let open = checker.begin_get(KEY);
        (0..5).for_each(|_| assert_eq!(get(&checker, None), Ok(())));
        let deleting = checker.begin_delete(KEY);
        assert_eq!(checker.end_get(KEY, open, None, false), Ok(()));
        set(&checker, 1);
        checker.end_delete(KEY, deleting);
        assert_eq!(get(&checker, Some(1)), Ok(()), "the delete may have come before the set");
    }
}
