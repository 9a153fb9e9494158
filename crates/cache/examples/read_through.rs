//! A cache in front of a slow source: of many callers that miss the same key, one fetches and the others wait for it.
//!
//! `cargo run -p flashwright-cache --example read_through`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use flashwright_cache::device::timer::{SystemTimer, sleep};
use flashwright_cache::{Cache, Fetched, InsertOptions};

/// Stands for a database.
#[derive(Default)]
struct Source {
    timer: SystemTimer,
    reads: AtomicU64,
}

impl Source {
    async fn read(&self, key: &[u8]) -> Result<Vec<u8>, String> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        sleep(&self.timer, 50_000_000).await;
        match key {
            b"lost" => Err("the source has no such row".to_owned()),
            _ => Ok([b"row of ", key].concat()),
        }
    }
}

/// Serves one request, on any executor; a blocking thread can wait for it as well.
async fn serve<'a>(
    cache: &'a Cache,
    source: &Arc<Source>,
    key: &'static [u8],
) -> Result<Fetched<'a>, Arc<String>> {
    let source = Arc::clone(source);
    cache.get_or_insert_with(key, InsertOptions::default(), async move || source.read(key).await).await
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (cache, source) = (Cache::builder().dram_bytes(8 << 20).open()?, Arc::<Source>::default());
    let together = Barrier::new(16);
    let client = || {
        together.wait();
        let row = flashwright_cache::block_on(serve(&cache, &source, b"alice")).map(|row| row.to_vec());
        row == Ok(b"row of alice".to_vec())
    };
    let served = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..16).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap_or(false)).filter(|served| *served).count()
    });
    println!("{served} of 16 callers were served by {} read(s)", source.reads.load(Ordering::Relaxed));

    // All callers that waited for a failed fetch get its error. Errors are not cached: the next call fetches again.
    for _ in 0..2 {
        if let Err(error) = flashwright_cache::block_on(serve(&cache, &source, b"lost")) {
            println!("lost: {error}");
        }
    }
    println!("reads of the source: {}", source.reads.load(Ordering::Relaxed));
    Ok(cache.close()?)
}
