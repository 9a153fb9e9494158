//! A kernel that completes requests only partly.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::tally::Tally;
use crate::{Completion, Counters, Device, Geometry, IoBuffer, conformance};

const BLOCK: u32 = 512;

/// Bytes behind a kernel that transfers all, some or none of a request.
struct PartialKernel {
    bytes: Mutex<Vec<u8>>,
    random: Mutex<StdRng>,
    geometry: Geometry,
    tally: Tally,
}

impl PartialKernel {
    fn new(capacity_bytes: u64) -> Self {
        let geometry = Geometry {
            capacity_bytes,
            block_bytes: BLOCK,
            max_io_bytes: 1 << 20,
            indirection_bytes: BLOCK,
            placement_handles: 0,
            buffered: false,
        };
        let (bytes, random) = (vec![0; capacity_bytes as usize].into(), StdRng::seed_from_u64(11).into());
        Self { bytes, random, geometry, tally: Tally::default() }
    }

    /// Number of bytes transferred by this call.
    fn transferred(&self, len: usize) -> io::Result<usize> {
        let mut random = self.random.lock();
        match random.random_range(0..8) {
            0 => Err(Errno::INTR.into()),
            1 => Err(Errno::AGAIN.into()),
            2 => Err(Errno::CANCELED.into()),
            3 | 4 => Ok(random.random_range(1..=len)),
            _ => Ok(len),
        }
    }
}

impl Kernel for PartialKernel {
    fn call(&self, call: Call<'_>) -> io::Result<usize> {
        match call {
            Call::Read { offset, into } => {
                assert!(offset.is_multiple_of(u64::from(BLOCK)), "direct I/O continues at whole blocks");
                let moved = self.transferred(into.len())?;
                into[..moved].copy_from_slice(&self.bytes.lock()[offset as usize..][..moved]);
                Ok(moved)
            }
            Call::Write { offset, from, .. } => {
                assert!(from.len().is_multiple_of(BLOCK as usize), "direct I/O moves whole blocks");
                let moved = self.transferred(from.len())?;
                self.bytes.lock()[offset as usize..][..moved].copy_from_slice(&from[..moved]);
                Ok(moved)
            }
            Call::Trim { .. } | Call::Flush => self.transferred(1).map(|_| 0),
        }
    }
}

impl Device for PartialKernel {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, request: Request, completion: Completion) {
        completion.complete(self.execute(request));
    }

    fn execute(&self, request: Request) -> Outcome {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = match self.geometry.check(&request) {
            Err(error) => Err(error),
            Ok(()) if bytes == 0 && kind == crate::RequestKind::Read => Ok(IoBuffer::empty()),
            Ok(()) if bytes == 0 && kind == crate::RequestKind::Write => Ok(IoBuffer::empty()),
            Ok(()) => run(self, Transfer::new(request, BLOCK), Path::new("weary")),
        };
        self.tally.count(kind, bytes, &outcome);
        outcome
    }

    fn counters(&self) -> Counters {
        self.tally.counters()
    }
}

#[test]
fn short_transfers_and_interruptions_are_continued() {
    conformance::run(|| Box::new(PartialKernel::new(8 << 20)));
}

fn read() -> Transfer {
    Transfer::new(Request::read(8192, 4096), BLOCK)
}

/// The outcome of a read whose calls return `results`, and the offset of each call after the first.
fn outcome_of(results: Vec<io::Result<usize>>) -> (Option<Outcome>, Vec<u64>) {
    let (mut transfer, mut offsets) = (read(), Vec::new());
    for result in results {
        if let Some(outcome) = transfer.advance(result, Path::new("/x")) {
            return (Some(outcome), offsets);
        }
        match transfer.next_call() {
            Call::Read { offset, into } => {
                assert_eq!(offset + into.len() as u64, 8192 + 4096, "the remaining bytes are requested");
                offsets.push(offset);
            }
            other => panic!("a read became {other:?}"),
        }
    }
    (None, offsets)
}

#[test]
fn short_read_continues_at_its_last_whole_block() {
    let (outcome, offsets) = outcome_of(vec![Ok(512), Ok(1000), Ok(1), Ok(3072)]);
    assert_eq!(outcome.unwrap().unwrap().len(), 4096);
    assert_eq!(offsets, [8192 + 512, 8192 + 1024, 8192 + 1024]);
}

#[test]
fn file_that_ends_early_is_a_medium_error() {
    let (outcome, _) = outcome_of(vec![Ok(512), Ok(0)]);
    let error = outcome.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Medium);
    assert_eq!(error.to_string(), "/x: read of 4096 bytes at 8192: completed after 512 bytes");
}

#[test]
fn transfer_without_progress_fails() {
    let forever = || (0..MAX_ATTEMPTS_WITHOUT_PROGRESS).map(|_| Err(Errno::AGAIN.into()));
    let (outcome, _) = outcome_of(forever().collect());
    assert_eq!(outcome.unwrap().unwrap_err().kind(), ErrorKind::Medium);
    let (outcome, _) = outcome_of(forever().skip(1).chain([Ok(512)]).chain(forever().skip(1)).collect());
    assert!(outcome.is_none(), "progress resets the count");
}

#[test]
fn system_errors_are_mapped_to_kinds_with_context() {
    let cases = [
        (Errno::NOSPC, ErrorKind::NoSpace),
        (Errno::DQUOT, ErrorKind::NoSpace),
        (Errno::INVAL, ErrorKind::Invalid),
        (Errno::OPNOTSUPP, ErrorKind::Unsupported),
        (Errno::BUSY, ErrorKind::Busy),
        (Errno::IO, ErrorKind::Medium),
        (Errno::NXIO, ErrorKind::Medium),
    ];
    for (errno, kind) in cases {
        let data = IoBuffer::zeroed(512);
        let write = Request::write(1024, data);
        let outcome = Transfer::new(write, BLOCK).advance(Err(errno.into()), Path::new("/x"));
        let error = outcome.unwrap().unwrap_err();
        assert_eq!(error.kind(), kind, "{errno:?}");
        assert!(error.to_string().starts_with("/x: write of 512 bytes at 1024: "), "{error}");
    }
}
