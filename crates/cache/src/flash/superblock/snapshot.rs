//! The snapshot of a clean close: named sections, one per engine, in the snapshot area.
//!
//! ```text
//!      0             8          10     10 + n             + payload  + 8
//!      +-------------+----------+------+--------- ··· ----+----------+
//!      | payload len | name len | name | payload          | checksum |   once a section; an empty name ends
//!      | u64         | u16      |      |                  | u64      |
//!      +-------------+----------+------+--------- ··· ----+----------+
//! ```
//!
//! The checksum is XXH3-64 of all bytes before it, seeded with the snapshot's mark. The superblock contains the mark, which is different
//! for each snapshot, so a section of an older snapshot does not verify.

use std::sync::Arc;

use device::{Device, IoBuffer, IoError, IoSlice, Request};
use xxhash_rust::xxh3::Xxh3;

use super::layout::Layout;
use crate::flash::Waiting;
use crate::flash::read_ahead::ReadAhead;

/// The location of a snapshot, and its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPlace {
    /// First byte on the device.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Seed of the snapshot's checksums.
    pub mark: u64,
}

/// One engine's part of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The engine or setting that the section belongs to.
    pub name: String,
    /// Its content.
    pub payload: Vec<u8>,
}

/// Why a snapshot could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The snapshot area is too small.
    #[error(
        "the snapshot does not fit: section \"{section}\" ends at byte {needed_bytes} of an area of {area_bytes}"
    )]
    DoesNotFit {
        /// The section that exceeds the area.
        section: String,
        /// Bytes from the start of the area to the end of the section.
        needed_bytes: u64,
        /// Size of the area.
        area_bytes: u64,
    },
    /// The content is not the snapshot that the superblock refers to.
    #[error("the snapshot is damaged at byte {at_bytes} ({what})")]
    Damaged {
        /// Offset in the snapshot.
        at_bytes: u64,
        /// The failed check.
        what: &'static str,
    },
    /// A transfer failed.
    #[error("a transfer of the snapshot failed: {0}")]
    Io(#[from] IoError),
}

const HEADER_BYTES: usize = 10;
const CHECKSUM_BYTES: usize = 8;
const PIECE_BYTES: u64 = 1 << 20;
/// Pieces that are read at the same time.
const READS: usize = 8;

/// Writes a snapshot section by section.
pub struct SnapshotWriter<'a> {
    device: &'a dyn Device,
    waiting: Waiting,
    layout: Layout,
    mark: u64,
    piece: IoBuffer,
    filled: usize,
    written_bytes: u64,
}

impl<'a> SnapshotWriter<'a> {
    /// A writer into the snapshot area of `layout`. `mark` is
    /// [`Superblock::next_mark`](super::Superblock::next_mark).
    #[must_use]
    pub fn new(device: &'a dyn Device, layout: &Layout, mark: u64, waiting: Waiting) -> Self {
        let piece = IoBuffer::zeroed(piece_bytes(device));
        Self { device, waiting, layout: *layout, mark, piece, filled: 0, written_bytes: 0 }
    }

    /// Appends a section. The pieces of its payload have `payload_bytes` in total.
    ///
    /// # Errors
    /// The section does not fit, or a write failed. The snapshot is then invalid.
    ///
    /// # Panics
    /// If the pieces have another total length, or the name is empty.
    pub async fn section<P: AsRef<[u8]>>(
        &mut self,
        name: &str,
        payload_bytes: u64,
        pieces: impl IntoIterator<Item = P>,
    ) -> Result<(), SnapshotError> {
        assert!(!name.is_empty(), "the empty name ends a snapshot");
        self.check_room(name, payload_bytes)?;
        let mut hasher = Xxh3::with_seed(self.mark);
        self.push_hashed(&mut hasher, &header(name, payload_bytes)).await?;
        let mut left_bytes = payload_bytes;
        for piece in pieces {
            let piece = piece.as_ref();
            left_bytes =
                left_bytes.checked_sub(piece.len() as u64).expect("a payload is as long as announced");
            self.push_hashed(&mut hasher, piece).await?;
        }
        assert_eq!(left_bytes, 0, "a payload is as long as announced");
        self.push(&hasher.digest().to_le_bytes()).await
    }

    /// Ends the snapshot. It is durable after a flush of the device, and valid once a superblock refers to it.
    ///
    /// # Errors
    /// A write failed.
    pub async fn finish(mut self) -> Result<SnapshotPlace, SnapshotError> {
        self.check_room("", 0)?;
        let end = header("", 0);
        let mut hasher = Xxh3::with_seed(self.mark);
        self.push_hashed(&mut hasher, &end).await?;
        self.push(&hasher.digest().to_le_bytes()).await?;
        let bytes = self.end_bytes();
        self.write_piece().await?;
        Ok(SnapshotPlace { offset: self.layout.metadata_offset, bytes, mark: self.mark })
    }

    /// The longest payload of a section with this name that fits, including the end of the snapshot.
    #[must_use]
    pub fn room_bytes(&self, name: &str) -> u64 {
        let frames_bytes = 2 * (HEADER_BYTES + CHECKSUM_BYTES) + name.len();
        self.layout.metadata_bytes.saturating_sub(self.end_bytes() + frames_bytes as u64)
    }

    fn end_bytes(&self) -> u64 {
        self.written_bytes + self.filled as u64
    }

    fn check_room(&self, name: &str, payload_bytes: u64) -> Result<(), SnapshotError> {
        let frame_bytes = (HEADER_BYTES + name.len() + CHECKSUM_BYTES) as u64;
        let needed_bytes = self.end_bytes().saturating_add(frame_bytes).saturating_add(payload_bytes);
        if needed_bytes <= self.layout.metadata_bytes {
            return Ok(());
        }
        let area_bytes = self.layout.metadata_bytes;
        Err(SnapshotError::DoesNotFit { section: name.into(), needed_bytes, area_bytes })
    }

    async fn push_hashed(&mut self, hasher: &mut Xxh3, bytes: &[u8]) -> Result<(), SnapshotError> {
        hasher.update(bytes);
        self.push(bytes).await
    }

    async fn push(&mut self, mut bytes: &[u8]) -> Result<(), SnapshotError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.piece.len() - self.filled));
            self.piece[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == self.piece.len() {
                self.write_piece().await?;
            }
        }
        Ok(())
    }

    async fn write_piece(&mut self) -> Result<(), SnapshotError> {
        if self.filled == 0 {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, IoBuffer::zeroed(piece_bytes(self.device)));
        let whole_blocks = self.filled.next_multiple_of(self.layout.block_bytes as usize);
        let request = Request::write(
            self.layout.metadata_offset + self.written_bytes,
            IoSlice::new(Arc::new(piece), 0..whole_blocks),
        );
        self.waiting.start(self.device, request).await?;
        self.written_bytes += self.filled as u64;
        self.filled = 0;
        Ok(())
    }
}

/// Reads all sections of the snapshot at `place`.
///
/// # Errors
/// A read failed, or a checksum does not match: no part of a damaged snapshot is used.
pub async fn read_snapshot(
    device: &dyn Device,
    place: SnapshotPlace,
    waiting: Waiting,
) -> Result<Vec<Section>, SnapshotError> {
    let mut reader = Reader {
        device,
        waiting,
        place,
        reads: ReadAhead::default(),
        started_bytes: 0,
        piece: IoBuffer::zeroed(0),
        used: 0,
        read_bytes: 0,
    };
    let mut sections = Vec::new();
    while let Some(section) = reader.section().await? {
        sections.push(section);
    }
    Ok(sections)
}

struct Reader<'a> {
    device: &'a dyn Device,
    waiting: Waiting,
    place: SnapshotPlace,
    /// The pieces after `piece`.
    reads: ReadAhead<()>,
    /// Bytes whose read was started.
    started_bytes: u64,
    piece: IoBuffer,
    used: usize,
    /// Bytes returned so far.
    read_bytes: u64,
}

impl Reader<'_> {
    async fn section(&mut self) -> Result<Option<Section>, SnapshotError> {
        let mut hasher = Xxh3::with_seed(self.place.mark);
        let header = self.take(HEADER_BYTES as u64).await?;
        let payload_bytes = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
        let name_bytes = u16::from_le_bytes(header[8..].try_into().expect("two bytes"));
        let name = self.take(u64::from(name_bytes)).await?;
        let payload = self.take(payload_bytes).await?;
        for part in [&header, &name, &payload] {
            hasher.update(part);
        }
        let checksum = self.take(CHECKSUM_BYTES as u64).await?;
        if checksum != hasher.digest().to_le_bytes() {
            return Err(self.damaged("checksum"));
        }
        // The checksum has verified the lengths and the name.
        let name = String::from_utf8(name).map_err(|_| self.damaged("name"))?;
        Ok((!name.is_empty()).then_some(Section { name, payload }))
    }

    /// The next bytes. A length beyond the end is rejected before memory is allocated.
    async fn take(&mut self, bytes: u64) -> Result<Vec<u8>, SnapshotError> {
        if bytes > self.place.bytes - self.read_bytes {
            return Err(self.damaged("a length that reaches past the end"));
        }
        let len = usize::try_from(bytes).map_err(|_| self.damaged("a length beyond memory"))?;
        let mut taken = Vec::with_capacity(len);
        while taken.len() < len {
            if self.used == self.piece.len() {
                self.next_piece().await?;
            }
            let here = (len - taken.len()).min(self.piece.len() - self.used);
            taken.extend_from_slice(&self.piece[self.used..self.used + here]);
            self.used += here;
        }
        self.read_bytes += bytes;
        Ok(taken)
    }

    /// Takes the next piece. The snapshot has more bytes than those taken.
    async fn next_piece(&mut self) -> Result<(), SnapshotError> {
        while self.reads.len() < READS && self.started_bytes < self.place.bytes {
            let block_bytes = u64::from(self.device.geometry().block_bytes);
            let left_bytes = self.place.bytes - self.started_bytes;
            let bytes = left_bytes.min(piece_bytes(self.device) as u64).next_multiple_of(block_bytes);
            let request = Request::read(self.place.offset + self.started_bytes, bytes as usize);
            self.reads.start(self.device, self.waiting, (), request);
            self.started_bytes += bytes;
        }
        let (_, read) = self.reads.next(self.waiting).await.ok_or_else(|| self.damaged("its length"))?;
        self.piece = read?;
        self.used = 0;
        Ok(())
    }

    fn damaged(&self, what: &'static str) -> SnapshotError {
        SnapshotError::Damaged { at_bytes: self.read_bytes, what }
    }
}

fn header(name: &str, payload_bytes: u64) -> Vec<u8> {
    let name_bytes = u16::try_from(name.len()).expect("section names are short");
    [&payload_bytes.to_le_bytes()[..], &name_bytes.to_le_bytes(), name.as_bytes()].concat()
}

fn piece_bytes(device: &dyn Device) -> usize {
    let geometry = device.geometry();
    let block_bytes = u64::from(geometry.block_bytes);
    (geometry.transfer_units(block_bytes, PIECE_BYTES) * block_bytes) as usize
}

#[cfg(test)]
mod tests {
    use device::MemoryDevice;
    use pollster::block_on;

    use super::*;

    const AREA: u64 = 3 << 20;

    fn layout() -> Layout {
        Layout {
            device_bytes: 8 << 20,
            block_bytes: 512,
            bucket_bytes: 4096,
            metadata_offset: 128 << 10,
            metadata_bytes: AREA,
            regions_offset: 0,
            region_bytes: 0,
            regions: 0,
            soc_offset: 0,
            soc_bytes: 0,
        }
    }

    fn written(
        device: &MemoryDevice,
        mark: u64,
        sections: &[(&str, Vec<u8>)],
    ) -> Result<SnapshotPlace, SnapshotError> {
        block_on(async {
            let mut writer = SnapshotWriter::new(device, &layout(), mark, Waiting::Thread);
            for (name, payload) in sections {
                writer.section(name, payload.len() as u64, payload.chunks(1000)).await?;
            }
            writer.finish().await
        })
    }

    fn read(device: &dyn Device, place: SnapshotPlace) -> Result<Vec<(String, Vec<u8>)>, SnapshotError> {
        let sections = block_on(read_snapshot(device, place, Waiting::Task))?;
        Ok(sections.into_iter().map(|section| (section.name, section.payload)).collect())
    }

    #[test]
    fn sections_of_any_length_are_read_back() {
        let device = MemoryDevice::new(8 << 20);
        for len in [0, 1, 511, 512, 70_000, (1 << 20) - 30, 2 << 20] {
            let payload: Vec<u8> = (0..len).map(|n| ((n * 31) >> 3) as u8).collect();
            let sections = [("soc", payload), ("regions", b"small".to_vec())];
            let place = written(&device, 5, &sections).unwrap();
            assert_eq!(
                read(&device, place).unwrap(),
                sections.map(|(name, payload)| (name.to_owned(), payload))
            );
        }
    }

    #[test]
    fn too_large_section_is_refused_by_name() {
        let device = MemoryDevice::new(8 << 20);
        let sections = [("soc", vec![0; 2 << 20]), ("regions", vec![0; 1 << 20])];
        match written(&device, 5, &sections).unwrap_err() {
            SnapshotError::DoesNotFit { section, needed_bytes, area_bytes: AREA } => {
                assert!(section == "regions" && needed_bytes > AREA);
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn item_that_fills_its_bucket_exactly_fits() {
        let device = MemoryDevice::new(8 << 20);
        let room_bytes = SnapshotWriter::new(&device, &layout(), 5, Waiting::Thread).room_bytes("soc");
        let payload = vec![7; room_bytes as usize];
        let place = written(&device, 5, &[("soc", payload.clone())]).unwrap();
        assert_eq!(place.bytes, AREA);
        assert_eq!(read(&device, place).unwrap(), [("soc".to_owned(), payload)]);
        assert!(written(&device, 5, &[("soc", vec![7; room_bytes as usize + 1])]).is_err());
    }

    #[test]
    fn every_flipped_byte_and_wrong_identifier_is_detected() {
        let device = MemoryDevice::new(8 << 20);
        let place = written(&device, 5, &[("soc", vec![7; 300]), ("regions", vec![8; 200])]).unwrap();
        let device: &dyn Device = &device;
        let len = place.bytes.next_multiple_of(512) as usize;
        let intact = device.execute(Request::read(place.offset, len)).unwrap();
        for at in 0..place.bytes as usize {
            let mut damaged = IoBuffer::copy_of(&intact);
            damaged[at] ^= 0x41;
            device.execute(Request::write(place.offset, damaged)).unwrap();
            assert!(matches!(read(device, place), Err(SnapshotError::Damaged { .. })), "byte {at}");
        }
        device.execute(Request::write(place.offset, intact)).unwrap();
        assert!(read(device, place).is_ok());
        assert!(read(device, SnapshotPlace { mark: 6, ..place }).is_err());
        assert!(read(device, SnapshotPlace { bytes: place.bytes - 1, ..place }).is_err());
    }
}
