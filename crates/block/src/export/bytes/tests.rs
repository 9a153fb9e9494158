//! Compares byte-granular access with a plain array, also on a device that completes operations late and out of order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use device::{Device, MemoryDevice};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::export::DeviceExport;

const SIZE_BYTES: u64 = 64 << 10;
const BLOCK_BYTES: u32 = 4096;

fn memory() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::with_block_bytes(SIZE_BYTES, BLOCK_BYTES))
}

fn start(export: &dyn Export, operation: Operation) -> Receiver<OperationResult> {
    let (sender, receiver) = channel();
    export.submit(operation, Reply::new(move |result| sender.send(result).unwrap()));
    receiver
}

fn run(export: &dyn Export, operation: Operation) -> OperationResult {
    start(export, operation).recv().unwrap()
}

fn write_of(offset: u64, bytes: &[u8]) -> Operation {
    Operation::Write { offset, data: IoBuffer::copy_of(bytes).into(), durable: false }
}

fn read(export: &dyn Export, offset: u64, len: usize) -> Vec<u8> {
    run(export, Operation::Read { offset, len: len as u32 }).unwrap().unwrap().to_vec()
}

/// A random range: small or large, aligned or not.
fn any_range(random: &mut StdRng) -> (u64, u64) {
    let offset = random.random_range(0..SIZE_BYTES);
    let most = (SIZE_BYTES - offset).min([3, 700, 5000, 40_000][random.random_range(0..4)]);
    let (offset, len) = (offset, random.random_range(1..=most));
    let unit = [1, 512, u64::from(BLOCK_BYTES)][random.random_range(0..3)];
    let (offset, end) = (offset - offset % unit, (offset + len).next_multiple_of(unit));
    (offset, end.min(SIZE_BYTES) - offset)
}

#[test]
fn random_unaligned_requests_match_a_byte_array() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let export = ByteExport::new(Arc::new(DeviceExport::new(memory())));
        let mut model = vec![0; SIZE_BYTES as usize];
        for step in 0..300 {
            let (offset, len) = any_range(&mut random);
            let place = offset as usize..(offset + len) as usize;
            match random.random_range(0..3) {
                0 => {
                    let bytes: Vec<u8> = (0..len).map(|_| random.random()).collect();
                    run(&export, write_of(offset, &bytes)).unwrap();
                    model[place].copy_from_slice(&bytes);
                }
                1 => {
                    let zero =
                        Operation::Zero { offset, len, may_trim: true, only_if_fast: false, durable: true };
                    run(&export, zero).unwrap();
                    model[place].fill(0);
                }
                _ => assert!(
                    read(&export, offset, len as usize) == model[place],
                    "seed {seed} step {step}: {len} bytes at {offset}"
                ),
            }
        }
        assert!(read(&export, 0, SIZE_BYTES as usize) == model, "seed {seed}");
    }
}

#[test]
fn trim_keeps_partially_covered_blocks() {
    let export = ByteExport::new(Arc::new(DeviceExport::new(memory())));
    run(&export, write_of(0, &[7; 16384])).unwrap();
    run(&export, Operation::Trim { offset: 100, len: 12288, durable: false }).unwrap();
    let bytes = read(&export, 0, 16384);
    assert_eq!((bytes[..4096] == [7; 4096], bytes[12288..] == [7; 4096]), (true, true));
    assert_eq!(bytes[4096..12288], [0; 8192], "trimmed memory reads as zeros");
}

/// A fast zeroing of part of a block would have to write zeros, which is not faster, and which the NBD protocol forbids.
#[test]
fn fast_zero_of_part_of_a_block_is_unsupported() {
    let export = ByteExport::new(Arc::new(DeviceExport::new(memory())));
    run(&export, write_of(0, &[7; 16384])).unwrap();
    // A range that may be trimmed is zeroed quickly only if it includes a whole block.
    for (offset, len, may_trim) in
        [(0, 8192, false), (100, 12288, false), (100, 200, true), (4000, 200, true)]
    {
        let zero = Operation::Zero { offset, len, may_trim, only_if_fast: true, durable: false };
        let refused = run(&export, zero).map(drop).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::Unsupported), "{len} bytes at {offset}");
    }
    assert_eq!(read(&export, 0, 16384), [7; 16384]);
}

/// Delays operations until they are released.
struct DelayedExport {
    device: DeviceExport,
    waiting: Mutex<VecDeque<(Operation, Reply)>>,
}

impl Export for Arc<DelayedExport> {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, operation: Operation, reply: Reply) {
        self.waiting.lock().push_back((operation, reply));
    }

    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError> {
        self.device.extents(context, offset, len, most)
    }
}

impl DelayedExport {
    fn release_one(&self, random: &mut StdRng) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            return false;
        }
        let at = random.random_range(0..waiting.len());
        let (operation, reply) = waiting.remove(at).expect("within");
        drop(waiting);
        self.device.submit(operation, reply);
        true
    }
}

#[test]
fn concurrent_writes_to_parts_of_one_block_are_all_kept() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let held = Arc::new(DelayedExport { device: DeviceExport::new(memory()), waiting: Mutex::default() });
        let export = ByteExport::new(Arc::new(Arc::clone(&held)));
        // Each byte of two blocks has one writer. A third block is written as a whole and in part.
        let mut at = 0;
        let mut pendings = Vec::new();
        let mut expected = Vec::new();
        while at < 2 * u64::from(BLOCK_BYTES) {
            let len = random.random_range(1..1500).min(2 * u64::from(BLOCK_BYTES) - at);
            let byte = random.random_range(1..=255u8);
            pendings.push(start(&export, write_of(at, &vec![byte; len as usize])));
            expected.extend(vec![byte; len as usize]);
            at += len;
            if random.random() {
                held.release_one(&mut random);
            }
        }
        pendings.push(start(&export, write_of(at, &[1; BLOCK_BYTES as usize])));
        pendings.push(start(&export, write_of(at + 10, &[2; 10])));
        while held.release_one(&mut random) {}
        pendings.into_iter().for_each(|pending| drop(pending.recv().unwrap().unwrap()));
        expected.extend([1; BLOCK_BYTES as usize]);
        expected[at as usize + 10..at as usize + 20].fill(2);
        let device = ByteExport::new(Arc::new(DeviceExport::new(Arc::clone(held.device.device()))));
        assert!(read(&device, 0, expected.len()) == expected, "seed {seed}");
    }
}
