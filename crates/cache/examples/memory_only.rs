//! A cache in DRAM only: insert, get, replace, remove, TTL, and eviction.
//!
//! `cargo run -p flashwright-cache --example memory_only`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;

use flashwright_cache::device::VirtualClock;
use flashwright_cache::policy::eviction::{EvictionConfig, Kind};
use flashwright_cache::{Cache, InsertOptions};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // The clock is a parameter, so this example does not have to wait. The default is the machine's clock.
    let clock = Arc::new(VirtualClock::default());
    let cache = Cache::builder()
        .dram_bytes(8 << 20)
        .max_item_bytes(4 << 10)
        .eviction(EvictionConfig::new(Kind::S3Fifo))
        .clock(Arc::clone(&clock) as _)
        .open()?;

    let forever = InsertOptions::default();
    cache.insert_blocking(b"planet", b"Mars", forever);
    cache.insert_blocking(b"planet", b"Venus", forever);
    let planet = cache.get_blocking(b"planet").ok_or("just inserted")?;
    println!("planet is {}", String::from_utf8_lossy(&planet));
    // A found item pins its bytes: they stay as they are even if the key is removed meanwhile.
    println!("removed: {}", cache.remove(b"planet"));
    println!("still {}, and found again: {}", String::from_utf8_lossy(&planet), cache.contains(b"planet"));
    drop(planet);

    let minute = InsertOptions { ttl_seconds: Some(60), ..forever };
    cache.insert_blocking(b"session", b"alice", minute);
    println!("session before expiry: {}", cache.get_blocking(b"session").is_some());
    clock.advance_by(61_000_000_000);
    println!("session after 61 s: {}", cache.get_blocking(b"session").is_some());

    for number in 0..20_000_u32 {
        cache.insert_blocking(&number.to_le_bytes(), &[7; 1000], forever);
    }
    let kept = (0..20_000_u32).filter(|number| cache.contains(&number.to_le_bytes())).count();
    let stats = cache.stats();
    println!("of 20000 items of 1000 bytes, {kept} fit in 8 MiB");
    println!("gets: {:?}", stats.gets);
    println!("inserts stored: {}, rejected: {}", stats.inserts.stored, stats.inserts.rejected());
    Ok(cache.close()?)
}
