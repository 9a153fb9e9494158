//! The snapshot of the small-object cache at a clean close: the non-empty buckets and their filters.
//!
//! ```text
//!      0         4                  8       16          16 + bits
//!      +---------+------------------+-------+-----------+--------------+
//!      | buckets | words per filter | items | one bit a | the filters' |
//!      | u32     | u32              | i64   | bucket    | words        |
//!      +---------+------------------+-------+-----------+--------------+
//! ```
//!
//! With a [journal](crate::flash::journal) there follow one bit per bucket for those with unknown content on flash, the number of the last
//! write (u64), the position of the journal, and zeros up to the size of the largest position.
//!
//! Little-endian; bits in words of 64. The checksum of the enclosing snapshot covers this section.

use super::Soc;
use super::config::SNAPSHOT_HEADER_BYTES as HEADER_BYTES;

/// Words per piece of a snapshot, which is never in memory as a whole.
const PIECE_WORDS: usize = 8192;

/// Why a snapshot was not restored. The cache is unchanged and empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The length does not match the configuration.
    #[error("the small-object cache's snapshot has {found} bytes instead of {expected}")]
    Length {
        /// Bytes of the snapshot.
        found: u64,
        /// Bytes it should have.
        expected: u64,
    },
    /// The snapshot has another number of buckets or another filter size.
    #[error(
        "the snapshot is of {found_buckets} buckets with filters of {found_words} words, the cache has {buckets} with {words}"
    )]
    Shape {
        /// Buckets in the snapshot.
        found_buckets: u32,
        /// Words of a filter in the snapshot.
        found_words: u32,
        /// Buckets of the cache.
        buckets: u32,
        /// Words of a filter of the cache.
        words: u32,
    },
    /// The position of the journal is damaged.
    #[error("the journal's position in the small-object cache's snapshot is damaged")]
    Journal,
}

impl Soc {
    /// The snapshot, in pieces. Call [`drain`](Self::drain) first: pending entries are not included.
    ///
    /// # Panics
    /// If entries are pending: the snapshot would contain older versions of them.
    pub fn snapshot(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        assert_eq!(self.stats().pending_entries, 0, "a snapshot is taken of a drained cache");
        let mut words = self.written.words().chain(self.filters.words());
        let pieces = std::iter::from_fn(move || {
            let piece: Vec<u8> = words.by_ref().take(PIECE_WORDS).flat_map(u64::to_le_bytes).collect();
            (!piece.is_empty()).then_some(piece)
        });
        // Keys that are removed from now on are in neither part, or the snapshot is repeated.
        let journal = std::iter::once_with(|| self.journal_snapshot());
        std::iter::once(self.snapshot_header()).chain(pieces).chain(journal)
    }

    /// Restores a snapshot. The cache must be new and of the generation in which the snapshot was taken.
    ///
    /// # Errors
    /// The snapshot does not match the configuration, or is damaged.
    pub fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let expected = self.config.snapshot_bytes();
        if snapshot.len() as u64 != expected {
            return Err(RestoreError::Length { found: snapshot.len() as u64, expected });
        }
        let (header, words) = snapshot.split_at(HEADER_BYTES);
        let [found_buckets, found_words] =
            [0, 4].map(|at| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")));
        let (buckets, filter_words) = (self.buckets, self.config.filter_bytes_per_bucket / 8);
        if (found_buckets, found_words) != (buckets, filter_words) {
            return Err(RestoreError::Shape { found_buckets, found_words, buckets, words: filter_words });
        }
        let (bits, words) = words.split_at(self.written.bytes());
        let (filters, journal) = words.split_at(self.filters.bytes());
        self.restore_journal(journal)?;
        for (index, word) in words_of(bits).enumerate() {
            self.written.restore_word(index, word);
        }
        for (index, word) in words_of(filters).enumerate() {
            self.filters.restore_word(index, word);
        }
        let items = i64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
        self.shards[0].lock().stats.items += items;
        Ok(())
    }

    fn snapshot_header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(self.buckets.to_le_bytes());
        header.extend((self.config.filter_bytes_per_bucket / 8).to_le_bytes());
        header.extend(self.stats().items.to_le_bytes());
        header
    }
}

pub(super) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
}
