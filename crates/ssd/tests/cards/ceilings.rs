//! Cards with ceilings reach the rates of their data sheets within 15 %.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use flashwright_ssd::card::MIN_SCALED_PAGES;
use flashwright_ssd::{Card, Drive, Placement, Upkeep, run};

const LARGE_BYTES: u64 = 128 << 10;

/// The card's drive at its smallest scale, filled in order and then overwritten at random by `capacities` times its
/// capacity.
fn preconditioned(card: &Card, capacities: f64) -> (Drive, u64) {
    let divisor = card.space.unit_bytes / u64::from(card.space.page_bytes) / MIN_SCALED_PAGES;
    let small = card.scaled(divisor as u32).unwrap();
    let shape = small.shape(false);
    let bytes = u64::from(shape.logical_pages) * u64::from(shape.page_bytes);
    let mut drive = Drive::new(&small, &shape, Upkeep::default()).unwrap();
    assert!(run::precondition(&mut drive, capacities, 1, |_, _| true));
    (drive, bytes)
}

/// Requests per second at a queue depth; `submit` gets the time and the number of the request and returns its completion time. The first
/// half fills the write buffer and is not counted.
fn rate(requests: u64, depth: usize, mut submit: impl FnMut(u64, u64) -> u64) -> f64 {
    let (mut in_flight, mut now_ns, mut half_ns) = (BinaryHeap::new(), 0, 0);
    for number in 0..requests {
        if in_flight.len() == depth {
            let Reverse(end_ns) = in_flight.pop().unwrap();
            now_ns = now_ns.max(end_ns);
        }
        if number == requests / 2 {
            half_ns = now_ns;
        }
        in_flight.push(Reverse(submit(now_ns, number)));
    }
    (requests - requests / 2) as f64 * 1e9 / (now_ns - half_ns) as f64
}

/// A random block of `bytes` on a drive of `total`.
fn scattered(number: u64, bytes: u64, total: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (total / bytes) * bytes
}

/// A line for a rate that is more than 15 % off its ceiling.
fn deviation(card: &Card, what: &str, found: f64, ceiling: u64) -> Option<String> {
    let share = found / ceiling as f64;
    let is_near = (0.85..1.15).contains(&share);
    (!is_near).then(|| format!("{}: {what}: {found:.0} of {ceiling}", card.name))
}

#[test]
fn cards_reach_the_rates_of_their_data_sheets_within_15_percent() {
    let (mut count, mut deviations) = (0, Vec::new());
    for card in Card::built_in() {
        let Some(ceilings) = card.ceilings.clone() else { continue };
        count += 1;
        let page_bytes = u64::from(card.space.page_bytes);
        let (mut drive, total) = preconditioned(&card, 2.0);
        let writes = 4 * total / page_bytes;
        let random = rate(writes, 256, |now_ns, number| {
            let offset = scattered(number, page_bytes, total);
            drive.write_bytes(now_ns, offset, page_bytes, Placement::DEFAULT)
        });
        let reads = {
            let (mut drive, total) = preconditioned(&card, 2.0);
            rate(200_000, 512, |now_ns, number| {
                drive.read_bytes(now_ns, scattered(number, 4096, total), 4096)
            })
        };
        // Sequential rates are those of data that was written sequentially.
        let (mut drive, total) = preconditioned(&card, 0.0);
        let blocks = total / LARGE_BYTES;
        let large_reads = rate(20_000, 256, |now_ns, number| {
            drive.read_bytes(now_ns, number % blocks * LARGE_BYTES, LARGE_BYTES)
        });
        let (mut drive, _) = preconditioned(&card, 0.0);
        let large_writes = rate(8 * blocks, 32, |now_ns, number| {
            drive.write_bytes(now_ns, number % blocks * LARGE_BYTES, LARGE_BYTES, Placement::DEFAULT)
        });
        deviations.extend(deviation(&card, "random writes", random, ceilings.random_write_iops));
        deviations.extend(deviation(&card, "random reads", reads, ceilings.random_read_iops));
        let read_ceiling = ceilings.sequential_read_bytes_per_second;
        deviations.extend(deviation(
            &card,
            "sequential reads",
            large_reads * LARGE_BYTES as f64,
            read_ceiling,
        ));
        let write_ceiling = ceilings.sequential_write_bytes_per_second;
        deviations.extend(deviation(
            &card,
            "sequential writes",
            large_writes * LARGE_BYTES as f64,
            write_ceiling,
        ));
    }
    assert!(count >= 6, "{count} cards have ceilings");
    assert!(deviations.is_empty(), "{}", deviations.join("\n"));
}

#[test]
fn reads_of_a_data_center_card_scale_with_the_queue_depth_up_to_the_ceiling() {
    let card = Card::load("pm9d3a").unwrap();
    let at = |depth: usize| {
        let (mut drive, total) = preconditioned(&card, 2.0);
        rate(20_000, depth, |now_ns, number| drive.read_bytes(now_ns, scattered(number, 4096, total), 4096))
    };
    let rates = [1, 4, 16, 64, 128].map(at);
    assert!(rates.windows(2).all(|pair| pair[1] > 1.4 * pair[0]), "{rates:?}");
    // One read takes the command, sensing and the transfers: 55 to 70 µs.
    assert!((14_000.0..19_000.0).contains(&rates[0]), "{rates:?}");
}
