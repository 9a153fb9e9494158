//! Devices whose requests fail, whose data is corrupt, that are full or worn out. Errors are counted, no value is
//! wrong, the cache continues, and every item that was offered to flash is accounted for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::sim::LatencyModel;
use device::wrap::{FaultDevice, Faults};
use device::{Completion, Device, ErrorKind, IoError, MemoryDevice, Outcome, Request, RequestKind};
use flashwright_cache::Stats;
use parking_lot::Mutex;

use crate::clients::{Plan, run};
use crate::ledger::Ledger;
use crate::session::{self, Session};
use crate::setup::{MIB, seeds};

pub const NO_FAULTS: Faults = Faults {
    failed_reads: 0.0,
    failed_writes: 0.0,
    failed_flushes: 0.0,
    flipped_reads: 0.0,
    flipped_writes: 0.0,
    stuck: 0.0,
};

/// Every item offered to flash has exactly one recorded outcome, and the engines accepted the number that the tier passed to them.
pub fn assert_accounts_balance(stats: &Stats, label: &str) {
    let flash = stats.flash.as_ref().expect("the cache has flash");
    let puts = &flash.puts;
    let rejected = puts.rejected_expired
        + puts.rejected_short_lived
        + puts.rejected_admission
        + puts.rejected_too_large
        + puts.rejected_worn_out
        + puts.rejected_failing;
    let ends = puts.stored + puts.clean + rejected + puts.overtaken;
    assert_eq!(puts.offered, ends, "{label}: {puts:?}");
    assert_eq!(flash.put_ends().iter().map(|(_, count)| count).sum::<u64>(), ends, "{label}: {puts:?}");
    let taken = flash.soc.map_or(0, |soc| soc.inserts) + flash.regions.map_or(0, |regions| regions.inserts);
    assert_eq!(puts.stored, taken, "{label}: {flash:?}");
    if let Some(regions) = &flash.regions {
        let left = regions.overwritten + regions.forgotten + regions.evictions + regions.items_lost;
        let came = regions.inserts + regions.items_restored;
        let unfit = regions.expired + regions.header_checksum_errors + regions.value_checksum_errors;
        let there = flash.regions.unwrap_or_default().items;
        assert!(came <= left + unfit + there && left + there <= came, "{label}: {there} items, {regions:?}");
    }
}

#[test]
fn every_item_offered_to_flash_is_accounted_for() {
    let mut overtaken = 0;
    for seed in seeds(3) {
        for plan in [Plan::crowded(seed), Plan::roomy(seed)] {
            let outcome = run(&plan);
            assert_accounts_balance(&outcome.stats, &format!("seed {seed}"));
            let (seen, inserts) = (&outcome.seen, &outcome.stats.inserts);
            assert_eq!(seen.inserts + seen.fetches, inserts.total(), "seed {seed}: {inserts:?}");
            assert!(inserts.rejected() >= seen.refused, "seed {seed}: {inserts:?}");
            overtaken += inserts.overtaken;
            let gets = outcome.stats.gets;
            assert!(gets.total() >= seen.gets + seen.loads, "seed {seed}: {gets:?}, {seen:?}");
        }
    }
    assert!(overtaken > 0, "loads were overtaken in all these runs");
}

#[test]
fn occasional_transfer_failures_cause_only_misses() {
    let faults = Faults { failed_reads: 0.05, failed_writes: 0.05, failed_flushes: 0.05, ..NO_FAULTS };
    for seed in seeds(4) {
        let outcome = run(&Plan { faults, ..Plan::crowded(seed) });
        let flash = outcome.stats.flash.as_ref().unwrap();
        let (soc, regions) = (flash.soc.unwrap(), flash.regions.unwrap());
        assert!(outcome.faults > 20 && outcome.seen.hits_flash > 100, "seed {seed}: {:?}", outcome.seen);
        assert!(soc.read_errors + regions.read_errors > 0, "seed {seed}: {flash:?}");
        assert!(soc.write_errors + regions.write_errors > 0, "seed {seed}: {flash:?}");
        assert_accounts_balance(&outcome.stats, &format!("seed {seed}"));
    }
}

#[test]
fn flipped_bits_are_detected_and_never_returned() {
    let faults = Faults { flipped_reads: 0.1, flipped_writes: 0.2, ..NO_FAULTS };
    for seed in seeds(4) {
        let outcome = run(&Plan { faults, ..Plan::crowded(seed) });
        let flash = outcome.stats.flash.as_ref().unwrap();
        let (soc, regions) = (flash.soc.unwrap(), flash.regions.unwrap());
        let in_regions = regions.header_checksum_errors + regions.value_checksum_errors;
        assert!(soc.checksum_errors > 5 && in_regions > 5, "seed {seed}: {flash:?}");
        assert!(outcome.seen.hits_flash > 100, "seed {seed}: {:?}", outcome.seen);
        assert_accounts_balance(&outcome.stats, &format!("seed {seed}"));
    }
}

/// All writes fail. No single region is at fault, so none is retired, and inserts do not wait for the device.
#[test]
fn device_that_refuses_writes_leaves_the_dram_cache_working() {
    for seed in seeds(2) {
        let faults = Faults { failed_writes: 1.0, ..NO_FAULTS };
        let outcome = run(&Plan {
            faults,
            device_bytes: MIB,
            requests_per_client: 2000,
            latency: LatencyModel { write_ns: 3_000_000, ..LatencyModel::default() },
            flash: |flash| {
                flash.regions.retire_after_failures = 1;
                flash.pending_bytes = 4 << 10;
            },
            ..Plan::crowded(seed)
        });
        let flash = outcome.stats.flash.as_ref().unwrap();
        assert!(flash.regions.unwrap().regions_retired == 0, "seed {seed}: {flash:?}");
        assert!(flash.puts.rejected_failing > 0, "seed {seed}: {:?}", flash.puts);
        assert!(!outcome.closed, "seed {seed}: a close whose writes fail must return an error");
        assert!(outcome.seen.hits > 1000, "seed {seed}: {:?}", outcome.seen);
        assert_accounts_balance(&outcome.stats, &format!("seed {seed}"));
    }
}

/// A sparse file on a full disk: blocks without data cannot be written.
struct FullDisk {
    inner: MemoryDevice,
    free_from_bytes: AtomicU64,
}

impl FullDisk {
    fn refuses(&self, request: &Request) -> bool {
        match request {
            Request::Write { offset, .. } => *offset >= self.free_from_bytes.load(Ordering::Relaxed),
            _ => false,
        }
    }
}

impl Device for FullDisk {
    device::forward_device!(inner: geometry, counters);

    fn submit(&self, request: Request, completion: Completion) {
        completion.complete(self.execute(request));
    }

    fn execute(&self, request: Request) -> Outcome {
        if self.refuses(&request) {
            assert_eq!(request.kind(), RequestKind::Write);
            return Err(IoError::new(ErrorKind::NoSpace, "the disk is full"));
        }
        self.inner.execute(request)
    }
}

#[test]
fn full_file_system_loses_only_items_beyond_its_end() {
    const KEYS: u64 = 500;
    for seed in seeds(2) {
        let disk = FullDisk {
            inner: MemoryDevice::new(4 * MIB),
            // Space up to the middle of the regions; the buckets, behind them, have none.
            free_from_bytes: AtomicU64::new(3 * MIB / 2),
        };
        let disk = Arc::new(disk);
        let cache = session::open(session::config(Arc::clone(&disk) as _));
        let mut session = Session::new(cache, Arc::new(Mutex::new(Ledger::new(KEYS))), KEYS, seed);
        let found = session.requests(4000);
        let stats = session.cache.stats();
        let flash = stats.flash.as_ref().unwrap();
        let (soc, regions) = (flash.soc.unwrap(), flash.regions.unwrap());
        assert!(soc.write_errors > 0 && regions.regions_lost > 0, "seed {seed}: {flash:?}");
        assert!(found > 500 && regions.hits > 100 && soc.lost_items > 0, "seed {seed}: {found}, {flash:?}");
        assert_accounts_balance(&stats, &format!("seed {seed}"));
        // Space becomes available: all regions are used again except those retired permanently.
        disk.free_from_bytes.store(u64::MAX, Ordering::Relaxed);
        session.requests(4000);
        assert!(session.cache.stats().flash.unwrap().soc.unwrap().hits > soc.hits + 100, "seed {seed}");
        assert_accounts_balance(&session.cache.stats(), &format!("seed {seed}"));
        session.cache.close().expect("there is room for the snapshot");
    }
}

/// Items lost to a failing device are lost permanently: none is found after a close and reopen.
#[test]
fn items_of_failed_writes_are_not_found_after_a_reopen() {
    const KEYS: u64 = 400;
    for seed in seeds(3) {
        let faults = Faults { failed_writes: 0.2, flipped_writes: 0.05, ..NO_FAULTS };
        let memory = Arc::new(MemoryDevice::new(4 * MIB));
        let faulty = Arc::new(FaultDevice::new(Arc::clone(&memory) as _, seed, NO_FAULTS));
        let ledger = Arc::new(Mutex::new(Ledger::new(KEYS)));
        for number in 0..4 {
            let cache = session::open(session::config(Arc::clone(&faulty) as _));
            let label = format!("seed {seed}, session {number}");
            let back = session::audit(&cache, &ledger, KEYS, &label).len();
            assert!(number == 0 || back > 50, "{label}: {back} found after reopen");
            faulty.set_faults(faults);
            let mut session = Session::new(cache, Arc::clone(&ledger), KEYS, seed * 10 + number);
            session.requests(1500);
            assert_accounts_balance(&session.cache.stats(), &label);
            faulty.set_faults(NO_FAULTS);
            session.cache.close().expect("the device works again");
        }
    }
}
