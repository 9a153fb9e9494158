//! In which order do photo caches overwrite their blocks, and what does a drive make of it?
//!
//! The write amplification of BlockCache and RIPQ is decided by the order in which blocks die. This runs the policies
//! without bytes, tells the model drive `photo` which blocks are written, in order, and prints hit ratio and write
//! amplification for albums of several lengths. Photos are an eighth of their size, so that a block of 64 MiB (256 KiB
//! here) holds ninety of them and not eleven; of albums of 64 photos it then holds as many as in the studies.
//!
//!     cargo run --release -p flashwright-bench --example photo_blocks

#![allow(clippy::print_stdout, reason = "a command that prints a table")]

use cache::flash::region::{Caching, DryStore, OrderConfig, Packing, RegionConfig, RipqConfig};
use policy::simulate::{Access, Simulator};
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
    println!("{:>6} {:>22} {:>10} {:>10} {:>14}", "album", "cache", "hit ratio", "greedy", "cost-benefit");
    for album in ALBUMS {
        let accesses = accesses(f64::from(album));
        for (name, order) in orders() {
            let (hit_ratio, [greedy, cost_benefit]) = run(order, &accesses);
            println!("{album:>6} {name:>22} {hit_ratio:>10.4} {greedy:>10.3} {cost_benefit:>14.3}");
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
            Access { object, weight: access.size_bytes as u32, now_seconds: 0, is_removal: false }
        }));
    }
    accesses
}

/// Hit ratio, and write amplification under each collector, of the second half of the requests.
fn run(order: OrderConfig, accesses: &[Access]) -> (f64, [f64; 2]) {
    let card = Card::load("photo").and_then(|card| card.scaled(SCALE)).expect("a card of ours");
    let layout = card.shape(false).layout().expect("a sound shape");
    let capacity_bytes = card.space.usable_bytes / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES);
    let config =
        RegionConfig { region_bytes: BLOCK_BYTES, order, buffers: 20, ..RegionConfig::new(capacity_bytes) };
    let mut store = DryStore::new(&config, Packing::Entries).expect("it fits the drive");
    let mut drives =
        COLLECTORS.map(|victims| Ftl::new(layout.clone(), Upkeep { victims, ..Upkeep::default() }));
    let (warm, rest) = accesses.split_at(accesses.len() / 2);
    ask(&mut store, &mut drives, warm, card.space.page_bytes);
    let before = (store.counts(), drives.each_ref().map(|drive| drive.stats().clone()));
    ask(&mut store, &mut drives, rest, card.space.page_bytes);
    let counts = store.counts().since(&before.0);
    let dlwa = |drive: &Ftl, before: &Stats| {
        drive.stats().since(before).dlwa(card.space.page_bytes).expect("something was written")
    };
    let dlwas = [dlwa(&drives[0], &before.1[0]), dlwa(&drives[1], &before.1[1])];
    (counts.hits as f64 / counts.requests as f64, dlwas)
}

fn ask(store: &mut DryStore, drives: &mut [Ftl; 2], accesses: &[Access], page_bytes: u32) {
    let pages = BLOCK_BYTES / page_bytes;
    store.take_written();
    for some in accesses.chunks(1024) {
        store.run(some, &[]);
        for region in store.take_written() {
            for drive in &mut *drives {
                drive.write(LogicalPage(region.0 * pages), pages, Placement::DEFAULT, &mut Untimed);
            }
        }
    }
}
