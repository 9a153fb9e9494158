//! Bytes a second of filling and verifying values: `cargo bench -p flashwright-workload --bench payload`.
#![allow(clippy::print_stdout, reason = "a benchmark reports on standard output")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use flashwright_workload::payload::Payload;

fn main() {
    measure(&Payload::new(0));
    println!("half of the blocks repeat:");
    measure(&Payload::new(0).with_repeats(50));
}

/// Larger than all processor caches: values are written at scattered addresses, as in a cache.
const MEMORY_BYTES: usize = 512 << 20;

fn measure(payload: &Payload) {
    let mut memory = vec![1; MEMORY_BYTES];
    for length in [100, 1000, 16 << 10, 400 << 10] {
        let mut value = vec![0; length];
        let places = (MEMORY_BYTES / length) as u64;
        let rounds = ((1usize << 29) / (length + 200)) as u64;
        let fill = best(rounds, |round| payload.fill(black_box(&mut value), round, 1));
        let spread = best(rounds, |round| {
            let at = (round * 7919 % places) as usize * length;
            payload.fill(black_box(&mut memory[at..at + length]), round, 1);
        });
        payload.fill(&mut value, 5, 1);
        let verify = best(rounds, |_| {
            black_box(payload.verify(black_box(&value), 5)).expect("as written");
        });
        let header = best(rounds, |round| Payload::fill_header_only(black_box(&mut value), round, 1));
        let speed = |nanoseconds: f64| length as f64 / nanoseconds;
        println!(
            "{length:>7} B: fill {fill:8.1} ns ({:5.1} GB/s), all over memory {spread:8.1} ns ({:5.1} GB/s)   verify {verify:8.1} ns ({:5.1} GB/s)   header only {header:5.1} ns",
            speed(fill),
            speed(spread),
            speed(verify),
        );
    }
}

/// Nanoseconds per round, the best of five.
fn best(rounds: u64, mut work: impl FnMut(u64)) -> f64 {
    let mut time = || {
        let start = Instant::now();
        (0..rounds).for_each(&mut work);
        start.elapsed().as_nanos() as f64 / rounds as f64
    };
    (0..5).map(|_| time()).fold(f64::INFINITY, f64::min)
}
