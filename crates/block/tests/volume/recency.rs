//! The eviction order after a restart: hits with and without one.

use std::sync::Arc;

use device::timer::Timer;
use device::{Device, IoBuffer, MemoryDevice, Simulation};
use flashwright_block::sets::{Mode, Placement, SetPolicy, Tuning};
use flashwright_block::volume::superblock::{FORMAT_VERSION, OLDEST_FORMAT};
use flashwright_block::volume::{Volume, VolumeConfig};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const DISK_BYTES: u64 = 16 << 20;
const BLOCKS: u64 = DISK_BYTES / 4096;

/// How a run of the volume ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    /// A kill of the process.
    Kill,
}

/// Requests for blocks: a few frequent ones, and a scan between them. `None` as length is a
/// flush.
fn trace(seed: u64, requests: usize) -> Vec<(bool, u64, Option<usize>)> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut scan = 0;
    let request = |_| {
        let is_write = random.random_bool(0.3);
        if random.random_range(0..40) == 0 {
            return (true, 0, None);
        }
        let rank = (BLOCKS as f64).powf(random.random::<f64>()) as u64 - 1;
        let block = match random.random_range(0..10) {
            0..3 => {
                scan = (scan + 1) % BLOCKS;
                scan
            }
            _ => rank.wrapping_mul(2_654_435_761) % BLOCKS,
        };
        let sectors = if random.random_bool(0.2) { random.random_range(1..8) } else { 8 };
        (is_write, block * 4096, Some(sectors * 512))
    };
    (0..requests).map(request).collect()
}

struct Pair {
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
}

impl Pair {
    fn new(config: &VolumeConfig) -> Self {
        let pair = Self {
            flash: Arc::new(MemoryDevice::new(3 << 20)),
            disk: Arc::new(MemoryDevice::new(DISK_BYTES)),
        };
        pollster::block_on(Volume::create(&pair.flash, &pair.disk, config, 0xfeed << 64 | 5)).unwrap();
        pair
    }

    async fn open(&self, timer: Arc<dyn Timer>) -> Volume {
        Volume::open(Arc::clone(&self.flash), Arc::clone(&self.disk), timer).await.unwrap().0
    }
}

/// The hits of each request, with the volume ended and reopened before each of the requests in `ends`.
fn hits(config: &VolumeConfig, seed: u64, requests: usize, ends: &[(usize, End)]) -> Vec<u64> {
    let pair = Pair::new(config);
    let (trace, ends) = (trace(seed, requests), ends.to_vec());
    let simulation = Simulation::new(seed);
    let world = Arc::new(simulation.world());
    simulation.block_on(async move {
        let mut hits_of_rounds = Vec::new();
        let mut volume = pair.open(world.clone()).await;
        for (number, (is_write, offset, len)) in trace.into_iter().enumerate() {
            if let Some((_, end)) = ends.iter().find(|(at, _)| *at == number) {
                if *end == End::Close {
                    volume.close().await.unwrap();
                }
                drop(volume);
                volume = pair.open(world.clone()).await;
            }
            let before = volume.stats().counters;
            match len {
                None => volume.flush().await.unwrap(),
                Some(len) if is_write => {
                    volume.write(offset, IoBuffer::zeroed(len).into(), false).await.unwrap();
                }
                Some(len) => drop(volume.read(offset, len).await.unwrap()),
            }
            // Cleaning waits for the next flush of clients that flush often; a close flushes.
            world.sleep(2_000_000_000).await;
            // Runs queued for cleaning are lost in a close, so blocks near eviction are cleaned immediately.
            while volume.upkeep().await.unwrap() {}
            let after = volume.stats().counters;
            hits_of_rounds.push(after.read_hits + after.write_hits - before.read_hits - before.write_hits);
        }
        hits_of_rounds
    })
}

fn config(policy: SetPolicy, placement: Placement) -> VolumeConfig {
    let base = VolumeConfig::default();
    // The position of the idle hand is not stored.
    let tuning = Tuning { policy, idle_seconds: 0, ..base.tuning };
    VolumeConfig { ways: 64, placement, tuning, journal_bytes: Some(256 << 10), ..base }
}

const POLICIES: [SetPolicy; 5] = [
    SetPolicy::Fifo,
    SetPolicy::Lru,
    SetPolicy::Lru2q { hot_percent: 75, promote_hits: 2 },
    SetPolicy::Lru2q { hot_percent: 50, promote_hits: 1 },
    SetPolicy::Lru2q { hot_percent: 25, promote_hits: 5 },
];

const PLACEMENTS: [Placement; 3] = [
    Placement::Linear,
    Placement::Hashed { run_bytes: 32 << 10 },
    Placement::Permuted { run_bytes: 16 << 10 },
];

/// After ten restarts every request hits exactly as without them.
#[test]
fn restart_costs_no_hits() {
    let mut seed = 0;
    for policy in POLICIES {
        for placement in PLACEMENTS {
            let base = config(policy, placement);
            let mode = [Mode::WriteBack, Mode::WriteBack, Mode::WriteThrough][seed as usize / 2 % 3];
            let tuning = Tuning { mode, lazy_depth: seed as u32 % 2, ..base.tuning };
            let config = VolumeConfig { tuning, checksums: seed % 2 == 0, ..base };
            let without = hits(&config, seed, 4000, &[]);
            let closes: Vec<_> = (0..10).map(|close| (1000 + close * 231, End::Close)).collect();
            let with = hits(&config, seed, 4000, &closes);
            let differs = without.iter().zip(&with).position(|(without, with)| without != with);
            assert_eq!(differs, None, "seed {seed}: {policy:?}, {placement:?}, {mode:?}");
            let (sum, requests) = (without.iter().sum::<u64>(), without.len() as u64);
            assert!((requests / 5..requests * 9 / 10).contains(&sum), "{sum} of {requests} hit");
            seed += 1;
        }
    }
}

/// Format 1 records the order of each set, which is the complete policy state of FIFO and LRU.
#[test]
fn format_1_keeps_the_eviction_order() {
    for policy in [SetPolicy::Fifo, SetPolicy::Lru] {
        let config = VolumeConfig { format: OLDEST_FORMAT, ..config(policy, PLACEMENTS[2]) };
        let closes = [(1500, End::Close), (2500, End::Close)];
        assert_eq!(hits(&config, 9, 3500, &closes), hits(&config, 9, 3500, &[]), "{policy:?}");
    }
}

/// Checks that the tests above can fail: a lost order changes the hits.
#[test]
fn lost_recency_changes_the_hits() {
    let policy = POLICIES[2];
    let window = |format: u32, ends: &[(usize, End)]| -> u64 {
        let config = VolumeConfig { format, ..config(policy, PLACEMENTS[2]) };
        (0..4).map(|seed| hits(&config, 40 + seed, 12_000, ends)[10_000..].iter().sum::<u64>()).sum()
    };
    let restart = [(10_000, End::Close)];
    let none = window(FORMAT_VERSION, &[]);
    let (newest, oldest) = (window(FORMAT_VERSION, &restart), window(OLDEST_FORMAT, &restart));
    let killed = window(FORMAT_VERSION, &[(10_000, End::Kill)]);
    println!(
        "hits of 8000: {none} without a restart, {newest} with, {oldest} in format 1, {killed} after a kill"
    );
    assert_eq!(newest, none);
    assert!(oldest < none && oldest < killed, "{oldest} and {killed} of {none}");
}
