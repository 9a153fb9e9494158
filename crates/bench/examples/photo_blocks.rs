//! Write amplification of the photo studies' caches by photos per block and album length. The engine's region order, run
//! without data, determines which blocks are written in which order on the model drive `photo`. The output has hit ratio, write
//! amplification, the median number of block writes between a write of a block and its overwrite, and the share of blocks
//! within 20 % of that median, which is 1 if blocks are overwritten in the order of writing. The first line is for blocks
//! overwritten at random. A block of 64 MiB is 256 KiB here, 1/8 of that of the studies; photos are 1/8 as large too, so a
//! block holds as many.
//!
//!     cargo run --release -p flashwright-bench --example photo_blocks

#![allow(clippy::print_stdout, reason = "a command that prints a table")]

use cache::config::regions::{Caching, OrderConfig, RegionConfig, RipqConfig};
use cache::internals::region::{DryStore, Packing};
use flashwright_bench::study::photo_workload;
use policy::simulate::{Access, Simulator};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use ssd::{Card, Ftl, LogicalPage, Placement, Stats, Untimed, Upkeep, VictimPolicy};
use workload::generate::cdn::{Cdn, CdnConfig, Variant};
use workload::trace::Accesses;

const SCALE: u32 = 256;
const BLOCK_BYTES: u32 = (64 << 20) / SCALE;
const STUDIED_BLOCK_BYTES: u32 = 2 << 20;
const STUDIED_PHOTOS: u32 = 80;
/// Photos per block: an eighth of the studies' number, and that number.
const PHOTOS: [u32; 2] = [STUDIED_PHOTOS / 8, STUDIED_PHOTOS];
const ALBUMS: [f64; 3] = [1.5, 8.0, 64.0];
const COLLECTORS: [VictimPolicy; 2] = [VictimPolicy::Greedy, VictimPolicy::CostBenefit];

fn main() {
    println!(
        "{:>6} {:>6} {:>22} {:>10} {:>10} {:>14} {:>12} {:>9}",
        "photos", "album", "cache", "hit ratio", "greedy", "cost-benefit", "median life", "in order"
    );
    let print = |photos: &str, album: &str, name: &str, run: &Run| {
        let Run { hit_ratio, dlwa: [greedy, cost_benefit], median_life, in_order } = run;
        let hit_ratio = hit_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.4}"));
        println!(
            "{photos:>6} {album:>6} {name:>22} {hit_ratio:>10} {greedy:>10.3} {cost_benefit:>14.3} {median_life:>12} {in_order:>9.3}"
        );
    };
    print("-", "-", "overwritten at random", &at_random());
    for photos in PHOTOS {
        for album in ALBUMS {
            let accesses = accesses(photos, album);
            for (name, order) in orders() {
                print(&photos.to_string(), &album.to_string(), name, &run(order, &accesses));
            }
        }
    }
}

fn orders() -> [(&'static str, OrderConfig); 4] {
    let slru = Caching::Slru { segments: 4 };
    [
        ("McDipper", OrderConfig::Fifo),
        ("BlockCache", OrderConfig::SegmentedLru { segments: 4 }),
        ("RIPQ, as published", OrderConfig::Ripq(RipqConfig::plain(slru))),
        ("RIPQ, all refinements", OrderConfig::Ripq(RipqConfig::new(slru))),
    ]
}

/// The studies' workload with another album length, and with photo sizes such that a block of [`BLOCK_BYTES`] holds `photos`;
/// objects are numbered.
fn accesses(photos: u32, album_objects: f64) -> Vec<Access> {
    let studied = photo_workload();
    let share = f64::from(photos) / f64::from(STUDIED_PHOTOS);
    let larger = f64::from(BLOCK_BYTES) / f64::from(STUDIED_BLOCK_BYTES) / share;
    let sized = |variant: &Variant| Variant { median_bytes: variant.median_bytes * larger, ..*variant };
    let config = CdnConfig {
        requests: (studied.requests as f64 * share) as u64,
        objects: (studied.objects as f64 * share) as u64,
        variants: studied.variants.iter().map(sized).collect(),
        album_objects,
        ..studied
    };
    let mut workload = Cdn::new(&config, 1);
    let mut numbers = std::collections::HashMap::new();
    let (mut accesses, mut batch) = (Vec::with_capacity(config.requests as usize), Vec::new());
    while workload.next_batch(&mut batch).expect("a generator cannot fail") {
        accesses.extend(batch.iter().map(|access| {
            let next = numbers.len() as u32;
            let object = *numbers.entry(access.key).or_insert(next);
            Access {
                object,
                weight: access.size_bytes as u32,
                now_seconds: 0,
                is_removal: false,
                is_set: false,
            }
        }));
    }
    accesses
}

/// Figures of the second half of a run.
struct Run {
    hit_ratio: Option<f64>,
    /// Write amplification with each collector.
    dlwa: [f64; 2],
    median_life: u64,
    in_order: f64,
}

fn run(order: OrderConfig, accesses: &[Access]) -> Run {
    let (mut drives, capacity_bytes) = Drives::new();
    let config =
        RegionConfig { region_bytes: BLOCK_BYTES, order, buffers: 20, ..RegionConfig::new(capacity_bytes) };
    let mut store = DryStore::new(&config, Packing::Entries).expect("it fits the drive");
    let (warm, rest) = accesses.split_at(accesses.len() / 2);
    let replay = |store: &mut DryStore, drives: &mut Drives, accesses: &[Access]| {
        store.take_written();
        for some in accesses.chunks(1024) {
            store.run(some, &[]);
            store.take_written().iter().for_each(|region| drives.write(region.0));
        }
    };
    replay(&mut store, &mut drives, warm);
    let before = store.counts();
    drives.mark();
    replay(&mut store, &mut drives, rest);
    let counts = store.counts().since(&before);
    drives.into_run(Some(counts.hits as f64 / counts.requests as f64))
}

/// Overwrites blocks at random: the warm-up and the measurement each write the capacity ten times.
fn at_random() -> Run {
    let (mut drives, capacity_bytes) = Drives::new();
    let blocks = (capacity_bytes / u64::from(BLOCK_BYTES)) as u32;
    let mut random = SmallRng::seed_from_u64(1);
    (0..blocks).for_each(|block| drives.write(block));
    (0..10 * blocks).for_each(|_| drives.write(random.random_range(0..blocks)));
    drives.mark();
    (0..10 * blocks).for_each(|_| drives.write(random.random_range(0..blocks)));
    drives.into_run(None)
}

/// A drive for each collector, with the same writes, and statistics of the block writes.
struct Drives {
    card: Card,
    drives: [Ftl; 2],
    before: [Stats; 2],
    /// Block writes so far.
    now: u64,
    written_at: Vec<Option<u64>>,
    lives: Vec<u64>,
}

impl Drives {
    /// Creates the drives and returns the capacity for caches.
    fn new() -> (Self, u64) {
        let card = Card::load("photo").and_then(|card| card.scaled(SCALE)).expect("a card of ours");
        let layout = card.shape(false).layout().expect("a sound shape");
        let drives =
            COLLECTORS.map(|victims| Ftl::new(layout.clone(), Upkeep { victims, ..Upkeep::default() }));
        let before = drives.each_ref().map(|drive| drive.stats().clone());
        let blocks = card.space.usable_bytes / u64::from(BLOCK_BYTES);
        let written_at = vec![None; blocks as usize];
        let all = Self { card, drives, before, now: 0, written_at, lives: Vec::new() };
        (all, blocks * u64::from(BLOCK_BYTES))
    }

    fn write(&mut self, block: u32) {
        let pages = BLOCK_BYTES / self.card.space.page_bytes;
        for drive in &mut self.drives {
            drive.write(LogicalPage(block * pages), pages, Placement::DEFAULT, &mut Untimed);
        }
        let earlier = self.written_at[block as usize].replace(self.now);
        self.lives.extend(earlier.map(|then| self.now - then));
        self.now += 1;
    }

    /// Starts the measurement.
    fn mark(&mut self) {
        self.before = self.drives.each_ref().map(|drive| drive.stats().clone());
        self.lives.clear();
    }

    fn into_run(mut self, hit_ratio: Option<f64>) -> Run {
        let dlwa = |(drive, before): (&Ftl, &Stats)| {
            let since = drive.stats().since(before);
            since.dlwa(self.card.space.page_bytes).expect("something was written")
        };
        let dlwa = [0, 1].map(|at| dlwa((&self.drives[at], &self.before[at])));
        self.lives.sort_unstable();
        let median_life = self.lives[self.lives.len() / 2];
        let near = |life: &u64| life.abs_diff(median_life) * 5 <= median_life;
        let in_order = self.lives.iter().filter(|life| near(life)).count() as f64 / self.lives.len() as f64;
        Run { hit_ratio, dlwa, median_life, in_order }
    }
}
