//! Figures by tenant: each request counts for its tenant, and the sum equals the counts of the run.
use crate::made;
use crate::twin;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use crate::twin::{MapTarget, NoWatcher};
use flashwright_bench::config::cachebench::load_text;
use flashwright_bench::config::lower::lower;
use flashwright_bench::config::{Loaded, Override};
use flashwright_bench::report::{json, tenants, totals};
use flashwright_bench::run::counts::Counts;
use flashwright_bench::run::tenants::{Bytes, TenantCounts, Tenants};
use flashwright_bench::run::{Instance, InstanceOptions, InstanceReport, open, run_all};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

const CONFIG: &str = r#"{ "cache_config": { "cacheSizeMB": 64 }, "test_config": { "generator": "replay", "numOps": 1000000,
  "numThreads": 3, "enableLookaside": true, "traceFileName": "trace.csv", "timestampFactor": 1 } }"#;

/// A generated row.
struct Row {
    key: u64,
    op: &'static str,
    repeat: u64,
    size: u64,
    usecase: &'static str,
}

fn rows(count: u64) -> Vec<Row> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let row = |_| {
        let key = random.random_range(0..300_u64);
        let op = ["GET", "GET_LEASE", "GET", "SET", "DELETE"][random.random_range(0..5)];
        let usecase = ["web", "ads", "ads", "366387042", ""][random.random_range(0..5)];
        // Misses in production traces have size 0.
        let size = if random.random_range(0..10) == 0 { 0 } else { key * 7 };
        Row { key, op, repeat: random.random_range(1..4), size, usecase }
    };
    (0..count).map(row).collect()
}

fn run(rows: &[Row], changes: &[&str]) -> InstanceReport {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "key,op,size,op_count,usecase,sub_usecase\n".to_owned();
    for Row { key, op, repeat, size, usecase } in rows {
        let part = if *usecase == "web" { "7" } else { "" };
        writeln!(text, "k{key},{op},{size},{repeat},{usecase},{part}").unwrap();
    }
    std::fs::write(folder.path().join("trace.csv"), text).unwrap();
    let overrides: Vec<Override> = changes.iter().map(|change| change.parse().unwrap()).collect();
    let Ok(Loaded::Config(config)) = load_text(&folder.path().join("c.json"), CONFIG, &overrides) else {
        panic!("bad config")
    };
    let plan = lower(&config).unwrap().instances.remove(0);
    let open::OpenWorkload { workload, trace, .. } = open::workload(&plan.workload, false).unwrap();
    let options = InstanceOptions { trace, ..twin::options() };
    let target = MapTarget { capacity_items: 1000, ..MapTarget::default() };
    run_all(&[Arc::new(Instance::new(target, plan.run, workload, options))], None, &mut NoWatcher)
        .unwrap()
        .remove(0)
}

/// Counts by tenant of a cache that never evicts.
fn recount(rows: &[Row]) -> BTreeMap<&'static str, TenantCounts> {
    let (mut held, mut all) = (HashMap::new(), BTreeMap::<_, TenantCounts>::new());
    for row in rows {
        let name = if row.usecase == "web" { "web/7" } else { row.usecase };
        let it = all.entry(name).or_default();
        for _ in 0..row.repeat {
            it.ops += 1;
            let stores = match row.op {
                "DELETE" => {
                    it.deletes += 1;
                    held.remove(&row.key);
                    false
                }
                "SET" => true,
                _ => {
                    it.gets += 1;
                    let found: Option<&u64> = held.get(&row.key);
                    it.get_hits_dram += u64::from(found.is_some());
                    it.bytes.requested += found.unwrap_or(&row.size);
                    it.bytes.found += found.unwrap_or(&0);
                    found.is_none()
                }
            };
            if stores {
                it.sets += 1;
                it.bytes.stored += row.size;
                held.insert(row.key, row.size);
            }
        }
    }
    all
}

/// The totals in the form of a tenant's counts.
fn of(counts: &Counts, bytes: Bytes) -> TenantCounts {
    TenantCounts {
        ops: counts.ops,
        gets: counts.gets,
        get_hits_dram: counts.get_hits_dram,
        get_hits_flash: counts.get_hits_flash,
        sets: counts.sets,
        deletes: counts.deletes,
        bytes,
    }
}

#[test]
fn tenant_counts_equal_naive_count_on_any_threads() {
    let rows = rows(4000);
    let expected = recount(&rows);
    for threads in ["1", "3"] {
        let report = run(&rows, &[&format!("test_config.numThreads={threads}")]);
        let tenants = report.tenants.unwrap();
        let mut found: BTreeMap<&str, TenantCounts> =
            tenants.named.iter().map(|(name, it)| (&**name, *it)).collect();
        found.insert("", tenants.without_tenant);
        assert_eq!(found, expected);
        assert_eq!(tenants.sum(), of(&report.counts, tenants.sum().bytes));
        assert!(tenants.named.is_sorted_by_key(|(_, it)| std::cmp::Reverse(it.ops)));
    }
}

/// The counters are reset while requests are in flight; those of tenants must be reset at the same time.
#[test]
fn warm_up_is_excluded_from_tenant_counts() {
    let rows = rows(20_000);
    let changes =
        ["test_config.warmupOps=2000", "test_config.opRatePerSec=50000", "test_config.opRateBurstSize=1"];
    let report = run(&rows, &changes);
    assert!(report.warmup.unwrap().ended && report.warmup.unwrap().counts.ops >= 6000);
    let tenants = report.tenants.clone().unwrap();
    assert_eq!(tenants.sum(), of(&report.counts, tenants.sum().bytes));
    let with_warm_up = run(&rows, &[]).tenants.unwrap().sum();
    assert_eq!(with_warm_up.ops, report.ops_with_warmup());
    let bytes = tenants.sum().bytes;
    assert!(bytes.found < with_warm_up.bytes.found && bytes.stored < with_warm_up.bytes.stored);
}

#[test]
fn run_without_tenants_has_none_in_result() {
    let rows: Vec<Row> = rows(100).into_iter().map(|row| Row { usecase: "", ..row }).collect();
    let report = run(&rows, &[]);
    assert_eq!(report.tenants, None);
    assert!(json::render(&made::report(report)).pointer("/totals/tenants").unwrap().is_null());
}

fn counts(ops: u64) -> TenantCounts {
    TenantCounts { ops, gets: ops, get_hits_dram: ops / 2, ..TenantCounts::default() }
}

#[test]
fn totals_add_up_tenants_by_name() {
    let with = |named: &[(&str, u64)]| {
        let named = named.iter().map(|(name, ops)| ((*name).into(), counts(*ops))).collect();
        let tenants = Tenants { named, without_tenant: counts(1), not_distinguished: counts(2) };
        let all = Counts { ops: tenants.sum().ops, ..Counts::default() };
        InstanceReport { tenants: Some(tenants), counts: all, ..made::instance(1.0) }
    };
    let without = InstanceReport { counts: Counts { ops: 50, ..Counts::default() }, ..made::instance(1.0) };
    let sum = totals(&[without, with(&[("a", 10), ("b", 4)]), with(&[("b", 8), ("c", 8)])]);
    let tenants = sum.tenants.unwrap();
    let by_name: Vec<_> = tenants.named.iter().map(|(name, it)| (&**name, it.ops)).collect();
    assert_eq!(by_name, [("b", 12), ("a", 10), ("c", 8)]);
    assert_eq!((tenants.without_tenant.ops, tenants.not_distinguished.ops), (52, 4));
    assert_eq!(tenants.sum().ops, sum.counts.ops);
}

#[test]
fn result_lists_largest_tenants_and_sums_the_rest() {
    let named =
        (0..1500_u64).map(|place| (format!("t{place:04}").into(), counts(2 * (3000 - place)))).collect();
    let all = Tenants { named, without_tenant: counts(5), not_distinguished: counts(7) };
    let report = InstanceReport { tenants: Some(all.clone()), ..made::instance(1.0) };
    let result = tenants::to_json(&report);
    let largest = result["largest"].as_array().unwrap();
    assert_eq!((largest.len(), &largest[999]["tenant"]), (tenants::IN_FILE, &"t0999".into()));
    assert_eq!((&result["distinguished"], &result["others"]["distinguished"]), (&1500.into(), &500.into()));
    let ops = |value: &serde_json::Value| value["ops"].as_u64().unwrap();
    let listed: u64 = largest.iter().map(ops).sum();
    assert_eq!(listed + ops(&result["others"]) + ops(&result["without_tenant"]), ops(&result["all"]));
    assert_eq!(ops(&result["all"]), all.sum().ops);
    assert_eq!(largest[0]["hit_ratio"], 0.5);
    let text = tenants::to_text(&report);
    assert_eq!(text.lines().filter(|line| line.starts_with('t') && line.contains("50.00%")).count(), 20);
    assert!(text.contains("(1,480 or more others)") && text.contains("(no tenant)"), "{text}");
}
