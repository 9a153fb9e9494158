//! Nanoseconds per request: `cargo bench -p flashwright-workload --bench requests`.
#![allow(clippy::print_stdout, reason = "a benchmark reports on standard output")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use flashwright_workload::generate::{
    BucketRule, Distribution, GeneratorConfig, Mix, Online, PoolConfig, Popularity, PreparedAccesses, Table,
};
use flashwright_workload::{Request, Source, Workload};

fn main() {
    let zipf = Popularity::Buckets {
        counts: (0..20).map(|power| f64::from(1 << power)).collect(),
        weights: vec![1.0; 20],
        rule: BucketRule::Flattened,
    };
    let config = |popularity: Popularity, keys| GeneratorConfig {
        keys,
        pools: vec![PoolConfig {
            op_share: 1.0,
            key_share: 1.0,
            distribution: Distribution {
                key_bytes: Table::uniform(8, 64),
                value_bytes: Table::uniform(100, 1000),
                chain_items: None,
                chain_value_bytes: None,
                ttl_seconds: None,
                popularity,
                mix: Mix { get: 0.9, set: 0.1, ..Mix::default() },
            },
        }],
    };
    report("online, buckets, 1 M keys", &Online::new(&config(zipf.clone(), 1_000_000)).expect("valid"));
    report(
        "online, buckets, 14 T keys",
        &Online::new(&config(zipf.clone(), 14_463_466_000_000)).expect("valid"),
    );
    report("online, normal, 1 M keys", &Online::new(&config(Popularity::Normal, 1_000_000)).expect("valid"));
    let operations = 20_000_000;
    report(
        "workload, buckets, 1 M keys",
        &PreparedAccesses::new(&config(zipf, 1_000_000), operations).expect("valid"),
    );
    let normal = config(Popularity::Normal, 1_000_000);
    report("workload, normal, 1 M keys", &PreparedAccesses::new(&normal, operations).expect("valid"));
}

/// The best of many short runs, to exclude time in which other processes used the core.
fn report(name: &str, workload: &impl Workload) {
    const REQUESTS: u32 = 200_000;
    let mut source = workload.sources(1, 1).expect("generators open nothing").remove(0);
    let best = (0..60).map(|_| nanoseconds(source.as_mut(), REQUESTS)).fold(f64::INFINITY, f64::min);
    println!("{name:<32} {:6.1} ns/request", best / f64::from(REQUESTS));
}

fn nanoseconds(source: &mut dyn Source, requests: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..requests {
        black_box(source.next().as_ref().map(touch));
    }
    start.elapsed().as_nanos() as f64
}

fn touch(request: &Request<'_>) -> u64 {
    u64::from(request.key[request.key.len() - 1]) + request.value_bytes
}
