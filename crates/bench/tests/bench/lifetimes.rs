//! TTLs in simulations, compared with results computed by hand and with a naive cache.

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
        series: None,
        first_size: false,
        ignore_size: false,
        ignore_ttl: false,
        sample: None,
        tenants: None,
        shard: None,
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

fn ttl_line(outcome: &Outcome) -> String {
    let text = simulate::report::text(outcome);
    text.lines().find(|line| line.contains("time to live")).unwrap_or_default().to_owned()
}

/// A row, whether it hits, and the reason.
const BY_HAND: [(&str, bool, &str); 12] = [
    ("5,a,GET,100,10", false, "inserted, expires at 15"),
    ("14,a,GET,100,0", true, "a hit does not extend the TTL"),
    ("15,a,GET,100,5", false, "expired; inserted again, expires at 20"),
    ("17,a,SET,100,10", true, "a set restarts the TTL, expires at 27"),
    ("21,a,GET,100,0", true, ""),
    ("27,a,GET,100,0", false, "inserted without a TTL"),
    ("1000,a,GET,100,0", true, ""),
    ("1001,a,SET,100,1", true, "expires at 1002"),
    ("1001.9,a,GET,100,0", true, ""),
    ("1001.9,a,DELETE,100,0", false, "not a request"),
    ("1002,a,GET,100,0", false, "inserted without a TTL"),
    ("9000,a,GET,100,0", true, ""),
];

#[test]
fn expired_object_is_a_miss() {
    let rows: String = BY_HAND.iter().map(|(row, ..)| format!("{row}\n")).collect();
    let text = format!("{HEAD}{rows}");
    let expected = BY_HAND.iter().filter(|(_, hits, _)| *hits).count() as u64;
    let names: Vec<&str> = POLICIES.iter().map(|about| about.name).collect();
    let all = plan(&names, 100 << 20);
    let outcome = run(&all, &text);
    for (row, named) in outcome.rows.iter().zip(&names) {
        assert_eq!((row.counts.requests, row.counts.hits), (11, expected), "{named}");
    }
    assert_eq!(
        ttl_line(&outcome),
        "4 requests have a time to live: a request for an expired object is a miss"
    );
    let trace = &simulate::report::json(&outcome)["trace"];
    assert_eq!((&trace["ttl_requests"], &trace["ttl_requests_honoured"]), (&4.into(), &4.into()));

    let ignoring = run(&Plan { ignore_ttl: true, ..all }, &text);
    // All but the first request and the one after the delete.
    assert!(hits(&ignoring).iter().all(|hits| *hits == 9), "{:?}", hits(&ignoring));
    assert!(ttl_line(&ignoring).starts_with("4 requests have a time to live, which was ignored"));
    let trace = &simulate::report::json(&ignoring)["trace"];
    assert_eq!((&trace["ttl_requests"], &trace["ttl_requests_honoured"]), (&4.into(), &0.into()));
}

#[test]
fn sample_and_tenants_have_same_expiry() {
    let rows: String = BY_HAND.iter().map(|(row, ..)| format!("{row},me\n")).collect();
    let text = format!("ts,key,op,size,ttl,tenant\n{rows}");
    let all = Plan { sizes: vec![Size::Footprint(1.0)], ..plan(&["lru", "clairvoyant"], 0) };
    let sample = Plan { sample: Some(0.5), ..all.clone() };
    // A sample of at most a hundred objects includes all.
    assert_eq!(hits(&run(&sample, &text)), hits(&run(&all, &text)));
    let by_tenant = Plan { tenants: Some(5), ..all.clone() };
    assert_eq!(hits(&run(&by_tenant, &text)), hits(&run(&all, &text)));
}

#[test]
fn trace_without_timestamps_expires_nothing_and_reports_it() {
    let text = "key,op,size,ttl\n".to_owned() + &"a,GET,10,1\n".repeat(5000);
    let outcome = run(&plan(&["lru"], 1000), &text);
    assert_eq!(hits(&outcome), [4999]);
    let said = "5,000 requests have a time to live, which cannot be honoured in a trace without times";
    assert!(ttl_line(&outcome).starts_with(said), "{}", ttl_line(&outcome));
}

/// Timestamps after rows without one must not be measured from 0.
#[test]
fn rows_before_first_timestamp_do_not_extend_span() {
    let row = |time: &str, ttl: u32| format!("{time},a,GET,10,{ttl}\n");
    let ahead = row("", 1).repeat(5000);
    let timed = row("1700000000", 3) + &row("1700000002", 0) + &row("1700000060", 0);
    let outcome = run(&plan(&["lru"], 1000), &format!("time,key,op,size,ttl\n{ahead}{timed}"));
    assert!((outcome.totals.span_seconds - 60.0).abs() < 1e-9, "{}", outcome.totals.span_seconds);
    // It was inserted without a timestamp, so it does not expire.
    assert_eq!(hits(&outcome), [5002]);
    let said =
        "5,001 requests have a time to live; that of the first 5,000 was ignored, since they have no time";
    assert_eq!(ttl_line(&outcome), said);
}

/// A next use after expiry does not count.
#[test]
fn clairvoyant_does_not_keep_object_that_expires_before_next_use() {
    // The cache holds two of the three objects. The last request for `a` is too large to be inserted.
    let rows = "0,a,GET,1,1\n0,b,GET,10,0\n0,c,GET,10,0\n5,a,GET,100,0\n6,b,GET,10,0\n7,c,GET,10,0\n";
    let both = plan(&["clairvoyant", "clairvoyant-size"], 20);
    assert_eq!(hits(&run(&both, &format!("{HEAD}{rows}"))), [2, 2]);
}

/// Random rows in which some objects expire, some are hit, and not all fit.
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

/// LRU as a list of key, size and expiry time.
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
fn lru_with_ttls_equals_naive_lru() {
    let rows = random_rows();
    let mut text = HEAD.to_owned();
    for (now, key, is_set, size, ttl) in &rows {
        let op = if *is_set { "SET" } else { "GET" };
        writeln!(text, "{now},{key},{op},{size},{ttl}").unwrap();
    }
    for size_bytes in [60, 150, 1_000_000] {
        let expected = naive_lru(&rows, size_bytes);
        assert_eq!(hits(&run(&plan(&["lru"], size_bytes), &text)), [expected], "{size_bytes}");
        let spooled = run(&plan(&["lru", "clairvoyant"], size_bytes), &text);
        assert_eq!(spooled.rows[0].counts.hits, expected);
        assert!(spooled.rows[1].counts.hits >= expected);
    }
}
