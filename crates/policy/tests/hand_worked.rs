//! Tiny traces worked by hand, one larger pinned run, and MIN as the upper bound.
//!
//! A trace is a word: letters are keys, and `.` is a pause of 30 seconds. The expected outcome lists each request: `a` is a miss, `A` a
//! hit, and `b/a` a miss on b that evicts a.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use flashwright_policy::eviction::{
    Clairvoyant, EvictionConfig, Fifo, Gdsf, Kind, Lru, Lru2q, Lru2qConfig, LruConfig, Refresh, S3Fifo,
    Sieve, Slru, TinyLfu, WTinyLfu, build, clairvoyant, gdsf::Cost,
};
use flashwright_policy::simulate::{self, Access, Request, Rules, Simulation, Simulator, SizeOnHit, hash_of};
use flashwright_policy::{Entry, Eviction, HitRule, Slot};

fn outcome(mut policy: impl Eviction, capacity: u64, trace: &str) -> String {
    outcome_observed(&mut policy, capacity, trace, |_| ())
}

/// Calls `before` with the number of each request.
fn outcome_observed(
    policy: &mut impl Eviction,
    capacity: u64,
    trace: &str,
    before: impl Fn(usize),
) -> String {
    policy.set_capacity(capacity);
    let (mut held, mut reported, mut now) = (BTreeSet::new(), [0; 26], 0);
    let mut outcome = String::new();
    for (number, letter) in trace.bytes().enumerate() {
        if letter == b'.' {
            now += 30;
            continue;
        }
        before(number);
        let slot = Slot(u32::from(letter - b'a'));
        if held.contains(&slot) {
            report_hit(policy, slot, &mut reported[slot.0 as usize], now);
            write!(outcome, "{} ", letter.to_ascii_uppercase() as char).unwrap();
            continue;
        }
        write!(outcome, "{}", letter as char).unwrap();
        if held.len() as u64 == capacity {
            let victim = policy.evict(now).unwrap();
            assert!(held.remove(&victim));
            write!(outcome, "/{}", (b'a' + victim.0 as u8) as char).unwrap();
        }
        outcome.push(' ');
        held.insert(slot);
        reported[slot.0 as usize] = now;
        policy.insert(slot, Entry { hash: hash_of(slot.0.into()), weight: 1 }, now);
    }
    outcome.trim_end().to_owned()
}

fn report_hit(policy: &mut impl Eviction, slot: Slot, reported: &mut u32, now: u32) {
    match policy.hit_rule() {
        HitRule::Ignore => {}
        HitRule::Mark { marks, at_most } => marks.bump(slot, at_most),
        HitRule::Refresh { refresh_seconds } if now - *reported < refresh_seconds => {}
        HitRule::Refresh { .. } | HitRule::Every => {
            *reported = now;
            policy.hit(slot, now);
        }
    }
}

#[test]
fn fifo_ignores_hits() {
    assert_eq!(outcome(Fifo::new(), 3, "abcadab"), "a b c A d/a a/b b/c");
}

#[test]
fn exact_lru_evicts_the_least_recently_used() {
    assert_eq!(outcome(Lru::exact(), 3, "abcadab"), "a b c A d/b A b/c");
}

#[test]
fn lru_ignores_hits_within_the_refresh_time() {
    let refresh = Refresh { seconds: 60, ratio: 0.0, tune_every_seconds: 0 };
    let lru = || Lru::new(LruConfig { refresh, insertion_point: 0 });
    assert_eq!(outcome(lru(), 3, "abcad"), "a b c A d/a");
    assert_eq!(outcome(lru(), 3, "abc.ad"), "a b c A d/a");
    assert_eq!(outcome(lru(), 3, "abc..ad"), "a b c A d/b");
}

#[test]
fn lru_tunes_its_refresh_time_to_a_tenth_of_the_oldest_age() {
    let mut lru = Lru::new(LruConfig::default());
    let refresh_of = |lru: &Lru| match lru.hit_rule() {
        HitRule::Refresh { refresh_seconds } => refresh_seconds,
        _ => panic!("LRU with a refresh time must return it in its hit rule"),
    };
    for (slot, now) in [(0, 0), (1, 500), (2, 700)] {
        lru.insert(Slot(slot), Entry { hash: 0, weight: 1 }, now);
    }
    assert_eq!(refresh_of(&lru), 60);
    lru.hit(Slot(2), 2000); // the oldest, 0, was used 2000 s ago
    assert_eq!(refresh_of(&lru), 200);
    lru.hit(Slot(0), 2059); // not yet time to tune
    assert_eq!(refresh_of(&lru), 200);
    lru.hit(Slot(2), 2060); // now 1 is the oldest, used 1560 s ago
    assert_eq!(refresh_of(&lru), 156);
    lru.hit(Slot(1), 2120); // now 0, used 61 s ago: never below the configured 60
    assert_eq!(refresh_of(&lru), 60);
    lru.hit(Slot(1), 100_000); // never above 900
    assert_eq!(refresh_of(&lru), 900);
}

#[test]
fn lru_with_an_insertion_point_evicts_new_entries_first() {
    // Insertion at the middle: b and c stay above that point, and new entries behind it are evicted first.
    let lru = Lru::new(LruConfig { refresh: Refresh::every_hit(), insertion_point: 1 });
    assert_eq!(outcome(lru, 4, "abcdefgbh"), "a b c d e/a f/d g/e B h/f");
}

#[test]
fn lru_2q_scan_does_not_evict_entries_hit_while_cold() {
    // Of five entries, one is hot, three are warm, one is cold; with fewer none is hot.
    let config = Lru2qConfig { refresh: Refresh::every_hit(), hot_percent: 20, cold_percent: 20 };
    let trace = "abcdeafghaijkla";
    assert_eq!(outcome(Lru2q::new(config), 5, trace), "a b c d e A f/b g/c h/d A i/e j/f k/g l/h A");
    assert!(outcome(Lru::exact(), 5, "abcdeafghijkla").ends_with("a/h"), "the scan costs LRU its a");
}

#[test]
fn slru_promotes_on_hits_and_demotes_from_full_segments() {
    // Two segments of two: the third hit entry demotes the first, which is evicted there.
    assert_eq!(outcome(Slru::new(2, 4), 4, "abcdabcefgbc"), "a b c d A B C e/d f/a g/e B C");
}

#[test]
fn sieve_moves_its_hand_not_its_entries() {
    assert_eq!(outcome(Sieve::new(), 3, "abcadeafghgij"), "a b c A d/b e/c A f/d g/e h/f G i/h j/g");
}

#[test]
fn s3_fifo_keeps_entries_hit_twice_or_reinserted_soon() {
    // The small queue has one of ten. a was hit twice and moves on, b once and is evicted; its ghost brings b to the main queue, where both
    // outlast the rest.
    let trace = "abcdefghijaabkblmnopqrstab";
    let expected = "a b c d e f g h i j A A B k/b b/c l/d m/e n/f o/g p/h q/i r/j s/k t/l A B";
    assert_eq!(outcome(S3Fifo::new(10), 10, trace), expected);
}

/// A simulation with keys `0..fill` cached.
fn filled<P: Eviction>(policy: P, fill: u32) -> Simulation<P> {
    let mut simulation = Simulation::new(policy, fill.into());
    (0..fill).for_each(|key| assert!(!request(&mut simulation, key)));
    simulation
}

fn request<P: Eviction>(simulation: &mut Simulation<P>, object: u32) -> bool {
    request_sized(simulation, object, 1)
}

fn request_sized<P: Eviction>(simulation: &mut Simulation<P>, object: u32, weight: u32) -> bool {
    simulation.access(
        &Access { object, weight, now_seconds: 0, is_removal: false, is_set: false },
        clairvoyant::NEVER,
    )
}

#[test]
fn tiny_lfu_keeps_popular_entries_through_a_scan() {
    let mut simulation = filled(TinyLfu::new(Refresh::every_hit()), 200);
    for _ in 0..3 {
        assert!((0..150).all(|key| request(&mut simulation, key)));
    }
    assert!((1000..2000).all(|key| !request(&mut simulation, key)));
    assert!((0..150).all(|key| request(&mut simulation, key)), "the scan evicted a popular entry");
}

#[test]
fn w_tiny_lfu_admits_candidate_only_if_seen_more_often_than_victim() {
    // The window has one entry, the main queue 99, all seen twice.
    let mut simulation = filled(WTinyLfu::new(100), 100);
    assert!((0..99).all(|key| request(&mut simulation, key)));
    assert!((1000..1200).all(|key| !request(&mut simulation, key)));
    assert!((0..99).all(|key| request(&mut simulation, key)), "an entry of the scan replaced another");
    // All were seen three times now. A new entry loses its first three comparisons, and wins the fourth.
    for (round, hits) in [(1, false), (2, false), (3, false), (4, false), (5, true)] {
        assert_eq!(request(&mut simulation, 500), hits, "round {round}");
        assert!(!request(&mut simulation, 2000 + round), "round {round}");
    }
}

#[test]
fn min_has_the_seven_misses_of_the_textbook_trace() {
    let trace = "abcdabeabcde";
    let next_uses = clairvoyant::next_uses(trace.bytes().map(u64::from));
    let (mut policy, next_use) = Clairvoyant::new();
    let outcome = outcome_observed(&mut policy, 3, trace, |number| {
        next_use.set(number as u64, next_uses[number]);
    });
    assert_eq!(outcome, "a b c d/c A B e/d A B c/b d/c E");
}

#[test]
fn object_larger_than_the_cache_is_not_cached_and_evicts_nothing() {
    let mut simulation = Simulation::new(Lru::exact(), 10);
    let mut request = |object, weight| request_sized(&mut simulation, object, weight);
    assert_eq!(
        [request(1, 4), request(2, 6), request(3, 11), request(1, 4), request(2, 6)],
        [false, false, false, true, true]
    );
    assert_eq!([request(3, 10), request(3, 10), request(1, 4)], [false, true, false]);
    assert_eq!(simulation.counts().weight_miss_ratio(), 1.0 - 20.0 / 55.0);
}

#[test]
fn new_size_on_a_hit_is_ignored_or_evicts_others() {
    let sizes = |size_on_hit| {
        let rules = Rules { size_on_hit, ..Rules::default() };
        let mut simulation = Simulation::new(Lru::exact(), 10).with_rules(rules);
        let mut request = |object, weight| request_sized(&mut simulation, object, weight);
        // 1 and 2 fit; 1 grows so that 2 does not; 1 outgrows the cache.
        [request(1, 4), request(2, 6), request(1, 5), request(2, 6), request(2, 11), request(2, 6)]
    };
    assert_eq!(sizes(SizeOnHit::Ignore), [false, false, true, true, true, true]);
    assert_eq!(sizes(SizeOnHit::Update), [false, false, true, false, true, false]);
}

#[test]
fn object_that_outgrows_the_cache_is_evicted_alone() {
    let rules = Rules { size_on_hit: SizeOnHit::Update, ..Rules::default() };
    let mut simulation = Simulation::new(Lru::exact(), 10).with_rules(rules);
    let mut request = |object, weight| request_sized(&mut simulation, object, weight);
    assert_eq!(
        [request(1, 4), request(2, 6), request(2, 11), request(1, 4)],
        [false, false, true, true],
        "1 stays"
    );
    assert_eq!(
        [request(2, 11), request(2, 6), request(1, 4)],
        [false, false, true],
        "2 comes in once it fits again"
    );
    assert_eq!(simulation.counts().hit_weight, 11 + 4 + 4, "a hit counts the requested bytes");
}

#[test]
fn removal_is_not_counted_as_a_request() {
    let mut simulation = filled(Lru::exact(), 3);
    simulation.run(&[Access { object: 1, weight: 1, now_seconds: 0, is_removal: true, is_set: false }], &[]);
    assert_eq!([0, 1, 2].map(|object| request(&mut simulation, object)), [true, false, true]);
    assert_eq!(simulation.counts().requests, 6);
}

#[test]
fn gdsf_evicts_lowest_value_per_byte_and_ages_by_evictions() {
    let mut simulation = Simulation::new(Gdsf::new(Cost::Equal), 10);
    let mut request = |object, weight| request_sized(&mut simulation, object, weight);
    // Value per byte: 1 has 1/2, 2 has 1/5 and then 2/5, so 3 evicts 2 and is inserted at 2/5 + 1/4.
    assert_eq!(
        [request(1, 2), request(2, 5), request(2, 5), request(3, 4), request(1, 2), request(3, 4)],
        [false, false, true, false, true, true]
    );
    // 1 has 2/5 + 2/2 and 3 has 2/5 + 2/4: 4 evicts 3 and, at 9/10 + 1/8, is then evicted for it.
    assert_eq!([request(4, 8), request(1, 2), request(3, 4), request(1, 2)], [false, true, false, true]);
}

/// The new entry itself has the lowest value, if it is inserted before others are evicted.
#[test]
fn entry_inserted_first_can_be_the_victim() {
    for (candidate_first, hits) in [(false, [false, false]), (true, [true, false])] {
        let rules = Rules { candidate_first, ..Rules::default() };
        let mut simulation = Simulation::new(Gdsf::new(Cost::Equal), 10).with_rules(rules);
        let mut request = |object, weight| request_sized(&mut simulation, object, weight);
        assert_eq!([request(1, 2), request(2, 9)], [false, false]);
        assert_eq!([request(1, 2), request(2, 9)], hits);
    }
}

/// 200 000 requests for 20 000 keys, low ones much more often, with occasional scans.
fn skewed_requests() -> Vec<Request> {
    let request = |number: u64| {
        let random = hash_of(number) % 20_000;
        let skewed = random * random / 20_000 * random / 20_000;
        let is_scan = number % 10_000 < 1500;
        Request {
            key: if is_scan { 100_000 + number } else { skewed },
            weight: 1,
            now_seconds: number as u32 / 5,
        }
    };
    (0..200_000).map(request).collect()
}

#[test]
fn pinned_run_is_unchanged_and_no_policy_beats_min() {
    let requests = skewed_requests();
    let min_hits = simulate::run_clairvoyant(1000, &requests).hits;
    let mut hits = vec![("min".to_owned(), min_hits)];
    for kind in Kind::ALL {
        let counts = simulate::run(build(&EvictionConfig::new(kind), 1000), 1000, &requests);
        assert!(counts.hits <= min_hits, "{kind} beats MIN");
        hits.push((kind.to_string(), counts.hits));
    }
    let pinned = [
        ("min", 86575),
        ("fifo", 36099),
        ("lru", 39094),
        ("exact-lru", 39301),
        ("lru2q", 51433),
        ("slru-4", 53946),
        ("tinylfu", 54317),
        ("wtinylfu", 55621),
        ("s3fifo", 55202),
        ("sieve", 51565),
        ("gdsf", 46531),
        ("lfuda", 46531),
        ("lfu", 51199),
        ("clock", 40567),
        ("arc", 52786),
        ("2q", 51729),
        ("lirs", 52464),
        ("random", 35163),
        ("lru-k", 51193),
        ("lecar", 39341),
        ("lhd", 39814),
        ("hyperbolic", 42303),
        ("qdlp", 54950),
        ("cacheus", 52258),
        ("merlin", 53367),
        ("s4fifo-s20-g300-k25-p1-r0", 50675),
    ];
    let hits: Vec<(&str, u64)> = hits.iter().map(|(name, hits)| (name.as_str(), *hits)).collect();
    assert_eq!(hits, pinned);
}

#[test]
fn eviction_terminates_under_constant_hits() {
    for kind in [Kind::Sieve, Kind::S3Fifo] {
        let mut policy = build(&EvictionConfig::new(kind), 100);
        let HitRule::Mark { marks, at_most } = policy.hit_rule() else {
            panic!("{kind} counts hits in marks")
        };
        (0..100)
            .for_each(|slot| policy.insert(Slot(slot), Entry { hash: hash_of(slot.into()), weight: 1 }, 0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    (0..100).for_each(|slot| marks.bump(Slot(slot), at_most));
                }
            });
            for number in 100..20_000 {
                let slot = policy.evict(0).unwrap();
                policy.insert(slot, Entry { hash: hash_of(number), weight: 1 }, 0);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(policy.len(), 100);
    }
}
