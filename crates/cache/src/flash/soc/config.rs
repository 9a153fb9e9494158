//! The configuration of a small-object cache, and its check.

use device::Geometry;

use super::bucket::{self, BUCKET_BYTES, ENTRY_BYTES, HEADER_BYTES, NUMBER_BYTES};
use super::filter::MAX_BYTES_PER_BUCKET;
use crate::flash::journal::{self, JournalOptions, JournalPlace, Position};

/// Bytes of buckets per byte of the journal, beside [`LEAST_JOURNAL_BLOCKS`]: two records for each bucket of 4 KiB.
const BYTES_PER_JOURNAL_BYTE: u64 = 256;
const LEAST_JOURNAL_BLOCKS: u64 = 16;

/// Bytes ahead of the bits in a snapshot.
pub(super) const SNAPSHOT_HEADER_BYTES: usize = 16;

/// Configuration of a [`Soc`](super::Soc).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocConfig {
    /// Offset on the device; a multiple of the device's block.
    pub offset_bytes: u64,
    /// Bytes of the device for the journal and the buckets; a multiple of the bucket size.
    pub soc_bytes: u64,
    /// Bytes of a bucket: a power of two, at least the device's block, 512 to 65,536.
    pub bucket_bytes: u32,
    /// Memory of a bucket's filter: a multiple of 8 up to 128; 0 is no filter.
    pub filter_bytes_per_bucket: u32,
    /// Memory for items that wait for the write of their bucket. With more memory, a write contains more of them.
    pub pending_limit_bytes: usize,
    /// Largest device write, if the device allows it: adjacent buckets are written together.
    pub max_write_bytes: u32,
    /// Device writes that one step keeps in flight.
    pub writes_in_flight: usize,
    /// Device writes after which one step ends.
    pub writes_per_step: usize,
    /// Distinguishes the contents of this store from those of all earlier ones on the device
    /// ([`Superblock::generation_mark`](crate::flash::superblock::Superblock::generation_mark)).
    pub generation: u64,
    /// Seed of the keys' hashes.
    pub hash_seed: u64,
    /// The journal with which the cache is [recovered](super::Soc::recover) after a kill; `None` for recovery after a clean close only.
    pub journal: Option<JournalOptions>,
}

impl SocConfig {
    /// A configuration with the defaults: buckets of 4 KiB, filters of 8 bytes, 16 MiB pending.
    #[must_use]
    pub fn new(offset_bytes: u64, soc_bytes: u64, generation: u64) -> Self {
        Self {
            offset_bytes,
            soc_bytes,
            bucket_bytes: 4096,
            filter_bytes_per_bucket: 8,
            pending_limit_bytes: 16 << 20,
            max_write_bytes: 128 << 10,
            writes_in_flight: 16,
            writes_per_step: 64,
            generation,
            hash_seed: 0,
            journal: None,
        }
    }

    /// Checks the configuration against the device.
    ///
    /// # Errors
    /// The first invalid setting, with the numbers.
    pub fn check(&self, device: &Geometry) -> Result<(), SocConfigError> {
        use SocConfigError as E;
        let block_bytes = u64::from(device.block_bytes);
        let bucket_bytes = u64::from(self.bucket_bytes);
        if !BUCKET_BYTES.contains(&self.bucket_bytes)
            || !self.bucket_bytes.is_power_of_two()
            || self.bucket_bytes < device.block_bytes
            || self.bucket_bytes > device.max_io_bytes
        {
            return Err(E::BucketBytes { bucket_bytes, block_bytes, max_io_bytes: device.max_io_bytes });
        }
        let is_whole_blocks =
            self.journal.is_none_or(|options| u64::from(options.block_bytes).is_multiple_of(block_bytes));
        if !self.offset_bytes.is_multiple_of(block_bytes) || !is_whole_blocks {
            return Err(E::Offset { offset_bytes: self.offset_bytes, block_bytes });
        }
        if self.soc_bytes == 0 || !self.soc_bytes.is_multiple_of(bucket_bytes) {
            return Err(E::SocBytes { soc_bytes: self.soc_bytes, bucket_bytes });
        }
        if self.soc_bytes <= self.journal_bytes() {
            return Err(E::Journal { soc_bytes: self.soc_bytes, journal_bytes: self.journal_bytes() });
        }
        if self.soc_bytes / bucket_bytes > u64::from(u32::MAX) {
            return Err(E::TooManyBuckets { soc_bytes: self.soc_bytes, bucket_bytes });
        }
        if self.offset_bytes.checked_add(self.soc_bytes).is_none_or(|end| end > device.capacity_bytes) {
            return Err(E::BeyondDevice {
                offset_bytes: self.offset_bytes,
                soc_bytes: self.soc_bytes,
                device_bytes: device.capacity_bytes,
            });
        }
        if !self.filter_bytes_per_bucket.is_multiple_of(8)
            || self.filter_bytes_per_bucket > MAX_BYTES_PER_BUCKET
        {
            return Err(E::FilterBytes(self.filter_bytes_per_bucket));
        }
        if self.writes_in_flight == 0 || self.writes_per_step == 0 || self.pending_limit_bytes == 0 {
            return Err(E::Zero);
        }
        Ok(())
    }

    /// Number of buckets of a checked configuration.
    #[must_use]
    pub fn buckets(&self) -> u32 {
        u32::try_from(self.bucket_count()).expect("checked: buckets are counted by a u32")
    }

    fn bucket_count(&self) -> u64 {
        self.soc_bytes.saturating_sub(self.journal_bytes()) / u64::from(self.bucket_bytes.max(1))
    }

    /// Offset of the first bucket.
    pub(super) fn buckets_offset(&self) -> u64 {
        self.offset_bytes + self.journal_bytes()
    }

    fn journal_bytes(&self) -> u64 {
        let journal = self.journal_place();
        journal.map_or(0, |place| place.bytes().next_multiple_of(journal::alignment_bytes(self.bucket_bytes)))
    }

    /// The place of the journal.
    pub(in crate::flash) fn journal_place(&self) -> Option<JournalPlace> {
        let options = self.journal?;
        let bytes = self.soc_bytes / BYTES_PER_JOURNAL_BYTE;
        let blocks = bytes.div_ceil(options.block_bytes.into()) + LEAST_JOURNAL_BLOCKS;
        Some(JournalPlace { offset_bytes: self.offset_bytes, blocks, generation: self.generation, options })
    }

    /// Bytes of a bucket for header and entries.
    fn content_bytes(&self) -> usize {
        self.bucket_bytes as usize - if self.journal.is_some() { NUMBER_BYTES } else { 0 }
    }

    /// Whether an item with this key and value length can be stored.
    #[must_use]
    pub fn fits(&self, key_bytes: usize, value_bytes: usize) -> bool {
        bucket::fits(self.content_bytes(), key_bytes, value_bytes)
    }

    /// The largest sum of key and value that [`fits`](Self::fits), regardless of the key's own limit.
    #[must_use]
    pub fn max_item_bytes(&self) -> usize {
        (self.content_bytes() - HEADER_BYTES).min(usize::from(u16::MAX)) - ENTRY_BYTES
    }

    /// Size of a snapshot.
    #[must_use]
    pub fn snapshot_bytes(&self) -> u64 {
        let buckets = self.bucket_count();
        let bits_bytes = buckets.div_ceil(64) * 8;
        let filters_bytes = buckets * u64::from(self.filter_bytes_per_bucket);
        let journal_bytes =
            self.journal_place().map_or(0, |place| bits_bytes + 8 + Position::max_bytes(place.blocks));
        SNAPSHOT_HEADER_BYTES as u64 + bits_bytes + filters_bytes + journal_bytes
    }
}

/// The reason why a [`SocConfig`] is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum SocConfigError {
    #[error(
        "bucket_bytes: {bucket_bytes} bytes; must be a power of two from 512 to 65,536, not below the device's block \
         ({block_bytes}) nor above its largest transfer ({max_io_bytes})"
    )]
    BucketBytes { bucket_bytes: u64, block_bytes: u64, max_io_bytes: u32 },
    #[error(
        "offset {offset_bytes} of the small-object cache is not a multiple of the device's block ({block_bytes})"
    )]
    Offset { offset_bytes: u64, block_bytes: u64 },
    #[error("{soc_bytes} bytes for small objects are not one or more whole buckets of {bucket_bytes} bytes")]
    SocBytes { soc_bytes: u64, bucket_bytes: u64 },
    #[error(
        "bucket_bytes: {soc_bytes} bytes are more than 4,294,967,295 buckets of {bucket_bytes} bytes; choose larger ones"
    )]
    TooManyBuckets { soc_bytes: u64, bucket_bytes: u64 },
    #[error("{soc_bytes} bytes from offset {offset_bytes} reach past the device's end ({device_bytes})")]
    BeyondDevice { offset_bytes: u64, soc_bytes: u64, device_bytes: u64 },
    #[error(
        "{soc_bytes} bytes for small objects are too few: their journal takes {journal_bytes}; give small items more space, or recover \
         the cache after a clean close only"
    )]
    Journal { soc_bytes: u64, journal_bytes: u64 },
    #[error("filter_bytes_per_bucket: {0} bytes; must be a multiple of 8 up to 128, or 0 for none")]
    FilterBytes(u32),
    #[error("the pending memory, the writes in flight and the writes per step must not be 0")]
    Zero,
}
