//! DRAM in front of a file: items that fall out of DRAM are found on flash.
//!
//! `cargo run --release -p flashwright-cache --example hybrid_file`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;

use flashwright_cache::device::file::OpenOptions;
use flashwright_cache::device::timer::{SystemTimer, Timer};
use flashwright_cache::device::{Clock, FileDevice};
use flashwright_cache::{Cache, InsertOptions};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // A file without a name, gone with the process. `FileDevice::open` takes a path: a file, or a block device.
    let size = OpenOptions { size_bytes: Some(256 << 20), ..OpenOptions::default() };
    let flash = Arc::new(FileDevice::create_temporary(std::env::temp_dir(), &size)?);
    println!("256 MiB of flash, accessed through {:?}", flash.engine());
    let cache = Cache::builder().dram_bytes(16 << 20).max_item_bytes(64 << 10).flash(flash).open()?;

    let forever = InsertOptions::default();
    for number in 0..50_000_u32 {
        // Small items go to buckets, larger ones to regions.
        let bytes = if number % 5 == 0 { 5000 } else { 300 };
        cache.insert_blocking(&number.to_le_bytes(), &vec![number as u8; bytes], forever);
    }
    // The newest first: they are in DRAM still.
    let found =
        (0..50_000_u32).rev().filter(|number| cache.get_blocking(&number.to_le_bytes()).is_some()).count();
    println!("{found} of 50000 items (60 MB) found with 16 MiB of DRAM");

    cache.remove(&5_u32.to_le_bytes());
    println!("removed item found: {}", cache.get_blocking(&5_u32.to_le_bytes()).is_some());

    let second = InsertOptions { ttl_seconds: Some(1), ..forever };
    cache.insert_blocking(b"session", b"alice", second);
    println!("session before expiry: {}", cache.get_blocking(b"session").is_some());
    let timer = SystemTimer::default();
    timer.wait_until(timer.monotonic_ns() + 2_000_000_000);
    println!("session after 2 s: {}", cache.get_blocking(b"session").is_some());

    let stats = cache.stats();
    let flash = stats.flash.ok_or("this cache has flash")?;
    println!(
        "hits in DRAM {}, on flash {}, misses {}",
        stats.gets.hits_dram, stats.gets.hits_flash, stats.gets.misses
    );
    println!("written to the file: {} MiB", flash.device.written_bytes >> 20);
    if let Some(ratio) = flash.write_amplification() {
        println!("write amplification of the cache: {ratio:.2}");
    }
    Ok(cache.close()?)
}
