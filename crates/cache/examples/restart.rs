//! A closed cache reopens with its items, DRAM included; a cache that was not closed reopens empty.
//!
//! `cargo run --release -p flashwright-cache --example restart`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use flashwright_cache::device::FileDevice;
use flashwright_cache::device::file::OpenOptions;
use flashwright_cache::{Cache, InsertOptions};

const ITEMS: u32 = 20_000;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("flash");

    let cache = open(&path)?;
    for number in 0..ITEMS {
        cache.insert_blocking(&number.to_le_bytes(), &[number as u8; 3000], InsertOptions::default());
    }
    report("before the close", &cache);
    cache.close()?;

    // `Recovery::Reopen`, the default, recovers a cleanly closed cache and refuses a device with other content.
    let cache = open(&path)?;
    report("after a clean close", &cache);
    // Dropped without a close, as in a crash. The next open is empty, so no stale item can be found.
    drop(cache);

    let cache = open(&path)?;
    report("after a crash", &cache);
    Ok(cache.close()?)
}

fn open(path: &Path) -> Result<Cache, Box<dyn Error>> {
    let options = OpenOptions { size_bytes: Some(128 << 20), create: true, ..OpenOptions::default() };
    let flash = Arc::new(FileDevice::open(path, &options)?);
    Ok(Cache::builder().dram_bytes(8 << 20).max_item_bytes(64 << 10).flash(flash).open()?)
}

fn report(when: &str, cache: &Cache) {
    let recovered = cache.stats().flash.is_some_and(|flash| flash.recovered);
    let found = (0..ITEMS).filter(|number| {
        let item = cache.get_blocking(&number.to_le_bytes());
        item.is_some_and(|item| item.iter().all(|byte| *byte == *number as u8))
    });
    println!("{when}: {} of {ITEMS} items, recovered: {recovered}", found.count());
}
