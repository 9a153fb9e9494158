//! Policies against libCacheSim 0.3.5 (its Python wheel): hits on a generated trace with popular keys, a drifting working set and
//! scans, with equal and with unequal object sizes. The same trace was generated for the wheel, request by request.

use flashwright_policy::eviction::Kind;
use flashwright_policy::simulate::{Policy, Request, Settings, SimulatedAdmission, numbered};

/// SplitMix64.
fn mix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

const REQUESTS: u64 = 60_000;

fn key(request: u64) -> u64 {
    let draw = mix(request);
    let uniform = draw >> 8 & 0xFF_FFFF;
    match draw % 10 {
        0..6 => (uniform * uniform / (1 << 24)) * uniform / (1 << 24) * 3000 / (1 << 24),
        6..8 => 10_000 + request / 20 + uniform % 500,
        _ if request / 3000 % 4 == 3 => 100_000 + request,
        _ => uniform % 20_000 + 30_000,
    }
}

fn trace(sized: bool) -> Vec<Request> {
    let weight = |key: u64| if sized { 1 + (mix(key ^ 0xABCD) % 4000) as u32 } else { 1 };
    (0..REQUESTS).map(key).map(|key| Request { key, weight: weight(key), now_seconds: 0 }).collect()
}

/// Policy; hits with equal sizes in caches of 100, 1000 and 5000 objects; hits with sizes of 1 to 4000 bytes in caches of 200 kB, 2 MB
/// and 10 MB.
const HITS: &[(&str, [u64; 3], [u64; 3])] = &[
    ("exact-lru", [5601, 20070, 39026], [5564, 19980, 38979]),
    ("lfu", [8715, 19210, 38645], [8660, 19192, 38627]),
    ("clock", [5797, 20778, 39574], [5728, 20668, 39514]),
    ("arc", [9316, 23902, 40243], [9479, 24028, 39611]),
    ("2q", [9147, 22608, 39034], [9124, 22521, 39005]),
    ("lru-k", [8711, 19210, 38645], [8734, 19184, 38627]),
    ("lecar", [5637, 20127, 39629], [7512, 21210, 39469]),
    ("cacheus", [8760, 23044, 39278], [8029, 22509, 39674]),
    ("lhd", [7768, 20543, 39397], [7248, 24279, 39860]),
    ("qdlp", [9870, 23777, 40258], [9867, 23758, 40229]),
];

/// Policies that draw from all entries, in another order than libCacheSim's hash table. Columns as above.
const DRAWN_HITS: &[(&str, [u64; 3], [u64; 3])] = &[
    ("hyperbolic", [6003, 21317, 39254], [5940, 21283, 39245]),
    ("random", [4918, 17774, 35446], [4908, 17806, 35425]),
];

#[test]
fn hits_equal_those_of_libcachesim() {
    let traces = [false, true].map(|sized| numbered(&trace(sized)));
    let capacities = [[100, 1000, 5000], [200_000, 2_000_000, 10_000_000]];
    for &(name, equal, unequal) in HITS {
        let kind: Kind = name.parse().unwrap();
        for ((accesses, capacities), expected) in traces.iter().zip(capacities).zip([equal, unequal]) {
            let hits = capacities.map(|capacity| {
                let settings = Settings { seed: 1, ..Settings::default() };
                let mut simulator = Policy::Eviction(kind).simulator(capacity, &settings);
                simulator.run(accesses, &[]);
                simulator.counts().hits
            });
            assert_eq!(hits, expected, "{name}, capacities {capacities:?}");
        }
    }
}

#[test]
fn hits_of_drawing_policies_are_within_three_percent_of_libcachesim() {
    let traces = [false, true].map(|sized| numbered(&trace(sized)));
    let capacities = [[100, 1000, 5000], [200_000, 2_000_000, 10_000_000]];
    for &(name, equal, unequal) in DRAWN_HITS {
        let kind: Kind = name.parse().unwrap();
        for ((accesses, capacities), expected) in traces.iter().zip(capacities).zip([equal, unequal]) {
            for (capacity, expected) in capacities.into_iter().zip(expected) {
                let mut simulator = Policy::Eviction(kind).simulator(capacity, &Settings::default());
                simulator.run(accesses, &[]);
                let hits = simulator.counts().hits;
                assert!(
                    hits.abs_diff(expected) <= expected * 3 / 100,
                    "{name}, {capacity}: {hits}, not {expected}"
                );
            }
        }
    }
}

/// libCacheSim 0.3.5 also demotes a LIR entry when an HIR entry outside the stack is hit, which the paper does not. It refuses objects larger
/// than 1 % of the cache, so only equal sizes compare.
#[test]
fn lirs_hits_are_within_a_thousandth_of_libcachesim() {
    let accesses = numbered(&trace(false));
    for (capacity, expected) in [(100, 9439_u64), (1000, 23_875), (5000, 38_839)] {
        let mut simulator = Policy::Eviction(Kind::Lirs).simulator(capacity, &Settings::default());
        simulator.run(&accesses, &[]);
        let hits = simulator.counts().hits;
        assert!(hits.abs_diff(expected) <= expected / 1000, "capacity {capacity}: {hits}, not {expected}");
    }
}

/// An object of exactly a tenth of the cache evicts others, but is inserted only if it has a ghost. Expected are the
/// hits of the libCacheSim wheel on the same requests.
#[test]
fn s3_fifo_treats_objects_of_a_tenth_of_the_cache_like_libcachesim() {
    let request = |at: u64| {
        let draw = mix(at);
        let unit = (draw % 1000) as f64 / 1000.0;
        Request { key: (60.0 * unit) as u64, weight: 1 + (draw >> 32) as u32 % 12, now_seconds: 0 }
    };
    let trace: Vec<Request> = (0..5000).map(request).collect();
    let hits = [60, 80, 100, 110].map(|capacity| {
        let mut simulator = Policy::Eviction(Kind::S3Fifo).simulator(capacity, &Settings::default());
        simulator.run(&numbered(&trace), &[]);
        simulator.counts().hits
    });
    assert_eq!(hits, [1490, 1483, 1476, 1545]);
}

/// Hits in caches of the three capacities.
type Hits = [u64; 3];

/// Admission; policy; hits with equal sizes, `None` where the admission needs sizes; hits with sizes. Capacities as in `HITS`.
const ADMITTED_HITS: &[(SimulatedAdmission, &str, Option<Hits>, Hits)] = &[
    (SimulatedAdmission::RejectFirst, "lru", Some([6448, 22161, 36118]), [6371, 22075, 36103]),
    (SimulatedAdmission::RejectFirst, "s3fifo", Some([9918, 23023, 35788]), [9935, 22956, 35767]),
    (SimulatedAdmission::RejectFirst, "arc", Some([9271, 22979, 35933]), [9403, 22818, 35716]),
    (SimulatedAdmission::Probability(0.3), "lru", Some([6183, 20457, 32483]), [6094, 20233, 32416]),
    (SimulatedAdmission::Probability(0.3), "s3fifo", Some([9345, 20363, 31805]), [9518, 20311, 31853]),
    (SimulatedAdmission::Probability(0.3), "arc", Some([9319, 21738, 32385]), [9589, 20701, 32390]),
    (SimulatedAdmission::Below(1000), "lru", None, [5425, 9793, 9793]),
    (SimulatedAdmission::Below(1000), "s3fifo", None, [6032, 9793, 9793]),
    (SimulatedAdmission::Below(1000), "arc", None, [6248, 9793, 9793]),
    (SimulatedAdmission::AdaptSize(5000), "lru", None, [8279, 23326, 38602]),
    (SimulatedAdmission::AdaptSize(5000), "s3fifo", None, [11174, 22638, 38506]),
    (SimulatedAdmission::AdaptSize(5000), "arc", None, [11216, 22044, 38991]),
    (SimulatedAdmission::SizeProbability(0.001), "lru", None, [8450, 22087, 25350]),
    (SimulatedAdmission::SizeProbability(0.001), "s3fifo", None, [10163, 20877, 25350]),
    (SimulatedAdmission::SizeProbability(0.001), "arc", None, [10970, 21418, 25350]),
];

#[test]
fn hits_behind_an_admission_equal_those_of_libcachesim() {
    let traces = [false, true].map(|sized| numbered(&trace(sized)));
    let capacities = [[100, 1000, 5000], [200_000, 2_000_000, 10_000_000]];
    for &(admission, name, equal, unequal) in ADMITTED_HITS {
        let kind: Kind = name.parse().unwrap();
        for ((accesses, capacities), expected) in traces.iter().zip(capacities).zip([equal, Some(unequal)]) {
            let Some(expected) = expected else { continue };
            let hits = capacities.map(|capacity| {
                let settings = Settings { seed: 1, admission, ..Settings::default() };
                let mut simulator = Policy::Eviction(kind).simulator(capacity, &settings);
                simulator.run(accesses, &[]);
                simulator.counts().hits
            });
            assert_eq!(hits, expected, "{admission:?}, {name}, capacities {capacities:?}");
        }
    }
}

/// With S3-FIFO's settings, S4-FIFO is libCacheSim's S3-FIFO.
#[test]
fn s4_fifo_with_the_settings_of_s3_fifo_equals_s3_fifo() {
    for (accesses, capacities) in [(false, [100, 1000, 5000]), (true, [200_000, 2_000_000, 10_000_000])] {
        let accesses = numbered(&trace(accesses));
        for capacity in capacities {
            let hits = ["s3fifo", "s4fifo-s10-g90-k0-p2-r0"].map(|name| {
                let kind: Kind = name.parse().unwrap();
                let mut simulator = Policy::Eviction(kind).simulator(capacity, &Settings::default());
                simulator.run(&accesses, &[]);
                simulator.counts()
            });
            assert_eq!(hits[0], hits[1], "capacity {capacity}");
        }
    }
}

/// Expected are the hits of a line-by-line transcription of the authors' code for libCacheSim, which counts sightings exactly.
#[test]
fn merlin_hits_equal_those_of_its_artifact_with_exact_counts() {
    let expected = [
        (false, [(100, 9626), (1000, 23_727), (5000, 39_618)]),
        (true, [(200_000, 9633), (2_000_000, 23_685), (10_000_000, 39_577)]),
    ];
    for (sized, capacities) in expected {
        let accesses = numbered(&trace(sized));
        for (capacity, expected) in capacities {
            let mut simulator = Policy::Eviction(Kind::Merlin).simulator(capacity, &Settings::default());
            simulator.run(&accesses, &[]);
            assert_eq!(simulator.counts().hits, expected, "capacity {capacity}");
        }
    }
}
