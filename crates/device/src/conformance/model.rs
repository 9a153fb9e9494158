//! Compares a long random run with the simplest model: a vector of versions.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::Subject;
use super::access::{buffer_of, read_request, write_request};
use super::pattern::{blocks, version};
use crate::{ErrorKind, Request};

const SEED: u64 = 0x000f_1a54;
const STEPS: u64 = 1500;
const MAX_BLOCKS: u64 = 1000;
const LONGEST: u64 = 40;

/// The expected contents of a block: its last version, or after a trim any earlier one too.
#[derive(Clone, Copy, Default)]
struct Expected {
    version: u64,
    trimmed: bool,
}

pub(super) fn matches_the_model(subject: &Subject) {
    let mut random = StdRng::seed_from_u64(SEED);
    let blocks = MAX_BLOCKS.min(subject.device.geometry().capacity_bytes / subject.block() as u64);
    let mut model = vec![Expected::default(); blocks as usize];
    write(subject, &mut model, 0, blocks, 1, true);
    for step in 2..STEPS {
        let first = random.random_range(0..blocks);
        let count = random.random_range(1..=LONGEST.min(blocks - first));
        let submit = random.random_bool(0.5);
        match random.random_range(0..10) {
            0..5 => write(subject, &mut model, first, count, step, submit),
            5..9 => read(subject, &model, first, count, submit),
            _ if random.random_bool(0.3) => run(subject, Request::Flush, submit),
            _ => trim(subject, &mut model, first, count, submit),
        }
    }
    for first in (0..blocks).step_by(LONGEST as usize) {
        read(subject, &model, first, LONGEST.min(blocks - first), true);
    }
}

fn write(subject: &Subject, model: &mut [Expected], first: u64, count: u64, step: u64, submit: bool) {
    let block = subject.block();
    let longest = u64::from(subject.device.geometry().max_io_bytes) / block as u64;
    for start in (first..first + count).step_by(longest as usize) {
        let count = longest.min(first + count - start);
        let data = blocks(block, start, count as usize * block, step);
        run(subject, write_request(start * block as u64, data.into()), submit);
    }
    model[first as usize..][..count as usize].fill(Expected { version: step, trimmed: false });
}

fn trim(subject: &Subject, model: &mut [Expected], first: u64, count: u64, submit: bool) {
    let block = subject.block() as u64;
    let request = Request::Trim { offset: first * block, len: count * block };
    let outcome = if submit { subject.submit(request) } else { subject.device.execute(request) };
    match outcome {
        Err(error) if error.kind() == ErrorKind::Unsupported => return,
        outcome => assert!(outcome.expect("a trim").is_empty()),
    }
    for expected in &mut model[first as usize..][..count as usize] {
        expected.trimmed = true;
    }
}

fn read(subject: &Subject, model: &[Expected], first: u64, count: u64, submit: bool) {
    let block = subject.block();
    let request = read_request(first * block as u64, count as usize * block);
    let outcome = if submit { subject.submit(request) } else { subject.device.execute(request) };
    for (number, bytes) in (first..).zip(buffer_of(outcome).chunks_exact(block)) {
        let expected = model[number as usize];
        let found = version(bytes, number);
        let right = found == expected.version || expected.trimmed && found < expected.version;
        assert!(right, "block {number} holds version {found}, not {} (seed {SEED:#x})", expected.version);
    }
}

fn run(subject: &Subject, request: Request, submit: bool) {
    let outcome = if submit { subject.submit(request) } else { subject.device.execute(request) };
    assert!(outcome.expect("a write or a flush").is_empty());
}
