//! Completion times computed by hand on a drive with round numbers, and the effect of collection on reads.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use flashwright_ssd::run::{Arrival, Counted, Length, Load, Order, Pattern, Served, run_timed};
use flashwright_ssd::{Card, Drive, Isolation, LogicalPage, Placement, Shape, Upkeep};

/// One channel, two dies, chunks of two pages. Reads 100, programs 1000, erases 5000, suspension 10, commands 1; 4096 bytes
/// take 4 on the channel and 2 on the link. All in microseconds.
fn card() -> Card {
    let mut card = Card::load("test").unwrap();
    (card.nand.channels, card.nand.dies, card.nand.planes, card.nand.pages_at_once) = (1, 2, 1, 2);
    card.nand.page_bytes = 4096;
    card.nand.block_bytes = 4096 * 4;
    (card.nand.read_ns, card.nand.program_ns, card.nand.erase_ns) = (100_000, 1_000_000, 5_000_000);
    card.nand.suspend_ns = 10_000;
    card.nand.channel_bytes_per_second = 1_024_000_000;
    card.controller.command_ns = 1_000;
    card.controller.host_bytes_per_second = 2_048_000_000;
    card.controller.write_buffer_bytes = 4 * 4096;
    card
}

fn shape() -> Shape {
    Shape {
        block_bytes: 4096,
        page_bytes: 4096,
        unit_pages: 8,
        units: 16,
        reserve_units: 0,
        logical_pages: 96,
        groups: 1,
        isolation: Isolation::CONVENTIONAL,
    }
}

fn drive(card: &Card) -> Drive {
    Drive::new(card, &shape(), Upkeep::default()).unwrap()
}

/// Writes `count` pages from `page` on; returns the completion time in microseconds.
fn write(drive: &mut Drive, now_us: u64, page: u32, count: u32) -> u64 {
    drive.write(now_us * 1000, LogicalPage(page), count, Placement::DEFAULT) / 1000
}

fn read(drive: &mut Drive, now_us: u64, page: u32) -> u64 {
    drive.read(now_us * 1000, LogicalPage(page), 1) / 1000
}

#[test]
fn buffered_write_is_acknowledged_and_read_from_the_buffer() {
    let mut drive = drive(&card());
    assert_eq!(write(&mut drive, 0, 0, 1), 3, "a command and the link");
    assert_eq!(read(&mut drive, 10, 0), 13, "its chunk waits for a second page: a command and the link");
    assert_eq!(write(&mut drive, 20, 1, 1), 23);
    assert_eq!(read(&mut drive, 30, 0), 33, "its chunk is being programmed and still in the buffer");
    // In microseconds: the chunk is transferred by 23 + 8 and programmed by 1031. The read then takes 1 for the command, 100 for
    // sensing, 4 for the channel and 2 for the link.
    assert_eq!(read(&mut drive, 2000, 0), 2107);
    assert_eq!(read(&mut drive, 3000, 50), 3003, "an unwritten page takes no time on the flash");
}

#[test]
fn read_suspends_a_program_or_waits_for_it() {
    for (suspend_us, expected) in
        [(10, 2000 + 1 + 10 + 100 + 4 + 2), (0, 2000 + 1 + 4 + 8 + 1000 + 100 + 4 + 2)]
    {
        let mut card = card();
        card.nand.suspend_ns = suspend_us * 1000;
        let mut drive = drive(&card);
        write(&mut drive, 0, 0, 4); // a chunk on each die
        write(&mut drive, 2000, 4, 2); // another on the first die
        assert_eq!(read(&mut drive, 2000, 0), expected, "suspension takes {suspend_us}");
    }
}

#[test]
fn reads_of_one_die_queue_and_reads_of_two_dies_overlap() {
    let mut drive = drive(&card());
    write(&mut drive, 0, 0, 4);
    assert_eq!(read(&mut drive, 5000, 0), 5107);
    assert_eq!(read(&mut drive, 5000, 1), 5207, "pages 0 and 1 are a chunk on the first die");
    assert_eq!(read(&mut drive, 5000, 2), 5107, "and page 2 is on the second");
}

/// Catches a regression: such a page is sensed and programmed in the time of one flash page.
#[test]
fn page_larger_than_one_die_operation_takes_several_operations() {
    let mut card = card();
    card.nand.pages_at_once = 1;
    let shape = Shape { page_bytes: 16_384, ..shape() };
    let mut drive = Drive::new(&card, &shape, Upkeep::default()).unwrap();
    assert_eq!(write(&mut drive, 0, 0, 2), 17, "a command and the link");
    // A chunk of 32 KiB; a die with one plane programs 4 KiB per millisecond.
    assert_eq!(drive.flush(20_000) / 1000, 17 + 32 + 8 * 1000);
    assert_eq!(read(&mut drive, 10_000, 0), 10_000 + 1 + 4 * 100 + 16 + 8);
    card.nand.planes = 4;
    let mut drive = Drive::new(&card, &shape, Upkeep::default()).unwrap();
    write(&mut drive, 0, 0, 2);
    assert_eq!(drive.flush(20_000) / 1000, 17 + 32 + 2 * 1000, "four planes work together");
    assert_eq!(read(&mut drive, 10_000, 0), 10_000 + 1 + 100 + 16 + 8);
}

#[test]
fn write_to_a_full_buffer_waits_for_a_program() {
    let mut drive = drive(&card());
    // The buffer holds four pages. The two chunks are transferred one after the other, each to another die, and the
    // first is programmed at 9 + 8 + 1000.
    let first = write(&mut drive, 0, 0, 4);
    assert_eq!(first, 9, "a command, and four pages over the link");
    let second = write(&mut drive, 10, 4, 1);
    assert_eq!(second, 9 + 8 + 1000, "the first chunk must leave the buffer");
    // Sustained rate: two dies program two pages each per millisecond.
    let mut now_us = second;
    for page in 5..85 {
        now_us = write(&mut drive, now_us, page, 1);
    }
    let pages_per_ms = 80.0 / ((now_us - second) as f64 / 1000.0);
    assert!((3.5..=4.0).contains(&pages_per_ms), "{pages_per_ms} pages a millisecond");
}

/// Catches a regression: the first write to a full buffer waits for a chunk, and the following ones use the space of
/// that chunk before it is free. Of 256 writes in flight on a card with chunks of 48 pages, most take 8 us, and one in
/// fifty 38 ms.
#[test]
fn writes_that_need_the_space_of_one_chunk_all_wait_for_its_program() {
    let mut card = card();
    card.nand.pages_at_once = 4;
    let mut drive = drive(&card);
    assert_eq!(write(&mut drive, 0, 0, 4), 9, "the buffer is full");
    // The chunk is transferred by 9 + 16, and programmed at most 4000 later.
    let waits: Vec<u64> = (4..8).map(|page| write(&mut drive, 10, page, 1)).collect();
    assert!(waits[0] > 1000, "{waits:?}");
    assert_eq!(waits, [waits[0]; 4], "all four arrive together and need the space of the same chunk");
    let later: Vec<u64> = (8..12).map(|page| write(&mut drive, 11, page, 1)).collect();
    assert!(later[0] > waits[0], "the next chunk: {later:?}");
    assert_eq!(write(&mut drive, 100_000, 12, 1), 100_003, "the buffer is empty");
}

#[test]
fn flush_waits_for_programs_in_progress_and_for_a_partial_chunk() {
    let mut drive = drive(&card());
    write(&mut drive, 0, 0, 2);
    assert_eq!(drive.flush(10_000) / 1000, 5 + 8 + 1000);
    assert_eq!(drive.flush(5_000_000) / 1000, 5001, "nothing is left to wait for");
    write(&mut drive, 6000, 2, 1);
    assert_eq!(drive.flush(7_000_000) / 1000, 7001 + 8 + 1000);
}

/// Catches a regression: waiting writes reserve the channels for the time of their transfer, and reads that arrived
/// earlier wait for them.
#[test]
fn read_does_not_wait_for_writes_blocked_by_a_full_buffer() {
    let mut drive = drive(&card());
    for page in 0..8 {
        write(&mut drive, 0, page, 1);
    }
    let begin_us = 1_000_000;
    let waited: Vec<u64> = (0..200).map(|number| write(&mut drive, begin_us, 8 + number % 40, 1)).collect();
    let last_us = waited[199] - begin_us;
    assert!(last_us > 20_000, "{last_us} us");
    let read_us = read(&mut drive, begin_us, 0) - begin_us;
    assert!(read_us < 1000, "{read_us} us, where the last write takes {last_us}");
}

/// Catches a regression: the second flush completes before the data of both writes is on flash.
#[test]
fn concurrent_flush_completes_no_earlier_than_the_first() {
    let mut drive = drive(&card());
    write(&mut drive, 0, 0, 1);
    let first = drive.flush(10_000_000);
    assert_eq!(first / 1000, 10_001 + 8 + 1000);
    assert!(drive.flush(10_001_000) >= first);
}

/// Catches a regression: each flush programs the same incomplete chunk, although nothing was written since the last
/// one.
#[test]
fn repeated_flush_does_not_program_an_unchanged_chunk_again() {
    let mut drive = drive(&card());
    write(&mut drive, 0, 0, 1);
    assert_eq!(drive.flush(10_000_000) / 1000, 10_001 + 8 + 1000);
    assert_eq!(drive.flush(20_000_000) / 1000, 20_001, "the chunk is already programmed");
    write(&mut drive, 30_000, 1, 1);
    assert_eq!(
        drive.flush(40_000_000) / 1000,
        40_001,
        "the last page completed the chunk, which is programmed by now"
    );
    write(&mut drive, 50_000, 2, 1);
    assert_eq!(drive.flush(60_000_000) / 1000, 60_001 + 8 + 1000, "the write begins another chunk");
}

/// Catches a regression: a flush programs incomplete chunks of collection too. These need no flush, because the pages
/// being moved are still readable at their old location.
#[test]
fn flush_does_not_wait_for_a_chunk_of_collection() {
    let mut drive = drive(&card());
    let mut now_us = 0;
    for number in 0..2000_u32 {
        // Each page once, then pairs of neighbours: the host writes whole chunks, but collection moves odd numbers of
        // pages.
        let first = if number < 48 { number * 2 } else { number.wrapping_mul(2_654_435_761) / 977 % 95 };
        write(&mut drive, now_us, first, 2);
        now_us += 1_000_000;
        assert_eq!(drive.flush(now_us * 1000) / 1000, now_us + 1, "after {number} writes");
    }
    assert!(drive.ftl().stats().dlwa(4096) > Some(1.5), "pages were moved");
}

/// Read latencies of the test card at a quiet pace, sorted.
fn reads(pattern: &Pattern, placement: bool, suspend_ns: u64, seed: u64) -> Vec<u64> {
    let mut card = Card::load("test").unwrap();
    card.nand.suspend_ns = suspend_ns;
    let mut shape = card.shape(placement);
    (shape.units, shape.logical_pages) = (256, 256 * 64 * 100 / 117);
    let mut drive = Drive::new(&card, &shape, Upkeep::default()).unwrap();
    let mut reads = Vec::new();
    let load = Load { reads: 0.5, arrival: Arrival::EveryNs(100_000) };
    let length = Length { warm_up: 3.0, measured: 1.0 };
    let record = |served, latency_ns| {
        if served == Served::Read {
            reads.push(latency_ns);
        }
    };
    run_timed(&mut drive, pattern, (length, load), seed, record, |_, _| true);
    drive.ftl().check().unwrap();
    reads.sort_unstable();
    reads
}

#[test]
fn placement_lowers_read_latency_behind_collection() {
    let pattern = Pattern::mixed(0.04, 0.6);
    let p99 = |latencies: &[u64]| latencies[latencies.len() * 99 / 100];
    let mean = |latencies: &[u64]| latencies.iter().sum::<u64>() / latencies.len() as u64;
    let (mixed, apart) = (reads(&pattern, false, 30_000, 1), reads(&pattern, true, 30_000, 1));
    assert!(mean(&mixed) > mean(&apart) * 11 / 10, "{} and {} ns", mean(&mixed), mean(&apart));
    // Without suspension, a read can wait for all queued operations of collection.
    let (mixed, apart) = (reads(&pattern, false, 0, 1), reads(&pattern, true, 0, 1));
    assert!(p99(&mixed) > p99(&apart) * 3 / 2, "{} and {} ns", p99(&mixed), p99(&apart));
}

#[test]
fn same_seed_gives_the_same_latencies() {
    let pattern = Pattern::mixed(0.04, 0.6);
    assert_eq!(reads(&pattern, false, 30_000, 3), reads(&pattern, false, 30_000, 3));
    assert_ne!(reads(&pattern, false, 30_000, 3), reads(&pattern, false, 30_000, 4));
}

/// Catches a regression: without a warm-up, the pages and the time of the initial fill are counted.
#[test]
fn run_without_warm_up_does_not_measure_the_fill() {
    let mut drive = drive(&card());
    let load = Load { reads: 0.0, arrival: Arrival::EveryNs(1_000_000) };
    let length = Length { warm_up: 0.0, measured: 1.0 };
    let pattern = Pattern::one(Order::Ring);
    let (counted, took) = run_timed(&mut drive, &pattern, (length, load), 1, |_, _| (), |_, _| true);
    assert_eq!(counted, Counted::All);
    assert_eq!(drive.ftl().stats().host_pages, 96, "a capacity");
    assert_eq!(took.arrivals_ns, 96_000_000, "96 requests, a millisecond apart");
}

/// Catches a regression: the arrival rate is reported as the drive's throughput, although the backlog grows.
#[test]
fn overloaded_drive_finishes_later_than_its_last_arrival() {
    let span = |gap_ns| {
        let mut drive = drive(&card());
        let load = Load { reads: 0.0, arrival: Arrival::EveryNs(gap_ns) };
        let length = Length { warm_up: 1.0, measured: 20.0 };
        run_timed(&mut drive, &Pattern::one(Order::Ring), (length, load), 1, |_, _| (), |_, _| true).1
    };
    // Two dies program two pages per millisecond each, and also erase.
    let (slow, fast) = (span(1_000_000), span(100_000));
    assert_eq!((slow.arrivals_ns, fast.arrivals_ns), (1_920_000_000, 192_000_000));
    assert!(slow.completions_ns.abs_diff(slow.arrivals_ns) < slow.arrivals_ns / 50, "{slow:?}");
    assert!(fast.completions_ns > 2 * fast.arrivals_ns, "{fast:?}");
}

#[test]
fn stopped_run_reports_the_counted_part() {
    let ended = |warm_up, looks| {
        let mut drive = drive(&card());
        let load = Load { reads: 0.9, arrival: Arrival::QueueDepth(4) };
        let length = Length { warm_up, measured: 1e6 };
        let mut left = looks;
        run_timed(
            &mut drive,
            &Pattern::one(Order::Ring),
            (length, load),
            1,
            |_, _| (),
            |_, _| {
                left -= 1;
                left > 0
            },
        )
        .0
    };
    assert_eq!((ended(1e6, 1), ended(1.0, 1)), (Counted::Nothing, Counted::Part));
}
