//! The superblock at the start of a flash device: identity of the store, division of the device, and location of a valid snapshot.
//!
//! There are two copies, each one device block, so that the write of a copy is atomic:
//!
//! ```text
//!      0        8         12         16         24         40           48
//!      +--------+---------+----------+----------+----------+------------+--------+-------------+-------+----------+------+------------+-------+
//!      | magic  | version | checksum | sequence | store id | generation | layout | fingerprint | state | snapshot | seed | generation | clear |
//!      |        |         |          |          |          |            |        |             |       |          |      | of journals|       |
//!      | 8 B    | u32     | u32      | u64      | u128     | u64        | 72 B   | u64         | u64   | 3 × u64  | u64  | u64        | u64   |
//!      +--------+---------+----------+----------+----------+------------+--------+-------------+-------+----------+------+------------+-------+
//! ```
//!
//! Little-endian. The checksum is CRC-32C of the first 256 bytes except the checksum itself. Magic, version and checksum keep their
//! offsets in all versions, so that a newer format is recognised as such.
//!
//! # Protocol
//!
//! The valid copy with the higher sequence number is current. *Opening*: both copies are read, then marked open, one after the other,
//! each followed by a flush, before anything else on the device is changed. *Closing*: the snapshot is written and flushed, then one copy
//! is marked clean and flushed. So no copy is marked clean while the device changes, and damage to one copy cannot restore an older clean
//! one. A store that is found open was not closed: it begins a new generation, which ignores all older content of the device. Contents
//! with journals keep the generation in which the journals were begun, if these are complete.

mod difference;
mod foreign;
#[cfg(feature = "fuzzing")]
pub(in crate::flash) mod fuzzing;
pub mod layout;
mod placed;
pub mod snapshot;

use device::checksum::Crc32c;
use device::{Device, IoBuffer, IoError, Request};
use xxhash_rust::xxh3::xxh3_64;

pub use layout::{Layout, LayoutConfig};
pub use placed::Placed;
pub use snapshot::{Section, SnapshotError, SnapshotPlace, SnapshotWriter, read_snapshot};

use super::Waiting;

/// The first bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"FLSHWRT\0";
/// The version of everything on the device: superblock, snapshot, buckets and regions.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes at the start of the device for the two copies. The space of each is far larger than a block: the offset of the second copy does
/// not depend on the block size, and data that overwrites the first rarely reaches the second.
pub const SUPERBLOCKS_BYTES: u64 = 2 * COPY_BYTES;

const COPY_BYTES: u64 = 64 << 10;
const ENCODED_BYTES: usize = 256;
const CHECKSUM_AT: usize = 12;
const CHECKSUM_END: usize = CHECKSUM_AT + 4;

const OPEN: u64 = 1;
const CLEAN: u64 = 2;

/// The content of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Increases with every superblock written.
    pub sequence: u64,
    /// Random, chosen when the store was created.
    pub store_id: u128,
    /// Increases when the store starts empty.
    pub generation: u64,
    /// The division of the device.
    pub layout: Layout,
    /// Hash of the other settings that must be the same for a snapshot to be used.
    pub fingerprint: u64,
    /// Whether the store is in use.
    pub state: State,
    /// Seed of the key hash. 0 in stores of versions without a seed, which is the seed that they used.
    pub hash_seed: u64,
    /// Generation in which the journals of the contents were begun. 0 means the store's own generation: in stores without journals.
    pub journaled_generation: u64,
    /// Unix second at which the store is to be cleared; 0 is never.
    pub clear_at_seconds: u64,
}

/// Whether the store is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// In use, or not closed before a crash.
    Open,
    /// Closed; the snapshot describes the content.
    Clean(SnapshotPlace),
}

/// The content found on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognised {
    /// A store of this program.
    Ours(Superblock),
    /// Only zeros at the offsets of superblocks.
    Blank,
    /// Other data, with its name if known.
    Foreign {
        /// For instance "an ext4 file system"; `None` for unknown data.
        looks_like: Option<&'static str>,
    },
    /// A store of a newer version of this program.
    Newer {
        /// Its format version.
        version: u32,
    },
    /// A store of this program without a valid copy of the superblock.
    Damaged,
}

impl Superblock {
    /// The first superblock of a new store, in use. `store_id` is random.
    #[must_use]
    pub fn new(store_id: u128, layout: Layout, fingerprint: u64) -> Self {
        Self {
            sequence: 0,
            store_id,
            generation: 1,
            layout,
            fingerprint,
            state: State::Open,
            hash_seed: 0,
            journaled_generation: 0,
            clear_at_seconds: 0,
        }
    }

    /// The superblock with which a store is reopened, and its snapshot if the store was closed cleanly and layout and fingerprint are
    /// unchanged. Without a snapshot, the store begins a new, empty generation.
    #[must_use]
    pub fn reopened(self, layout: Layout, fingerprint: u64) -> (Self, Option<SnapshotPlace>) {
        let open = Self { state: State::Open, layout, fingerprint, ..self };
        match self.state {
            State::Clean(place) if (self.layout, self.fingerprint) == (layout, fingerprint) => {
                (open, Some(place))
            }
            _ => (open.emptied(), None),
        }
    }

    /// The superblock of a store whose journaled contents are recovered although it was not closed; other contents begin a new
    /// generation. `None` if the store was closed, or if layout or fingerprint have changed.
    #[must_use]
    pub fn continued(self, layout: Layout, fingerprint: u64) -> Option<Self> {
        let is_same = (self.layout, self.fingerprint) == (layout, fingerprint);
        let journaled_generation = self.generation_of_journals();
        let continued = Self { generation: self.generation + 1, journaled_generation, ..self };
        (self.state == State::Open && is_same).then_some(continued)
    }

    /// The same store in a new generation: used if its snapshot cannot be read.
    #[must_use]
    pub fn emptied(self) -> Self {
        Self { generation: self.generation + 1, journaled_generation: 0, clear_at_seconds: 0, ..self }
    }

    fn generation_of_journals(&self) -> u64 {
        if self.journaled_generation == 0 { self.generation } else { self.journaled_generation }
    }

    /// The mark that engines with journals write into their blocks. It is the same after a recovery by the journals.
    #[must_use]
    pub fn journaled_mark(&self) -> u64 {
        Self { generation: self.generation_of_journals(), ..*self }.generation_mark()
    }

    /// The mark that engines write into their blocks. Other stores and generations have other marks (except with a probability of 2^-64).
    #[must_use]
    pub fn generation_mark(&self) -> u64 {
        self.mark(0)
    }

    /// The mark of the next snapshot.
    #[must_use]
    pub fn next_mark(&self) -> u64 {
        self.mark(self.sequence + 1)
    }

    /// Identifies the time from an opening of the store to its closing, by the last superblock that marks it open.
    #[must_use]
    pub fn session(&self) -> u64 {
        match self.state {
            State::Open => self.mark(self.sequence),
            State::Clean(_) => self.mark(self.sequence.saturating_sub(1)),
        }
    }

    fn mark(&self, sequence: u64) -> u64 {
        let numbers =
            [&self.store_id.to_le_bytes()[..], &self.generation.to_le_bytes(), &sequence.to_le_bytes()];
        xxh3_64(&numbers.concat())
    }

    /// Marks both copies open. Nothing else on the device may change before this completes.
    ///
    /// # Errors
    /// A transfer failed: the store must not be used.
    pub async fn mark_open(&mut self, device: &dyn Device, waiting: Waiting) -> Result<(), IoError> {
        self.state = State::Open;
        self.write_next(device, waiting).await?;
        self.write_next(device, waiting).await
    }

    /// Marks the store closed: flushes all earlier writes, then writes one copy that names the snapshot.
    ///
    /// # Errors
    /// A transfer failed: the next opening finds the store open and starts empty.
    pub async fn mark_clean(
        &mut self,
        snapshot: SnapshotPlace,
        device: &dyn Device,
        waiting: Waiting,
    ) -> Result<(), IoError> {
        waiting.start(device, Request::Flush).await?;
        self.state = State::Clean(snapshot);
        self.write_next(device, waiting).await
    }

    /// Replaces both copies of an open store in place. Their sequence numbers stay, since [`session`](Self::session) depends on them.
    ///
    /// # Errors
    /// A transfer failed.
    pub async fn rewrite(&self, device: &dyn Device, waiting: Waiting) -> Result<(), IoError> {
        self.write(device, waiting).await?;
        Self { sequence: self.sequence - 1, ..*self }.write(device, waiting).await
    }

    /// Overwrites the older copy.
    async fn write_next(&mut self, device: &dyn Device, waiting: Waiting) -> Result<(), IoError> {
        self.sequence += 1;
        self.write(device, waiting).await
    }

    async fn write(&self, device: &dyn Device, waiting: Waiting) -> Result<(), IoError> {
        let mut block = IoBuffer::zeroed(device.geometry().block_bytes as usize);
        block[..ENCODED_BYTES].copy_from_slice(&self.encode());
        let offset = self.sequence % 2 * COPY_BYTES;
        waiting.start(device, Request::write(offset, block)).await?;
        waiting.start(device, Request::Flush).await.map(|_| ())
    }

    fn encode(&self) -> [u8; ENCODED_BYTES] {
        let layout = &self.layout;
        let (state, place) = match self.state {
            State::Open => (OPEN, SnapshotPlace { offset: 0, bytes: 0, mark: 0 }),
            State::Clean(place) => (CLEAN, place),
        };
        let mut writer = Writer { bytes: [0; ENCODED_BYTES], at: 0 };
        writer.put(&MAGIC);
        writer.put(&FORMAT_VERSION.to_le_bytes());
        writer.put(&[0; 4]);
        writer.put(&self.sequence.to_le_bytes());
        writer.put(&self.store_id.to_le_bytes());
        writer.put(&self.generation.to_le_bytes());
        writer.put(&layout.device_bytes.to_le_bytes());
        writer.put(&layout.block_bytes.to_le_bytes());
        writer.put(&layout.bucket_bytes.to_le_bytes());
        let Layout { metadata_offset, metadata_bytes, regions_offset, region_bytes, regions, .. } = *layout;
        let parts = [metadata_offset, metadata_bytes, regions_offset, region_bytes, regions];
        let rest = [
            layout.soc_offset,
            layout.soc_bytes,
            self.fingerprint,
            state,
            place.offset,
            place.bytes,
            place.mark,
            self.hash_seed,
            self.journaled_generation,
            self.clear_at_seconds,
        ];
        for number in parts.into_iter().chain(rest) {
            writer.put(&number.to_le_bytes());
        }
        let checksum = checksum(&writer.bytes);
        writer.bytes[CHECKSUM_AT..CHECKSUM_END].copy_from_slice(&checksum.to_le_bytes());
        writer.bytes
    }

    /// Decodes a copy whose checksum and version are verified.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader { bytes, at: CHECKSUM_END };
        let (sequence, store_id, generation) =
            (reader.u64(), u128::from_le_bytes(reader.take()), reader.u64());
        let layout = Layout {
            device_bytes: reader.u64(),
            block_bytes: u32::from_le_bytes(reader.take()),
            bucket_bytes: u32::from_le_bytes(reader.take()),
            metadata_offset: reader.u64(),
            metadata_bytes: reader.u64(),
            regions_offset: reader.u64(),
            region_bytes: reader.u64(),
            regions: reader.u64(),
            soc_offset: reader.u64(),
            soc_bytes: reader.u64(),
        };
        let (fingerprint, state) = (reader.u64(), reader.u64());
        let place = SnapshotPlace { offset: reader.u64(), bytes: reader.u64(), mark: reader.u64() };
        let (hash_seed, journaled_generation, clear_at_seconds) = (reader.u64(), reader.u64(), reader.u64());
        let state = match state {
            OPEN => State::Open,
            CLEAN => State::Clean(place),
            // The checksum matches, so another program wrote this under the same version.
            _ => return None,
        };
        // Larger counts cannot occur; the limit prevents an overflow of the next ones.
        let counts = [sequence, generation, journaled_generation];
        counts.into_iter().all(|count| count < u64::MAX / 2).then_some(Self {
            sequence,
            store_id,
            generation,
            layout,
            fingerprint,
            state,
            hash_seed,
            journaled_generation,
            clear_at_seconds,
        })
    }
}

/// Recognises the content of a device without changing it.
///
/// # Errors
/// A read failed.
pub async fn recognise(device: &dyn Device, waiting: Waiting) -> Result<Recognised, IoError> {
    Ok(recognise_head(&read_head(device, waiting).await?))
}

/// Recognises a device by its first bytes, up to [`SUPERBLOCKS_BYTES`] of them.
#[must_use]
pub fn recognise_head(head: &[u8]) -> Recognised {
    // Foreign data first: a file system created over a store may leave a copy of our superblock intact.
    if let Some(name) = foreign::name_of(head) {
        return Recognised::Foreign { looks_like: Some(name) };
    }
    let copies = head.chunks(COPY_BYTES as usize).map(read_copy).collect::<Vec<_>>();
    let newest =
        copies.iter().filter_map(|copy| if let Copy::Valid(ours) = copy { Some(*ours) } else { None });
    if let Some(version) =
        copies.iter().find_map(|copy| if let Copy::Newer(version) = copy { Some(*version) } else { None })
    {
        return Recognised::Newer { version };
    }
    if let Some(newest) = newest.max_by_key(|superblock| superblock.sequence) {
        return Recognised::Ours(newest);
    }
    if copies.iter().any(|copy| matches!(copy, Copy::Damaged)) {
        return Recognised::Damaged;
    }
    let blank = head.iter().all(|&byte| byte == 0);
    if blank { Recognised::Blank } else { Recognised::Foreign { looks_like: None } }
}

/// Zeroes the bytes that [`recognise`] reads, so that a new store is not mistaken for the old content.
///
/// # Errors
/// A write failed.
pub async fn erase(device: &dyn Device, waiting: Waiting) -> Result<(), IoError> {
    for (offset, len) in head_parts(device) {
        waiting.start(device, Request::write(offset, IoBuffer::zeroed(len))).await?;
    }
    waiting.start(device, Request::Flush).await.map(|_| ())
}

/// The content of one copy of the superblock.
enum Copy {
    Valid(Superblock),
    Newer(u32),
    /// Has the magic of this program, but is damaged.
    Damaged,
    Other,
}

fn read_copy(bytes: &[u8]) -> Copy {
    if bytes.len() < ENCODED_BYTES || bytes[..MAGIC.len()] != MAGIC {
        return Copy::Other;
    }
    let bytes = &bytes[..ENCODED_BYTES];
    let mut reader = Reader { bytes, at: MAGIC.len() };
    let (version, stored) = (u32::from_le_bytes(reader.take()), u32::from_le_bytes(reader.take()));
    // Before the version check: a flipped bit in the version is damage, not a newer program.
    if stored != checksum(bytes) {
        return Copy::Damaged;
    }
    if version > FORMAT_VERSION {
        return Copy::Newer(version);
    }
    // No older version exists: version 0 was never written.
    if version < FORMAT_VERSION {
        Copy::Damaged
    } else {
        Superblock::decode(bytes).map_or(Copy::Damaged, Copy::Valid)
    }
}

async fn read_head(device: &dyn Device, waiting: Waiting) -> Result<Vec<u8>, IoError> {
    let mut head = Vec::with_capacity(SUPERBLOCKS_BYTES as usize);
    for (offset, len) in head_parts(device) {
        let buffer = waiting.start(device, Request::read(offset, len)).await?;
        head.extend_from_slice(&buffer);
    }
    Ok(head)
}

/// The parts of the superblock area, up to the device's capacity, in transfers that the device accepts.
fn head_parts(device: &dyn Device) -> impl Iterator<Item = (u64, usize)> {
    let geometry = device.geometry();
    let parts = geometry.transfers(0..SUPERBLOCKS_BYTES.min(geometry.capacity_bytes));
    parts.map(|part| (part.start, (part.end - part.start) as usize))
}

fn checksum(encoded: &[u8]) -> u32 {
    let mut checksum = Crc32c::default();
    checksum.update(&encoded[..CHECKSUM_AT]);
    checksum.update(&encoded[CHECKSUM_END..]);
    checksum.finish()
}

struct Writer {
    bytes: [u8; ENCODED_BYTES],
    at: usize,
}

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let taken = self.bytes[self.at..self.at + N].try_into().expect("N bytes");
        self.at += N;
        taken
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

#[cfg(test)]
mod tests;
