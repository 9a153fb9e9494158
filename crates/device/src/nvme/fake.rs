//! A simulated drive for this module's commands: a namespace with placement, its statistics, and the errors of real drives.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use parking_lot::Mutex;

use super::Status;
use super::command::Command;
use super::ioctl::{Data, Queue, Transport};

pub(super) const BLOCK_BYTES: usize = 4096;

pub(super) struct Fake {
    pub(super) state: Mutex<State>,
    /// Provides a file descriptor.
    null: File,
}

pub(super) struct State {
    pub(super) bytes: Vec<u8>,
    pub(super) fdp_capable: bool,
    pub(super) fdp_enabled: bool,
    pub(super) privileged: bool,
    pub(super) metadata_bytes: u16,
    /// Placement identifiers, and the bytes written to each.
    pub(super) placement: Vec<(u16, u64)>,
    /// Host and media bytes of the statistics page.
    pub(super) statistics: (u128, u128),
    /// Identifiers renewed.
    pub(super) renewed: Vec<u16>,
    /// Ranges trimmed, in blocks: start and length.
    pub(super) trimmed: Vec<(usize, usize)>,
    /// Status with which the next write fails.
    pub(super) fault: Option<Status>,
}

impl Fake {
    pub(super) fn new() -> Self {
        Self::sized(16 << 20)
    }

    pub(super) fn sized(bytes: usize) -> Self {
        let state = State {
            bytes: vec![0; bytes],
            fdp_capable: true,
            fdp_enabled: true,
            privileged: true,
            metadata_bytes: 0,
            // Two handles in two reclaim groups, as QEMU numbers them: the group is in the upper bits.
            placement: vec![(0x0000, 0), (0x4000, 0), (0x0001, 0), (0x4001, 0)],
            statistics: (0, 0),
            renewed: Vec::new(),
            trimmed: Vec::new(),
            fault: None,
        };
        Self { state: Mutex::new(state), null: File::open("/dev/null").unwrap() }
    }
}

impl AsFd for Fake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }
}

impl Transport for Fake {
    fn run(&self, queue: Queue, command: &Command, data: Data<'_>) -> io::Result<u64> {
        let mut state = self.state.lock();
        match (queue, command.opcode, data) {
            (Queue::Admin, 0x06, Data::From(page)) => state.identify(command, page),
            (Queue::Admin, 0x02 | 0x0A, _) if !state.privileged => {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            (Queue::Admin, 0x02, Data::From(page)) => state.log(command, page)?,
            (Queue::Admin, 0x0A, Data::None) => return Ok(u64::from(state.fdp_enabled)),
            (Queue::Io, 0x12 | 0x1D, _) if !state.fdp_enabled => return Err(Status(0x4029).into()),
            (Queue::Io, 0x12, Data::From(page)) => state.placement_status(page),
            (Queue::Io, 0x1D, Data::To(ids)) => {
                let (ids, _) = ids.as_chunks();
                assert_eq!(
                    ids.len(),
                    (command.words[0] >> 16) as usize + 1,
                    "the number given in the command"
                );
                state.renewed.extend(ids.iter().map(|&id| u16::from_le_bytes(id)));
            }
            (Queue::Io, 0x02, Data::From(into)) => {
                let range = state.range(command, into.len())?;
                into.copy_from_slice(&state.bytes[range]);
            }
            (Queue::Io, 0x01, Data::To(from)) => state.write(command, from)?,
            (Queue::Io, 0x09, Data::To(ranges)) => state.deallocate(ranges),
            (Queue::Io, 0x00, Data::None) => {}
            _ => return Err(Status(0x4001).into()),
        }
        Ok(0)
    }
}

impl State {
    fn identify(&self, command: &Command, page: &mut [u8]) {
        assert_eq!(page.len(), 4096);
        if command.words[0] == 1 {
            page[24..30].copy_from_slice(b"A fake");
            page[96..100].copy_from_slice(&(u32::from(self.fdp_capable) << 19).to_le_bytes());
            page[520] = 4;
        } else {
            page[..8].copy_from_slice(&((self.bytes.len() / BLOCK_BYTES) as u64).to_le_bytes());
            page[128..130].copy_from_slice(&self.metadata_bytes.to_le_bytes());
            page[130] = 12;
        }
    }

    fn log(&self, command: &Command, page: &mut [u8]) -> io::Result<()> {
        let dwords = (command.words[0] >> 16 | command.words[1] << 16) as usize;
        assert_eq!(page.len(), 4 * ((dwords & 0xFFFF) + 1), "the buffer has the requested length");
        match command.words[0] & 0xFF {
            0x02 => page[48] = 9,
            0x09 => page[5] = 1,
            0x22 if self.fdp_enabled => {
                page[..16].copy_from_slice(&self.statistics.0.to_le_bytes());
                page[16..32].copy_from_slice(&self.statistics.1.to_le_bytes());
            }
            0x22 => return Err(Status::FDP_DISABLED.into()),
            _ => return Err(Status::INVALID_FIELD.into()),
        }
        Ok(())
    }

    fn placement_status(&self, page: &mut [u8]) {
        let mut whole = vec![0; 16 + 32 * self.placement.len()];
        whole[14] = self.placement.len() as u8;
        for (number, (id, written)) in self.placement.iter().enumerate() {
            let descriptor = &mut whole[16 + 32 * number..];
            descriptor[..2].copy_from_slice(&id.to_le_bytes());
            descriptor[8..16].copy_from_slice(&(1_000_000 - written / BLOCK_BYTES as u64).to_le_bytes());
        }
        assert!(page.len() <= whole.len(), "drives reject a buffer longer than the data");
        page.copy_from_slice(&whole[..page.len()]);
    }

    fn range(&self, command: &Command, len: usize) -> io::Result<std::ops::Range<usize>> {
        let first = u64::from(command.words[0]) | u64::from(command.words[1]) << 32;
        let blocks = (command.words[2] & 0xFFFF) as usize + 1;
        assert_eq!(len, blocks * BLOCK_BYTES, "the buffer has the length of the blocks");
        let start = first as usize * BLOCK_BYTES;
        if start + len > self.bytes.len() {
            return Err(Status(0x4080).into());
        }
        Ok(start..start + len)
    }

    fn write(&mut self, command: &Command, from: &[u8]) -> io::Result<()> {
        if let Some(fault) = self.fault.take() {
            return Err(fault.into());
        }
        let range = self.range(command, from.len())?;
        self.bytes[range].copy_from_slice(from);
        let named = match command.words[2] >> 20 & 0xF {
            0 => 0x0000,
            2 => (command.words[3] >> 16) as u16,
            other => panic!("directive {other}"),
        };
        if let Some((_, written)) = self.placement.iter_mut().find(|(id, _)| *id == named) {
            *written += from.len() as u64;
        }
        self.statistics.0 += from.len() as u128;
        self.statistics.1 += from.len() as u128;
        Ok(())
    }

    fn deallocate(&mut self, ranges: &[u8]) {
        let (ranges, rest) = ranges.as_chunks::<16>();
        assert_eq!((ranges.len(), rest.len()), (1, 0));
        let blocks = u32::from_le_bytes(*ranges[0][4..].first_chunk().unwrap()) as usize;
        let first = u64::from_le_bytes(*ranges[0][8..].first_chunk().unwrap()) as usize;
        self.trimmed.push((first, blocks));
        self.bytes[first * BLOCK_BYTES..][..blocks * BLOCK_BYTES].fill(0);
    }
}
