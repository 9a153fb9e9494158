//! Times to live in simulations, against what was worked out by hand and a cache that does nothing clever.

#![expect(clippy::unwrap_used, reason = "a test: what is missing fails it")]

use std::fmt::Write as _;

use flashwright_bench::run::stop::Stop;
use flashwright_bench::simulate::policies::POLICIES;
use flashwright_bench::simulate::{self, FlashSettings, Outcome, Plan, Settings, Size, Warmup};
use workload::trace::{OpenOptions, open};

const HEAD: &str = "ts,key,op,size,ttl\n";

fn plan(policies: &[&str], size_bytes: u64) -> Plan {
    Plan {
        policies: policies.iter().map(|name| name.parse().unwrap()).collect(),
        sizes: vec![Size::Bytes(size_bytes)],
        settings: Settings::default(),
        flash: FlashSettings::default(),
        warmup: Warmup::Accesses(0),
        first_size: false,
        ignore_size: false,
        ignore_ttl: false,
        sample: None,
        tenants: None,
        threads: 2,
    }
}

fn run(plan: &Plan, text: &str) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    std::fs::write(&path, text).unwrap();
    let trace = open(&[path], None, &OpenOptions::default()).unwrap();
    simulate::run(plan, trace, &Stop::default(), |_, _| ()).unwrap()
}

fn hits(outcome: &Outcome) -> Vec<u64> {
    outcome.rows.iter().map(|row| row.counts.hits).collect()
}

fn told(outcome: &Outcome) -> String {
    let text = simulate::report::text(outcome);
    text.lines().find(|line| line.contains("time to live")).unwrap_or_default().to_owned()
}

/// A row, whether it hits, and why.
const BY_HAND: [(&str, bool, &str); 12] = [
    ("5,a,GET,100,10", false, "comes in, until 15"),
    ("14,a,GET,100,0", true, "and its time does not begin again"),
    ("15,a,GET,100,5", false, "it is over; comes in anew, until 20"),
    ("17,a,SET,100,10", true, "a set begins another, until 27"),
    ("21,a,GET,100,0", true, ""),
    ("27,a,GET,100,0", false, "and now lives for ever"),
    ("1000,a,GET,100,0", true, ""),
    ("1001,a,SET,100,1", true, "until 1002"),
    ("1001.9,a,GET,100,0", true, ""),
    ("1001.9,a,DELETE,100,0", false, "is no request"),
    ("1002,a,GET,100,0", false, "lives for ever, whatever was deleted"),
    ("9000,a,GET,100,0", true, ""),
];

/// They were counted, and every object lived for ever.
#[test]
fn what_has_expired_was_a_hit() {
    let rows: String = BY_HAND.iter().map(|(row, ..)| format!("{row}\n")).collect();
    let text = format!("{HEAD}{rows}");
    let expected = BY_HAND.iter().filter(|(_, hits, _)| *hits).count() as u64;
    let names: Vec<&str> = POLICIES.iter().map(|about| about.name).collect();
    let all = plan(&names, 100 << 20);
    let outcome = run(&all, &text);
    for (row, named) in outcome.rows.iter().zip(&names) {
        assert_eq!((row.counts.requests, row.counts.hits), (11, expected), "{named}");
    }
    assert_eq!(told(&outcome), "4 requests have a time to live: an object whose time is over is a miss");
    let trace = &simulate::report::json(&outcome)["trace"];
    assert_eq!((&trace["ttl_requests"], &trace["ttl_requests_honoured"]), (&4.into(), &4.into()));

    let ignoring = run(&Plan { ignore_ttl: true, ..all }, &text);
    // All but the first, and the one behind the delete.
    assert!(hits(&ignoring).iter().all(|hits| *hits == 9), "{:?}", hits(&ignoring));
    assert!(told(&ignoring).starts_with("4 requests have a time to live, which was ignored"));
    let trace = &simulate::report::json(&ignoring)["trace"];
    assert_eq!((&trace["ttl_requests"], &trace["ttl_requests_honoured"]), (&4.into(), &0.into()));
}

#[test]
fn a_sample_and_tenants_expire_as_all_do() {
    let rows: String = BY_HAND.iter().map(|(row, ..)| format!("{row},me\n")).collect();
    let text = format!("ts,key,op,size,ttl,tenant\n{rows}");
    let all = Plan { sizes: vec![Size::Footprint(1.0)], ..plan(&["lru", "clairvoyant"], 0) };
    let sample = Plan { sample: Some(0.5), ..all.clone() };
    // Of a hundred objects or fewer the sample is all.
    assert_eq!(hits(&run(&sample, &text)), hits(&run(&all, &text)));
    let by_tenant = Plan { tenants: Some(5), ..all.clone() };
    assert_eq!(hits(&run(&by_tenant, &text)), hits(&run(&all, &text)));
}

#[test]
fn without_a_time_nothing_expires_and_that_is_said() {
    let text = "key,op,size,ttl\n".to_owned() + &"a,GET,10,1\n".repeat(5000);
    let outcome = run(&plan(&["lru"], 1000), &text);
    assert_eq!(hits(&outcome), [4999]);
    let said = "5,000 requests have a time to live, which cannot be honoured in a trace without times";
    assert!(told(&outcome).starts_with(said), "{}", told(&outcome));
}

/// A time of this century among numbers of rows counted as its whole distance from the first row.
#[test]
fn rows_ahead_of_the_first_time_are_no_part_of_the_span() {
    let row = |time: &str, ttl: u32| format!("{time},a,GET,10,{ttl}\n");
    let ahead = row("", 1).repeat(5000);
    let timed = row("1700000000", 3) + &row("1700000002", 0) + &row("1700000060", 0);
    let outcome = run(&plan(&["lru"], 1000), &format!("time,key,op,size,ttl\n{ahead}{timed}"));
    assert!((outcome.totals.span_seconds - 60.0).abs() < 1e-9, "{}", outcome.totals.span_seconds);
    // It came in without a time, and lives for ever.
    assert_eq!(hits(&outcome), [5002]);
    let said =
        "5,001 requests have a time to live; that of the first 5,000 was ignored, since they have no time";
    assert_eq!(told(&outcome), said);
}

/// An object that will have expired is none that comes again, however soon it is asked for.
#[test]
fn the_clairvoyant_keeps_nothing_that_will_have_expired() {
    // There is room for two of three. The last row of `a` is too large to come in.
    let rows = "0,a,GET,1,1\n0,b,GET,10,0\n0,c,GET,10,0\n5,a,GET,100,0\n6,b,GET,10,0\n7,c,GET,10,0\n";
    let both = plan(&["clairvoyant", "clairvoyant-size"], 20);
    assert_eq!(hits(&run(&both, &format!("{HEAD}{rows}"))), [2, 2]);
}

/// Seldom enough asked for to expire, often enough to be hit, with room for some.
fn random_rows() -> Vec<(u64, u64, bool, u64, u32)> {
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut now = 0;
    let mut row = || {
        now += random(2);
        let key = random(40) * random(40) / 20;
        (now, key, random(8) == 0, key % 7 + 1, [0, 3, 20, 100][random(4) as usize])
    };
    (0..100_000).map(|_| row()).collect()
}

/// LRU in a list; key, size and end of each.
fn naive_lru(rows: &[(u64, u64, bool, u64, u32)], size_bytes: u64) -> u64 {
    let (mut held, mut hits) = (Vec::<(u64, u64, u64)>::new(), 0);
    for &(now, key, is_set, size, ttl) in rows {
        held.retain(|it| it.0 != key || it.2 > now);
        let new_end = if ttl == 0 { u64::MAX } else { now + u64::from(ttl) };
        let Some(place) = held.iter().position(|it| it.0 == key) else {
            held.push((key, size, new_end));
            while held.iter().map(|it| it.1).sum::<u64>() > size_bytes {
                held.remove(0);
            }
            continue;
        };
        hits += 1;
        let (_, _, end) = held.remove(place);
        held.push((key, size, if is_set { new_end } else { end }));
    }
    hits
}

#[test]
fn a_cache_that_does_nothing_clever_hits_as_often() {
    let rows = random_rows();
    let mut text = HEAD.to_owned();
    for (now, key, is_set, size, ttl) in &rows {
        let op = if *is_set { "SET" } else { "GET" };
        writeln!(text, "{now},{key},{op},{size},{ttl}").unwrap();
    }
    for size_bytes in [60, 150, 1_000_000] {
        let expected = naive_lru(&rows, size_bytes);
        assert_eq!(hits(&run(&plan(&["lru"], size_bytes), &text)), [expected], "{size_bytes}");
        let laid_down = run(&plan(&["lru", "clairvoyant"], size_bytes), &text);
        assert_eq!(laid_down.rows[0].counts.hits, expected);
        assert!(laid_down.rows[1].counts.hits >= expected);
    }
}
