//! Many requests in flight together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::Subject;
use super::access::{buffer_of, read_request, write_request};
use super::pattern::{assert_version, blocks, version};
use crate::{Completion, Device, Request};

/// More than an io_uring's queues hold.
const MANY: u64 = 4000;

pub(super) fn many_requests_in_flight(subject: &Subject) {
    let (device, block) = (&subject.device, subject.block());
    let blocks_there = device.geometry().capacity_bytes / block as u64;
    let count = MANY.min(blocks_there);
    let writes: Vec<_> = (0..count)
        .map(|number| device.write(number * block as u64, blocks(block, number, block, 7)))
        .collect();
    for write in writes {
        subject.wait(write).expect("a write");
    }
    let reads: Vec<_> =
        (0..MANY).map(|turn| device.start(read_request(turn % count * block as u64, block))).collect();
    for (turn, read) in (0..).zip(reads) {
        assert_version(&buffer_of(subject.wait(read)), block, turn % count, 7);
    }
}

pub(super) fn dropped_requests_complete(subject: &Subject) {
    let (device, block) = (&subject.device, subject.block());
    for number in 0..64 {
        drop(device.start(read_request(number * block as u64, block)));
        drop(device.start(write_request(number * block as u64, blocks(block, number, block, 3).into())));
    }
    // Other requests run concurrently, with memory that the dropped ones must not change.
    for number in 64..128 {
        let offset = number * block as u64;
        subject.submit(write_request(offset, blocks(block, number, block, 4).into())).expect("a write");
        assert_version(&buffer_of(subject.submit(read_request(offset, block))), block, number, 4);
    }
    for number in 0..64 {
        let arrived = (0..100_000).any(|_| {
            std::thread::yield_now();
            let read = buffer_of(device.execute(read_request(number * block as u64, block)));
            // Before the write completes, a block of a raw device can hold anything.
            read[..8] == 3u64.to_le_bytes() && version(&read, number) == 3
        });
        assert!(arrived, "the write of block {number} never completed");
    }
}

pub(super) fn threads_do_not_interfere(subject: &Subject) {
    if subject.drive.is_some() {
        return; // A simulation has one thread.
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = &*subject.device;
            scope.spawn(move || one_thread(device, thread));
        }
    });
}

pub(super) fn requests_outlive_their_thread(subject: &Subject) {
    let (device, block) = (&subject.device, subject.block() as u64);
    let request = |number: u64| match number % 12 {
        0 => Request::Flush,
        1..6 => write_request(number * block, blocks(block as usize, number, block as usize, 5).into()),
        _ => read_request(number * block, block as usize),
    };
    let submit = || (0..192).map(|number| device.start(request(number))).collect::<Vec<_>>();
    let pending = std::thread::scope(|scope| scope.spawn(submit).join());
    for pending in pending.expect("a thread that only submits") {
        subject.wait(pending).expect("a request of a thread that has ended");
    }
}

/// Writes and reads every fourth block.
fn one_thread(device: &dyn Device, thread: u64) {
    let block = device.geometry().block_bytes as usize;
    for turn in 1..=40 {
        let numbers = (0..16).map(|number| 4 * number + thread);
        let writes = numbers
            .clone()
            .map(|number| device.write(number * block as u64, blocks(block, number, block, turn)));
        for write in writes.collect::<Vec<_>>() {
            write.wait().expect("a write");
        }
        for number in numbers {
            let read = device.execute(read_request(number * block as u64, block));
            assert_version(&buffer_of(read), block, number, turn);
        }
    }
}

/// Consumes the device, so it is the last check.
pub(super) fn completions_run_once_even_if_the_device_is_dropped(subject: Subject) {
    let Subject { device, drive } = subject;
    let block = u64::from(device.geometry().block_bytes);
    let completion_counts: Arc<[AtomicU32]> = (0..512).map(|_| AtomicU32::new(0)).collect();
    for index in 0..completion_counts.len() {
        let seen = Arc::clone(&completion_counts);
        let completion = Completion::new(move |_| {
            seen[index].fetch_add(1, SeqCst);
        });
        let offset = index as u64 % 100 * block;
        let request = match index % 3 {
            0 => Request::Flush,
            1 => write_request(offset, blocks(block as usize, 0, block as usize, 1).into()),
            _ => read_request(offset, block as usize),
        };
        device.submit(request, completion);
    }
    drop(device);
    if let Some(drive) = drive {
        drive();
    }
    for (index, times) in completion_counts.iter().enumerate() {
        assert_eq!(times.load(SeqCst), 1, "completions of request {index}");
    }
}
