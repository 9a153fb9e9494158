//! Concurrent writers, readers and steps: a reader never finds a version older than the last one acknowledged before
//! its get.

use std::sync::atomic::{AtomicBool, AtomicI64};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

const KEYS: usize = 64;
const WRITES: usize = 3_000;

/// For each key, the last acknowledged version; negative if it was removed at that version.
struct Shared {
    soc: Soc,
    key_locks: Vec<Mutex<()>>,
    versions: Vec<AtomicI64>,
    done: AtomicBool,
}

impl Shared {
    fn write(&self, rng: &mut StdRng) {
        let n = rng.random_range(0..KEYS);
        let key = format!("key-{n}");
        block_on(self.soc.wait_ready(Waiting::Thread));
        let lock = self.key_locks[n].lock();
        let version = self.versions[n].load(Ordering::SeqCst).abs() + 1;
        if rng.random_range(0..4) == 0 {
            forget(&self.soc, &key);
            self.versions[n].store(-version, Ordering::SeqCst);
        } else if let Ok(staged) = self.soc.stage(&item(&key, &[format!("{version:0200}").as_bytes()], 0)) {
            self.soc.commit(staged);
            self.versions[n].store(version, Ordering::SeqCst);
        }
        drop(lock);
    }

    fn check(&self, rng: &mut StdRng, waiting: Waiting) {
        let n = rng.random_range(0..KEYS);
        let key = format!("key-{n}");
        let before = self.versions[n].load(Ordering::SeqCst);
        let found = block_on(self.soc.read(KeyHash::of(key.as_bytes()), key.as_bytes(), waiting, NOW));
        let Some(found) = found else { return };
        let found: i64 = std::str::from_utf8(&found).unwrap().parse().unwrap();
        assert!(found >= before.abs(), "{key}: version {found} after {before} was acknowledged");
        assert!(found != -before, "{key}: version {found} was removed");
    }
}

/// Catches a regression: a step writes a tombstone and subtracts its memory before `forget` has added it, so the
/// counter wraps, and a task that waits for memory is not woken.
#[test]
fn tombstone_memory_is_counted_before_it_is_freed() {
    const ROUNDS: usize = 150;
    // One shard, for whose lock all threads wait, so that the thread that releases it is often descheduled.
    let soc = soc_on(&memory(), SocConfig { pending_limit_bytes: 1 << 20, ..config(64) });
    let done = AtomicBool::new(false);
    let forget_all = |forgetter: usize| {
        for round in 0..ROUNDS {
            let keys: Vec<_> = (0..50).map(|number| format!("{forgetter}-{round}-{number}")).collect();
            keys.iter().for_each(|key| put(&soc, key, "value"));
            drain(&soc);
            for key in &keys {
                forget(&soc, key);
                assert!(soc.ready(), "{} bytes wait", soc.pending_bytes());
            }
        }
    };
    std::thread::scope(|scope| {
        let steppers = [(); 2].map(|()| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    block_on(soc.step(Waiting::Thread, NOW));
                }
            })
        });
        let forget_all = &forget_all;
        let forgetters: Vec<_> = (0..6).map(|forgetter| scope.spawn(move || forget_all(forgetter))).collect();
        let ended: Vec<_> = forgetters.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::SeqCst);
        let stepped = steppers.map(std::thread::ScopedJoinHandle::join);
        assert!(ended.iter().chain(&stepped).all(Result::is_ok));
    });
    drain(&soc);
    assert_eq!(soc.pending_bytes(), 0);
}

#[test]
fn no_reader_sees_an_overwritten_or_removed_version() {
    let config = SocConfig { pending_limit_bytes: 8_000, writes_per_step: 3, ..config(6) };
    let shared = Shared {
        soc: soc_on(&gate(), config),
        key_locks: (0..KEYS).map(|_| Mutex::new(())).collect(),
        versions: (0..KEYS).map(|_| AtomicI64::new(0)).collect(),
        done: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        for waiting in [Waiting::Thread, Waiting::Task] {
            let shared = &shared;
            scope.spawn(move || {
                while !shared.done.load(Ordering::SeqCst) {
                    block_on(shared.soc.step(waiting, NOW));
                }
            });
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(waiting as u64);
                while !shared.done.load(Ordering::SeqCst) {
                    shared.check(&mut rng, waiting);
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let shared = &shared;
                scope.spawn(move || {
                    let mut rng = StdRng::seed_from_u64(100 + writer);
                    (0..WRITES).for_each(|_| shared.write(&mut rng));
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        shared.done.store(true, Ordering::SeqCst);
    });
    drain(&shared.soc);
    let stats = shared.soc.stats();
    assert_eq!((stats.checksum_errors, stats.read_errors, stats.pending_bytes), (0, 0, 0));
    assert!(stats.bucket_reads > 0 && stats.bucket_writes > 0, "{stats:?}");
    for n in 0..KEYS {
        let (version, found) =
            (shared.versions[n].load(Ordering::SeqCst), get(&shared.soc, &format!("key-{n}")));
        let expected = (version > 0).then(|| format!("{version:0200}"));
        assert!(found == expected || (found.is_none() && stats.evictions > 0), "key-{n}");
    }
}
