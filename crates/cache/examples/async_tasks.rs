//! The async methods without a runtime and without threads of the cache: its background work is a few futures, which run concurrently with
//! the program.
//!
//! `cargo run -p flashwright-cache --example async_tasks`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;

use flashwright_cache::device::FileDevice;
use flashwright_cache::device::file::OpenOptions;
use flashwright_cache::device::timer::{SystemTimer, Timer};
use flashwright_cache::{Cache, InsertOptions, Layer};
use futures_util::future::{join_all, select};

const ITEMS: u32 = 5_000;

async fn fill(cache: &Cache) {
    for number in 0..ITEMS {
        // Waits asynchronously while flash is behind with its writes.
        cache.insert(&number.to_le_bytes(), &[number as u8; 4000], InsertOptions::default()).await;
    }
}

async fn read(cache: &Cache, name: &str, numbers: std::ops::Range<u32>) {
    let (mut dram, mut flash) = (0, 0);
    for number in numbers {
        match cache.get(&number.to_le_bytes()).await.map(|item| item.layer()) {
            Some(Layer::Dram) => dram += 1,
            Some(Layer::Flash) => flash += 1,
            None => {}
        }
    }
    println!("{name}: {dram} found in DRAM, {flash} on flash");
}

async fn program(cache: &Cache) {
    fill(cache).await;
    let half = ITEMS / 2;
    let both = [read(cache, "first half", 0..half), read(cache, "second half", half..ITEMS)];
    join_all(both).await;
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let size = OpenOptions { size_bytes: Some(64 << 20), ..OpenOptions::default() };
    let flash = Arc::new(FileDevice::create_temporary(std::env::temp_dir(), &size)?);
    let cache = Cache::builder().dram_bytes(8 << 20).max_item_bytes(64 << 10).flash(flash).open_stepped()?;

    let timer: Arc<dyn Timer> = Arc::new(SystemTimer::default());
    // Each is `Send`: a runtime may spawn them. Here one `block_on` runs everything on this thread.
    let background = join_all(cache.background_tasks(&timer));
    // Ends with the program, and drops the background work, which never ends by itself.
    flashwright_cache::block_on(select(pin!(program(&cache)), background));

    println!("{:?}", cache.stats().gets);
    Ok(flashwright_cache::block_on(cache.close_async())?)
}
