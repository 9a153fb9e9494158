//! One request at a time.

use std::ops::Range;
use std::sync::Arc;

use super::Subject;
use super::pattern::{assert_version, blocks};
use crate::{ErrorKind, IoBuffer, IoSlice, Outcome, Request};

pub(super) fn geometry_is_valid(subject: &Subject) {
    let geometry = subject.device.geometry();
    let block = geometry.block_bytes;
    assert!(block.is_power_of_two() && block >= 512, "block size {block}");
    assert!(geometry.capacity_bytes.is_multiple_of(u64::from(block)), "capacity in blocks");
    assert!(geometry.max_io_bytes >= block && geometry.max_io_bytes.is_multiple_of(block), "largest request");
    assert!(geometry.indirection_bytes >= block, "indirection unit");
    assert_eq!(geometry, subject.device.geometry(), "geometry is constant");
}

pub(super) fn invalid_requests_have_no_effect(subject: &Subject) {
    let (block, geometry) = (subject.block(), subject.device.geometry());
    let (end, wide) = (geometry.capacity_bytes, block as u64);
    write(subject, 0, 4 * block, 1);
    write(subject, end - 4 * wide, 4 * block, 1);

    let too_long = geometry.max_io_bytes as usize + block;
    let placed = [
        (1, block),
        (wide / 2, block),
        (0, block - 1),
        (0, block / 2),
        (end, block),
        (end - wide, 2 * block),
        (end + wide, block),
        (u64::MAX - wide + 1, block),
        (u64::MAX - wide + 1, 2 * block),
        (0, too_long),
    ];
    for (offset, len) in placed {
        refused(subject, || read_request(offset, len));
        refused(subject, || write_request(offset, IoBuffer::zeroed(len).into()));
        if len != too_long {
            refused(subject, || Request::Trim { offset, len: len as u64 });
        }
    }
    let crooked = || IoSlice::new(Arc::new(IoBuffer::zeroed(2 * block)), 8..8 + block);
    refused(subject, || write_request(0, crooked()));

    check(subject, 0, 4 * block, 1);
    check(subject, end - 4 * wide, 4 * block, 1);
}

fn refused(subject: &Subject, request: impl Fn() -> Request) {
    let what = format!("{:?}", request());
    for outcome in [subject.submit(request()), subject.device.execute(request())] {
        let error = outcome.expect_err(&what);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
    }
}

pub(super) fn empty_requests_succeed(subject: &Subject) {
    for offset in [0, subject.device.geometry().capacity_bytes] {
        let read = subject.submit(read_request(offset, 0)).expect("an empty read");
        assert_eq!(read.len(), 0);
        subject.submit(write_request(offset, IoBuffer::zeroed(0).into())).expect("an empty write");
        subject.submit(Request::Trim { offset, len: 0 }).expect("an empty trim");
    }
}

pub(super) fn first_and_last_bytes_at_every_size(subject: &Subject) {
    let (block, geometry) = (subject.block(), subject.device.geometry());
    let largest = (geometry.max_io_bytes as usize).min(geometry.capacity_bytes as usize);
    let mut sizes =
        vec![block, 2 * block, 3 * block, 7 * block, 64 << 10, (64 << 10) + block, 1 << 20, largest];
    sizes.retain(|&size| size <= largest && size.is_multiple_of(block));
    for (version, len) in (1..).zip(sizes) {
        let last = geometry.capacity_bytes - len as u64;
        write(subject, 0, len, 2 * version);
        check(subject, 0, len, 2 * version);
        write(subject, last, len, 2 * version + 1);
        check(subject, last, len, 2 * version + 1);
    }
}

pub(super) fn reads_see_completed_writes(subject: &Subject) {
    let block = subject.block();
    let device = &subject.device;
    for version in 1..=8 {
        let offset = version * 3 * block as u64;
        let data = || write_request(offset, blocks(block, offset / block as u64, 2 * block, version).into());
        let written = if version % 2 == 0 { subject.submit(data()) } else { device.execute(data()) };
        assert!(written.expect("a write").is_empty(), "a write returns no buffer");
        let submitted = subject.submit(read_request(offset, 2 * block));
        let executed = device.execute(read_request(offset, 2 * block));
        for read in [submitted, executed] {
            assert_version(&buffer_of(read), block, offset / block as u64, version);
        }
    }
}

pub(super) fn absorbed_writes_are_writes(subject: &Subject) {
    let block = subject.block();
    let device = &subject.device;
    let before = device.counters();
    for version in 1..=4 {
        let offset = version * 3 * block as u64;
        write(subject, offset, 4 * block, 2 * version);
        let data: IoSlice = blocks(block, offset / block as u64, 2 * block, 2 * version + 1).into();
        // A device without such memory writes nothing.
        let Some(absorbed) = device.absorb(offset, &data) else {
            return check(subject, offset, 4 * block, 2 * version);
        };
        absorbed.expect("an absorbed write");
        check(subject, offset, 2 * block, 2 * version + 1);
        check(subject, offset + 2 * block as u64, 2 * block, 2 * version);
        subject.submit(Request::Flush).expect("a flush");
        write(subject, offset, block, 2 * version + 2);
        check(subject, offset, block, 2 * version + 2);
    }
    let after = device.counters();
    assert_eq!(after.writes - before.writes, 12, "absorbed writes are counted");
    let past_the_end = device.absorb(device.geometry().capacity_bytes, &IoBuffer::zeroed(block).into());
    assert_eq!(past_the_end.and_then(Result::err).map(|error| error.kind()), Some(ErrorKind::Invalid));
}

pub(super) fn trimmed_ranges_are_usable(subject: &Subject) {
    let block = subject.block();
    let unit = 16 * block;
    write(subject, 0, 3 * unit, 1);
    let trimmed = subject.submit(Request::Trim { offset: unit as u64, len: unit as u64 });
    if trimmed.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported) {
        return;
    }
    trimmed.expect("a trim");
    let read = buffer_of(subject.submit(read_request(unit as u64, unit)));
    for (number, bytes) in (16..).zip(read.chunks_exact(block)) {
        assert!(
            super::pattern::version(bytes, number) <= 1,
            "a trimmed block holds zeros or its earlier contents"
        );
    }
    check(subject, 0, unit, 1);
    check(subject, 2 * unit as u64, unit, 1);
    write(subject, unit as u64, unit, 2);
    check(subject, unit as u64, unit, 2);
    // A trim may cover the whole device, regardless of the longest transfer.
    let all = Request::Trim { offset: 0, len: subject.device.geometry().capacity_bytes };
    subject.device.execute(all).expect("a trim of everything");
}

pub(super) fn holes_contain_no_data(subject: &Subject) {
    let (block, capacity) = (subject.block() as u64, subject.device.geometry().capacity_bytes);
    assert_holes(subject, &[]);
    let unit = capacity / 8 / block * block;
    let written = [unit..unit + block, 3 * unit..4 * unit, capacity - block..capacity];
    let most = u64::from(subject.device.geometry().max_io_bytes);
    for range in &written {
        for at in (range.start..range.end).step_by(most as usize) {
            write(subject, at, most.min(range.end - at) as usize, 1);
        }
    }
    assert_holes(subject, &written);
    let trimmed = 3 * unit + 7 * block..4 * unit;
    let trim = Request::Trim { offset: trimmed.start, len: trimmed.end - trimmed.start };
    let is_trimmed = subject.submit(trim).is_ok();
    if is_trimmed && subject.device.trims_to_zeros() {
        let read = buffer_of(subject.submit(read_request(trimmed.start, 9 * block as usize)));
        assert!(read.iter().all(|&byte| byte == 0), "a trim leaves zeros");
    }
    let left = [unit..unit + block, 3 * unit..trimmed.start, capacity - block..capacity];
    assert_holes(subject, &left);
}

/// Asserts that every hole is in whole blocks inside the queried range, reads as zeros, and overlaps no range of `written`.
fn assert_holes(subject: &Subject, written: &[Range<u64>]) {
    let (device, block) = (&subject.device, subject.block() as u64);
    let capacity = device.geometry().capacity_bytes;
    for range in [0..capacity, block..capacity - block, capacity / 2 / block * block..capacity] {
        let mut at = range.start;
        while let Some(hole) = device.hole_in(at..range.end) {
            assert!(
                hole.start >= at && hole.start < hole.end && hole.end <= range.end,
                "{hole:?} in {range:?}"
            );
            assert!(
                hole.start.is_multiple_of(block) && hole.end.is_multiple_of(block),
                "{hole:?}, in blocks"
            );
            let meets = |written: &&Range<u64>| written.start < hole.end && hole.start < written.end;
            assert_eq!(written.iter().find(meets), None, "{hole:?} was written");
            for offset in [hole.start, hole.end - block] {
                let read = buffer_of(subject.submit(read_request(offset, block as usize)));
                assert!(read.iter().all(|&byte| byte == 0), "{hole:?} reads as zeros");
            }
            at = hole.end;
        }
    }
}

pub(super) fn flushes_change_no_data(subject: &Subject) {
    let block = subject.block();
    write(subject, 0, block, 1);
    assert!(subject.submit(Request::Flush).expect("a flush").is_empty());
    subject.device.execute(Request::Flush).expect("a flush");
    check(subject, 0, block, 1);
}

pub(super) fn counters_add_up(subject: &Subject) {
    let block = subject.block();
    let before = subject.device.counters();
    write(subject, 0, 4 * block, 1);
    check(subject, 0, 2 * block, 1);
    subject.submit(Request::Flush).expect("a flush");
    refused(subject, || read_request(1, block));
    let after = subject.device.counters();
    assert_eq!(after.written_bytes - before.written_bytes, 4 * block as u64, "bytes written");
    assert_eq!(after.writes - before.writes, 1, "writes");
    assert_eq!(after.read_bytes - before.read_bytes, 4 * block as u64, "bytes read, twice");
    assert_eq!(after.reads - before.reads, 2, "reads");
    assert_eq!(after.flushes - before.flushes, 1, "flushes");
    assert_eq!(after.errors - before.errors, 2, "errors");
}

pub(super) fn read_request(offset: u64, len: usize) -> Request {
    Request::read(offset, len)
}

pub(super) fn write_request(offset: u64, data: IoSlice) -> Request {
    Request::write(offset, data)
}

pub(super) fn buffer_of(outcome: Outcome) -> IoBuffer {
    outcome.expect("a read")
}

fn write(subject: &Subject, offset: u64, len: usize, version: u64) {
    let block = subject.block();
    let data = blocks(block, offset / block as u64, len, version);
    subject.submit(write_request(offset, data.into())).expect("a write");
}

/// Checks that both ways of reading return `version`.
fn check(subject: &Subject, offset: u64, len: usize, version: u64) {
    let block = subject.block();
    let submitted = buffer_of(subject.submit(read_request(offset, len)));
    assert_version(&submitted, block, offset / block as u64, version);
    let executed = buffer_of(subject.device.execute(read_request(offset, len)));
    assert_version(&executed, block, offset / block as u64, version);
}
