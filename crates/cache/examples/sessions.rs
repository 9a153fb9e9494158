//! Sessions that stay alive while they are used, and a clear that ends all of them.
//!
//! `cargo run --release -p flashwright-cache --example sessions`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;

use flashwright_cache::device::{MemoryDevice, VirtualClock};
use flashwright_cache::{Cache, InsertOptions};

const SESSIONS: u32 = 20_000;
const HALF_AN_HOUR: u32 = 30 * 60;
const MINUTE_NS: u64 = 60_000_000_000;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // A manual clock, so that the example does not have to wait; the default is the machine's clock.
    let clock = Arc::new(VirtualClock::default());
    let flash = Arc::new(MemoryDevice::new(64 << 20));
    let cache = Cache::builder().dram_bytes(4 << 20).flash(flash).clock(Arc::clone(&clock) as _).open()?;
    let options = InsertOptions { ttl_seconds: Some(HALF_AN_HOUR), ..InsertOptions::default() };
    for number in 0..SESSIONS {
        cache.insert_blocking(&number.to_le_bytes(), &[number as u8; 600], options);
    }

    // Every tenth user returns twice an hour; by then most sessions are on flash.
    for _ in 0..4 {
        clock.advance_by(20 * MINUTE_NS);
        for number in (0..SESSIONS).step_by(10) {
            let Some(session) = cache.get_blocking(&number.to_le_bytes()) else { continue };
            assert!(session.iter().all(|byte| *byte == number as u8));
            cache.set_ttl_blocking(&number.to_le_bytes(), Some(HALF_AN_HOUR))?;
        }
    }
    report("after 80 minutes", &cache);

    // The secret that sessions are signed with has leaked.
    cache.clear();
    report("after the clear", &cache);
    Ok(cache.close()?)
}

fn report(when: &str, cache: &Cache) {
    let found = (0..SESSIONS).filter(|number| cache.get_blocking(&number.to_le_bytes()).is_some());
    println!("{when}: {} of {SESSIONS} sessions", found.count());
}
