//! Whether every value that a get found is one that it may have found.
//!
//! A key is a register that also forgets: sets write versions, deletes empty it, and a miss shows that it was empty. Each
//! operation is an interval on the key's own clock. A version is *dead* once something else was provably in its place:
//! a set, a delete, a miss or a hit of another version that began after the version's set had ended, or after it had been
//! found. A get that began after that moment must not find it; a get, set or delete that overlaps may go either way.
//!
//! CacheBench keeps the last 480 events of a key for the same purpose; here a version is forgotten as soon as no get that
//! could still return it is under way, which needs no limit.
//!
//! Pure logic behind one small lock a shard of keys: who calls it, and when, is up to [`crate::run`].

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;

/// What a set writes into its value and a get finds there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub u64);

/// A moment on one key's clock.
type Moment = u64;

const NEVER: Moment = Moment::MAX;

/// An operation under way: what `begin_*` hands out and `end_*` takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an operation that is not ended keeps its key's history growing"]
pub struct Begun(Moment);

/// A value that should not have been found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inconsistency {
    /// Its set was overwritten, deleted or missed before the get began.
    Stale {
        /// Identity of the key.
        key_id: u64,
        /// What was found.
        found: Version,
    },
    /// Nobody set it, or it was forgotten long ago.
    Unknown {
        /// Identity of the key.
        key_id: u64,
        /// What was found.
        found: Version,
    },
    /// The bytes are not what the version's set wrote.
    Damaged {
        /// Identity of the key.
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

/// Watches all keys.
pub struct Checker {
    shards: Box<[Shard]>,
    /// Whether keys may hold versions from before this run.
    inherits: bool,
}

#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<HashMap<u64, History>>);

const SHARD_BITS: u32 = 10;

impl Checker {
    /// A checker; `inherits` where the cache may already hold values of an earlier run.
    #[must_use]
    pub fn new(inherits: bool) -> Self {
        Self { shards: std::iter::repeat_with(Shard::default).take(1 << SHARD_BITS).collect(), inherits }
    }

    /// A get starts.
    pub fn begin_get(&self, key_id: u64) -> Begun {
        self.with(key_id, |history| {
            let begun = history.begin();
            history.open_gets.push(begun.0);
            begun
        })
    }

    /// A get found `found`, or nothing. `inherited` says that the value bears the mark of an earlier run.
    ///
    /// # Errors
    /// What is wrong with it; the key is not checked any further.
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

    /// A set of `version` starts.
    pub fn begin_set(&self, key_id: u64, version: Version) -> Begun {
        self.with(key_id, |history| {
            history.sets.push(Set { version, ended: None, dead: NEVER });
            history.begin()
        })
    }

    /// The set is done: the value may be found.
    pub fn end_set(&self, key_id: u64, set: Begun, version: Version) {
        self.with(key_id, |history| {
            history.observe(set.0, Some(version));
            history.take_effect(Some(version));
            history.end();
        });
    }

    /// The set was not done: nothing changed.
    pub fn abort_set(&self, key_id: u64, _set: Begun, version: Version) {
        self.with(key_id, |history| {
            history.sets.retain(|record| record.version != version);
            history.end();
        });
    }

    /// A delete starts.
    pub fn begin_delete(&self, key_id: u64) -> Begun {
        self.with(key_id, History::begin)
    }

    /// The delete is done, whether it found something or not.
    pub fn end_delete(&self, key_id: u64, delete: Begun) {
        self.with(key_id, |history| {
            history.observe(delete.0, None);
            history.end();
        });
    }

    /// The value's bytes were wrong: the key is not checked any further.
    pub fn damaged(&self, key_id: u64) -> Inconsistency {
        self.with(key_id, |history| history.failed = true);
        Inconsistency::Damaged { key_id }
    }

    fn with<T>(&self, key_id: u64, act: impl FnOnce(&mut History) -> T) -> T {
        // Neighbouring keys are asked for together: their shards are spread.
        let shard = (key_id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SHARD_BITS)) as usize;
        let mut histories = self.shards[shard].0.lock();
        let history = histories.entry(key_id).or_insert_with(|| History::new(self.inherits));
        let outcome = act(history);
        // Most keys of a large run are asked for and not there: they would be as many histories as the trace has keys.
        if !self.inherits && history.is_blank() {
            histories.remove(&key_id);
        }
        outcome
    }
}

/// The version of whatever a key held before the run.
const PRIOR: Version = Version(0);

/// What is known of one key.
struct History {
    now: Moment,
    sets: Vec<Set>,
    /// Operations that have a moment of this clock.
    under_way: usize,
    /// Beginnings of gets under way.
    open_gets: Vec<Moment>,
    /// A key that failed once would fail again and again.
    failed: bool,
}

struct Set {
    version: Version,
    /// When its value was known to have been there: it was found, or the set was done. `None` until then.
    ended: Option<Moment>,
    /// The moment from which it cannot be found any more.
    dead: Moment,
}

impl History {
    fn new(inherits: bool) -> Self {
        let prior = Set { version: PRIOR, ended: Some(0), dead: NEVER };
        let sets = if inherits { vec![prior] } else { Vec::new() };
        Self { now: 0, sets, under_way: 0, open_gets: Vec::new(), failed: false }
    }

    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    fn begin(&mut self) -> Begun {
        self.under_way += 1;
        Begun(self.tick())
    }

    fn end(&mut self) {
        self.under_way -= 1;
        self.forget();
    }

    /// Whether it says no more than one that begins: its clock may begin anew where nobody has a moment of it.
    fn is_blank(&self) -> bool {
        self.under_way == 0 && self.sets.is_empty() && !self.failed
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

    /// The key held `version` (or nothing) at some moment since `began`: what had ended before that is dead from now on.
    fn observe(&mut self, began: Moment, version: Option<Version>) {
        let now = self.tick();
        for set in &mut self.sets {
            if Some(set.version) != version && set.ended.is_some_and(|ended| ended < began) {
                set.dead = set.dead.min(now);
            }
        }
    }

    /// The set of `version` cannot take effect any more: it has.
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

    /// Drops versions that no get under way may still return.
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
    fn the_last_value_is_found_again_and_again() {
        let checker = Checker::new(false);
        set(&checker, 1);
        set(&checker, 2);
        assert_eq!(get(&checker, Some(2)), Ok(()));
        assert_eq!(get(&checker, Some(2)), Ok(()));
    }

    #[test]
    fn a_stale_value_is_noticed() {
        let checker = Checker::new(false);
        set(&checker, 1);
        set(&checker, 2);
        assert_eq!(get(&checker, Some(1)), Err(Inconsistency::Unknown { key_id: KEY, found: Version(1) }));
    }

    #[test]
    fn a_value_that_comes_back_after_its_delete_is_noticed() {
        let checker = Checker::new(false);
        set(&checker, 1);
        delete(&checker);
        assert!(get(&checker, Some(1)).is_err());
    }

    #[test]
    fn a_value_that_comes_back_after_a_miss_is_noticed() {
        let checker = Checker::new(false);
        set(&checker, 1);
        assert_eq!(get(&checker, None), Ok(()));
        assert!(get(&checker, Some(1)).is_err());
    }

    #[test]
    fn a_value_that_nobody_set_is_noticed_and_its_key_left_alone_then() {
        let checker = Checker::new(false);
        assert!(get(&checker, Some(9)).is_err());
        assert_eq!(get(&checker, Some(8)), Ok(()), "a failed key is not checked");
    }

    #[test]
    fn sets_that_overlap_may_end_in_either_order() {
        for winner in [1, 2] {
            let checker = Checker::new(false);
            let (one, two) = (checker.begin_set(KEY, Version(1)), checker.begin_set(KEY, Version(2)));
            checker.end_set(KEY, one, Version(1));
            checker.end_set(KEY, two, Version(2));
            assert_eq!(get(&checker, Some(winner)), Ok(()));
            assert_eq!(get(&checker, Some(winner)), Ok(()));
            assert!(get(&checker, Some(3 - winner)).is_err(), "the order was seen and cannot turn");
        }
    }

    #[test]
    fn a_set_under_way_may_be_seen_and_then_its_predecessor_may_not() {
        let checker = Checker::new(false);
        set(&checker, 1);
        let under_way = checker.begin_set(KEY, Version(2));
        assert_eq!(get(&checker, Some(1)), Ok(()));
        assert_eq!(get(&checker, Some(2)), Ok(()));
        assert!(get(&checker, Some(1)).is_err());
        checker.end_set(KEY, under_way, Version(2));
    }

    /// Once found, it is there: whatever replaces it from then on comes after it, however long its set takes to return.
    #[test]
    fn a_value_found_before_its_set_had_returned_was_taken_back_after_a_later_one_and_not_noticed() {
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

    /// Its own set, which goes on meanwhile, has no say in it any more.
    #[test]
    fn a_value_may_be_found_while_another_set_overlaps_it_and_by_gets_side_by_side() {
        let checker = Checker::new(false);
        let (one, two) = (checker.begin_set(KEY, Version(1)), checker.begin_set(KEY, Version(2)));
        let early = checker.begin_get(KEY);
        assert_eq!(get(&checker, Some(1)), Ok(()));
        assert_eq!(get(&checker, Some(2)), Ok(()));
        assert_eq!(checker.end_get(KEY, early, Some(Version(1)), false), Ok(()), "it began before");
        checker.end_set(KEY, one, Version(1));
        checker.end_set(KEY, two, Version(2));
        assert_eq!(get(&checker, Some(2)), Ok(()));
    }

    #[test]
    fn a_get_that_began_before_the_overwrite_may_find_the_old_value() {
        let checker = Checker::new(false);
        set(&checker, 1);
        let slow = checker.begin_get(KEY);
        set(&checker, 2);
        assert_eq!(checker.end_get(KEY, slow, Some(Version(1)), false), Ok(()));
        assert!(get(&checker, Some(1)).is_err());
    }

    #[test]
    fn a_get_that_began_after_the_overwrite_is_stale_even_while_an_older_get_is_open() {
        let checker = Checker::new(false);
        set(&checker, 1);
        let slow = checker.begin_get(KEY);
        set(&checker, 2);
        assert_eq!(get(&checker, Some(1)), Err(Inconsistency::Stale { key_id: KEY, found: Version(1) }));
        assert_eq!(checker.end_get(KEY, slow, Some(Version(1)), false), Ok(()));
    }

    #[test]
    fn a_delete_that_overlaps_a_set_may_come_before_or_after_it() {
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
    fn a_refused_set_leaves_the_value_before_it() {
        let checker = Checker::new(false);
        set(&checker, 1);
        let refused = checker.begin_set(KEY, Version(2));
        checker.abort_set(KEY, refused, Version(2));
        assert_eq!(get(&checker, Some(1)), Ok(()));
        assert!(get(&checker, Some(2)).is_err());
    }

    #[test]
    fn what_an_earlier_run_left_may_be_found_until_something_replaces_it() {
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
            "a cache that began empty holds nothing from before"
        );
    }

    #[test]
    fn a_history_stays_short() {
        let checker = Checker::new(false);
        for version in 1..10_000 {
            set(&checker, version);
            assert_eq!(get(&checker, Some(version)), Ok(()));
        }
        checker.with(KEY, |history| assert!(history.sets.len() <= 2 && history.open_gets.is_empty()));
    }

    /// Every key that was ever asked for had a history until the run ended.
    #[test]
    fn of_keys_that_were_only_asked_for_and_deleted_nothing_is_kept() {
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

    /// A delete leaves nothing in a history while it is under way, and is later than the beginning of a new clock.
    #[test]
    fn a_clock_does_not_begin_anew_while_an_operation_has_a_moment_of_it() {
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
