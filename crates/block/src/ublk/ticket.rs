//! A request in flight and its data.
//!
//! Data are copied by reading and writing the character device at the request's offset (`UBLK_F_USER_COPY`, Linux 6.5). The older way
//! needs a permanent buffer of the maximum length per tag, and an extra copy of data that an export returns. Here a request has memory of
//! its own length while in flight, and its data are copied once; those of a read on the thread that
//! completes it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use device::{IoBuffer, IoSlice};
use rustix::io::Errno;

use super::outbox::Outbox;
use super::request::{BlockRequest, Limits, errno};
use super::uapi::{Descriptor, data_at};
use crate::export::{Operation, OperationResult};

/// A request that waits for its result.
pub(super) struct Ticket {
    device: Arc<File>,
    outbox: Arc<Outbox>,
    tag: u16,
    request: BlockRequest,
    /// Offset of the data in the character device.
    data_at: u64,
}

impl Ticket {
    /// Decodes a descriptor into a request and an operation. An invalid request, or one whose data cannot be read, fails
    /// immediately.
    pub fn open(
        (device, limits): (&Arc<File>, &Limits),
        outbox: &Arc<Outbox>,
        queue: u16,
        tag: u16,
        descriptor: &Descriptor,
    ) -> Option<(Self, Operation)> {
        let data_at = data_at(queue, tag);
        let fetch = |request: &BlockRequest| fetch(device, data_at, request.data_bytes());
        let opened = BlockRequest::of(descriptor, limits)
            .and_then(|request| Ok((request, request.operation(|| fetch(&request))?)));
        match opened {
            Ok((request, operation)) => {
                let (device, outbox) = (Arc::clone(device), Arc::clone(outbox));
                Some((Self { device, outbox, tag, request, data_at }, operation))
            }
            Err(errno) => {
                outbox.add(tag, failed(errno));
                None
            }
        }
    }

    /// Length of its data.
    pub fn data_bytes(&self) -> u32 {
        self.request.data_bytes()
    }

    /// Passes on the result of the operation.
    pub fn close(self, result: OperationResult) {
        let result = match (self.request, result) {
            (BlockRequest::Read { len, .. }, Ok(Some(bytes))) if bytes.len() == len as usize => {
                self.device.write_all_at(&bytes, self.data_at).map_err(|_| Errno::IO)
            }
            // The reader's memory was not filled.
            (BlockRequest::Read { .. }, Ok(_)) => Err(Errno::IO),
            (_, Ok(_)) => Ok(()),
            (_, Err(error)) => Err(errno(&error)),
        };
        let Self { device, outbox, tag, request, .. } = self;
        // Closed before the queue gets the result and may end: an open file would keep the device.
        drop(device);
        outbox.add(tag, result.map_or_else(failed, |()| request.data_bytes() as i32));
    }
}

/// Reads the data of a write.
fn fetch(device: &File, data_at: u64, len: u32) -> Result<IoSlice, Errno> {
    let mut buffer = IoBuffer::zeroed(len as usize);
    device.read_exact_at(&mut buffer, data_at).map_err(|_| Errno::IO)?;
    Ok(buffer.into())
}

fn failed(errno: Errno) -> i32 {
    -errno.raw_os_error()
}

#[cfg(test)]
mod tests {
    use device::{Device, ErrorKind, IoError, MemoryDevice, Request};
    use rand::rngs::StdRng;
    use rand::{Rng, RngExt, SeedableRng};

    use super::*;
    use crate::export::{ByteExport, DeviceExport, Export, Reply};
    use crate::ublk::uapi::operation;
    use device::event_fd;

    const DISK_BYTES: usize = 256 << 10;
    const MAX_IO_BYTES: u32 = 32 << 10;
    const LIMITS: Limits = Limits {
        size_bytes: DISK_BYTES as u64,
        block_bytes: 512,
        max_io_bytes: MAX_IO_BYTES,
        read_only: false,
    };
    const TAG: u16 = 7;

    /// A regular file stands for the character device: requests have their data at the same offsets.
    struct TestQueue {
        device: Arc<File>,
        outbox: Arc<Outbox>,
    }

    impl TestQueue {
        fn new() -> Self {
            let device = tempfile::tempfile().unwrap();
            device.set_len(data_at(0, TAG + 1)).unwrap();
            let outbox = Outbox::new(Arc::new(event_fd::new().unwrap()));
            Self { device: Arc::new(device), outbox: Arc::new(outbox) }
        }

        fn open(&self, descriptor: &Descriptor) -> Option<(Ticket, Operation)> {
            Ticket::open((&self.device, &LIMITS), &self.outbox, 0, TAG, descriptor)
        }

        /// Takes the only result.
        fn result(&self) -> i32 {
            let mut ended = Vec::new();
            self.outbox.take(&mut ended);
            assert_eq!(ended.len(), 1, "a request has one result");
            assert_eq!(ended[0].0, TAG);
            ended[0].1
        }

        fn data(&self, len: usize) -> Vec<u8> {
            let mut bytes = vec![0; len];
            self.device.read_exact_at(&mut bytes, data_at(0, TAG)).unwrap();
            bytes
        }
    }

    fn descriptor(code: u32, sectors: u32) -> Descriptor {
        Descriptor { operation_and_flags: code, sectors, first_sector: 0 }
    }

    /// Random descriptors on a disk in memory and a model of it: valid requests move their data, all others fail without
    /// effect.
    #[test]
    fn random_descriptors_have_one_result_and_only_valid_ones_an_effect() {
        let mut random = StdRng::seed_from_u64(0x71CE);
        let (queue, memory) = (TestQueue::new(), Arc::new(MemoryDevice::new(DISK_BYTES as u64)));
        let export = ByteExport::new(Arc::new(DeviceExport::new(Arc::clone(&memory) as _)));
        let (mut model, mut moved) = (vec![0; DISK_BYTES], 0);
        for turn in 0..4000 {
            let mut bytes: [u8; Descriptor::BYTES] = random.random();
            if turn % 8 != 0 {
                bytes[0] = random.random_range(0..7);
                bytes[4..8].copy_from_slice(&random.random_range(0..70_u32).to_ne_bytes());
                bytes[8..16].copy_from_slice(&random.random_range(0..560_u64).to_ne_bytes());
            }
            let request = Descriptor::decode(&bytes);
            let mut data = vec![0; MAX_IO_BYTES as usize];
            random.fill_bytes(&mut data);
            queue.device.write_all_at(&data, data_at(0, TAG)).unwrap();
            if let Some((ticket, operation)) = queue.open(&request) {
                export.submit(operation, Reply::new(move |result| ticket.close(result)));
            }
            let result = queue.result();
            let Ok(sound) = BlockRequest::of(&request, &LIMITS) else {
                assert!(result < 0, "turn {turn}: {request:?} ended with {result}");
                continue;
            };
            assert_eq!(result, sound.data_bytes() as i32, "turn {turn}: {sound:?}");
            moved += result;
            let whole = Request::read(0, DISK_BYTES);
            let disk = memory.execute(whole).unwrap();
            match sound {
                BlockRequest::Read { offset, len } => {
                    let range = offset as usize..offset as usize + len as usize;
                    assert!(queue.data(len as usize) == model[range], "turn {turn}: {sound:?}");
                }
                BlockRequest::Write { offset, len, .. } => {
                    model[offset as usize..][..len as usize].copy_from_slice(&data[..len as usize]);
                }
                BlockRequest::Zero { offset, len, .. } => model[offset as usize..][..len as usize].fill(0),
                // The contents are undefined.
                BlockRequest::Trim { offset, len } => {
                    let range = offset as usize..(offset + len) as usize;
                    model[range.clone()].copy_from_slice(&disk[range]);
                }
                BlockRequest::Flush => {}
            }
            assert!(disk[..] == model[..], "turn {turn}: {sound:?}");
        }
        assert!(moved > 1 << 20, "only {moved} bytes were moved, which is too few for this test");
    }

    #[test]
    fn read_with_missing_data_fails() {
        let queue = TestQueue::new();
        let short = IoBuffer::zeroed(512).into();
        for (result, errno) in [
            (Ok(None), Errno::IO),
            (Ok(Some(short)), Errno::IO),
            (Err(IoError::new(ErrorKind::Medium, "worn out")), Errno::IO),
            (Err(IoError::new(ErrorKind::NoSpace, "full")), Errno::NOSPC),
        ] {
            queue.open(&descriptor(operation::READ, 2)).unwrap().0.close(result);
            assert_eq!(queue.result(), failed(errno));
        }
        let (ticket, lost) = queue.open(&descriptor(operation::FLUSH, 0)).unwrap();
        drop((lost, Reply::new(move |result| ticket.close(result))));
        assert_eq!(queue.result(), failed(Errno::IO), "a dropped request fails");
    }

    #[test]
    fn write_with_unreadable_data_fails_immediately() {
        let queue = TestQueue::new();
        queue.device.set_len(data_at(0, TAG) + 100).unwrap();
        assert!(queue.open(&descriptor(operation::WRITE, 1)).is_none());
        assert_eq!(queue.result(), failed(Errno::IO));
    }
}
