//! In which order do photo caches overwrite their blocks, and what does a drive make of it?
//!
//! The write amplification of BlockCache and RIPQ is decided by the order in which blocks die. This runs the policies
//! without bytes, tells the model drive `photo` which blocks are written, in order, and prints hit ratio and write
//! amplification for albums of several lengths, and how many blocks are written between a block and its overwriting: the
//! median, and the share of blocks within a fifth of it, which is 1 where they die in the order they were written in. The
//! first lines are of blocks that die at random. Photos are an eighth of their size, so that a block of 64 MiB (256 KiB
//! here) holds ninety of them and not eleven; of albums of 64 photos it then holds as many as in the studies.
//!
//!     cargo run --release -p flashwright-bench --example photo_blocks

#![allow(clippy::print_stdout, reason = "a command that prints a table")]

use cache::flash::region::{Caching, DryStore, OrderConfig, Packing, RegionConfig, RipqConfig};
use policy::simulate::{Access, Simulator};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use ssd::{Card, Ftl, LogicalPage, Placement, Stats, Untimed, Upkeep, VictimPolicy};
use workload::generate::cdn::{Cdn, CdnConfig, Variant};
use workload::trace::Accesses;

const SCALE: u32 = 256;
const BLOCK_BYTES: u32 = (64 << 20) / SCALE;
const SMALLER: u64 = 8;
const REQUESTS: usize = 8_000_000;
const ALBUMS: [u32; 5] = [64, 16, 4, 2, 1];
const COLLECTORS: [VictimPolicy; 2] = [VictimPolicy::Greedy, VictimPolicy::CostBenefit];

fn main() {
    println!(
        "{:>6} {:>22} {:>10} {:>10} {:>14} {:>12} {:>9}",
        "album", "cache", "hit ratio", "greedy", "cost-benefit", "median life", "in order"
    );
    let print = |album: &str, name: &str, run: &Run| {
        let Run { hit_ratio, dlwa: [greedy, cost_benefit], median_life, in_order } = run;
        let hit_ratio = hit_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.4}"));
        println!(
            "{album:>6} {name:>22} {hit_ratio:>10} {greedy:>10.3} {cost_benefit:>14.3} {median_life:>12} {in_order:>9.3}"
        );
    };
    print("-", "overwritten at random", &at_random());
    for album in ALBUMS {
        let accesses = accesses(f64::from(album));
        for (name, order) in orders() {
            print(&album.to_string(), name, &run(order, &accesses));
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

/// The studies' workload with smaller photos, more of them, and albums of another length; its objects by small numbers.
fn accesses(album_objects: f64) -> Vec<Access> {
    let usual = CdnConfig::default();
    let smaller =
        |variant: &Variant| Variant { median_bytes: variant.median_bytes / SMALLER as f64, ..*variant };
    let config = CdnConfig {
        objects: usual.objects * 4 * SMALLER,
        requests: usual.requests * 4 * SMALLER,
        variants: usual.variants.iter().map(smaller).collect(),
        album_objects,
        ..usual
    };
    let mut workload = Cdn::new(&config, 1);
    let mut numbers = std::collections::HashMap::new();
    let (mut accesses, mut batch) = (Vec::with_capacity(REQUESTS), Vec::new());
    while accesses.len() < REQUESTS && workload.next_batch(&mut batch).expect("a generator cannot fail") {
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

/// What is printed, all of the second half of a run.
struct Run {
    hit_ratio: Option<f64>,
    /// Under each collector.
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
    let ask = |store: &mut DryStore, drives: &mut Drives, accesses: &[Access]| {
        store.take_written();
        for some in accesses.chunks(1024) {
            store.run(some, &[]);
            store.take_written().iter().for_each(|region| drives.write(region.0));
        }
    };
    ask(&mut store, &mut drives, warm);
    let before = store.counts();
    drives.mark();
    ask(&mut store, &mut drives, rest);
    let counts = store.counts().since(&before);
    drives.told(Some(counts.hits as f64 / counts.requests as f64))
}

/// Blocks overwritten at random, as often as fills the drives twenty times.
fn at_random() -> Run {
    let (mut drives, capacity_bytes) = Drives::new();
    let blocks = (capacity_bytes / u64::from(BLOCK_BYTES)) as u32;
    let mut random = SmallRng::seed_from_u64(1);
    (0..blocks).for_each(|block| drives.write(block));
    (0..10 * blocks).for_each(|_| drives.write(random.random_range(0..blocks)));
    drives.mark();
    (0..10 * blocks).for_each(|_| drives.write(random.random_range(0..blocks)));
    drives.told(None)
}

/// The same writes on a drive of each collector, and what is known of them.
struct Drives {
    card: Card,
    drives: [Ftl; 2],
    before: [Stats; 2],
    /// Blocks written so far.
    now: u64,
    written_at: Vec<Option<u64>>,
    lives: Vec<u64>,
}

impl Drives {
    /// And the bytes that caches have of them.
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

    /// What is told is counted from here on.
    fn mark(&mut self) {
        self.before = self.drives.each_ref().map(|drive| drive.stats().clone());
        self.lives.clear();
    }

    fn told(mut self, hit_ratio: Option<f64>) -> Run {
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
