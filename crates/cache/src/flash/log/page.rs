//! The flash format of a page: small items in the order of their hashes.
//!
//! ```text
//!      0          4        6       8      12            16     20             28           36
//!      +----------+--------+-------+------+-------------+------+--------------+------------+---------+-- ··· --+ - - - - +
//!      | checksum | format | items | page | scale pages | used | region       | generation | entry 0 | entry 1 |  unused |
//!      | u32      | u16    | u16   | u32  | u32         | u32  | sequence u64 | u64        |         |         |         |
//!      +----------+--------+-------+------+-------------+------+--------------+------------+---------+-- ··· --+ - - - - +
//!
//!      0       1         2           4            4 or 8     + 0 or 2
//!      +-------+---------+-----------+------------+----------+-- ··· --+-- ··· --+
//!      | flags | key len | value len | expiry u32 | tag u16  | key     | value   |
//!      | u8    | u8      | u16       | if flag 1  | if flag 2|         |         |
//!      +-------+---------+-----------+------------+----------+-- ··· --+-- ··· --+
//! ```
//!
//! All numbers are little-endian. `used` is the end of the last entry; `scale pages` is that of the region's [fences](super::fences). The
//! checksum is CRC-32C of the bytes from `format` to `used`.

use std::ops::Range;

use device::checksum::crc32c;

/// Bytes before the entries.
pub const HEADER_BYTES: usize = GENERATION_AT + 8;
/// Smallest and largest page: the smallest device block, and the largest power of two for a `u16` value length.
pub const PAGE_BYTES: std::ops::RangeInclusive<u32> = 512..=32_768;
/// Longest key of an entry.
pub const MAX_KEY_BYTES: usize = u8::MAX as usize;

const FORMAT: u16 = 0x4C02;
const FORMAT_AT: usize = 4;
const ITEMS_AT: usize = FORMAT_AT + 2;
const PAGE_AT: usize = ITEMS_AT + 2;
const SCALE_AT: usize = PAGE_AT + 4;
const USED_AT: usize = SCALE_AT + 4;
const SEQUENCE_AT: usize = USED_AT + 4;
const GENERATION_AT: usize = SEQUENCE_AT + 8;

const ENTRY_FIXED_BYTES: usize = 4;
const FLAG_EXPIRY: u8 = 1;
const FLAG_TAG: u8 = 2;
const FLAGS: u8 = FLAG_EXPIRY | FLAG_TAG;
/// Largest entry header: fixed part, expiry time, tag.
const MAX_ENTRY_HEADER_BYTES: usize = ENTRY_FIXED_BYTES + 4 + 2;

/// The location that a page must name to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub generation: u64,
    /// Sequence number of the region. It never recurs within a generation.
    pub sequence: u64,
    /// Number of the page in its region.
    pub page: u32,
    /// The number of pages that positions in the region are scaled for.
    pub scale_pages: u32,
}

/// An item in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// Unix second at which the item expires; 0 is never.
    pub expiry_seconds: u32,
    /// Opaque.
    pub tag: u16,
    /// Offset of the value in the page.
    value_at: usize,
}

impl Entry<'_> {
    /// The location of the value in the page.
    pub fn value_range(&self) -> Range<usize> {
        self.value_at..self.value_at + self.value.len()
    }

    /// Bytes of the item in a page.
    pub fn page_bytes(&self) -> usize {
        entry_bytes(self.key.len() + self.value.len(), self.expiry_seconds, self.tag)
    }
}

/// The reason why a page cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// Valid, but of another region, generation or location: never written since, or overwritten.
    Other,
    /// The checksum or the structure is wrong.
    Damaged,
}

/// Whether a key and a value fit a page of `page_bytes`, with any expiry time and tag.
#[must_use]
pub fn fits(page_bytes: usize, key_bytes: usize, value_bytes: usize) -> bool {
    key_bytes <= MAX_KEY_BYTES && key_bytes + value_bytes <= max_item_bytes(page_bytes)
}

/// The largest sum of key and value.
#[must_use]
pub fn max_item_bytes(page_bytes: usize) -> usize {
    page_bytes.saturating_sub(HEADER_BYTES + MAX_ENTRY_HEADER_BYTES)
}

/// Bytes of an entry.
#[must_use]
pub fn entry_bytes(item_bytes: usize, expiry_seconds: u32, tag: u16) -> usize {
    let expiry = if expiry_seconds == 0 { 0 } else { 4 };
    let tag = if tag == 0 { 0 } else { 2 };
    ENTRY_FIXED_BYTES + expiry + tag + item_bytes
}

/// Writes one page into zeroed bytes.
pub struct PageWriter<'a> {
    bytes: &'a mut [u8],
    used: usize,
    items: u16,
}

impl<'a> PageWriter<'a> {
    /// Begins a page that fills `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, used: HEADER_BYTES, items: 0 }
    }

    /// Appends an item. `item` is the key, followed by the value.
    ///
    /// # Panics
    /// If the item does not fit.
    pub fn push(&mut self, item: &[u8], key_len: u8, expiry_seconds: u32, tag: u16) {
        let value_len = u16::try_from(item.len() - usize::from(key_len)).expect("an item fits a page");
        let flags = if expiry_seconds == 0 { 0 } else { FLAG_EXPIRY } | if tag == 0 { 0 } else { FLAG_TAG };
        self.put(&[flags, key_len]);
        self.put(&value_len.to_le_bytes());
        if expiry_seconds != 0 {
            self.put(&expiry_seconds.to_le_bytes());
        }
        if tag != 0 {
            self.put(&tag.to_le_bytes());
        }
        self.put(item);
        self.items += 1;
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    /// Writes the header and the checksum.
    pub fn seal(self, identity: Identity) {
        let Self { bytes, used, items } = self;
        bytes[FORMAT_AT..ITEMS_AT].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[ITEMS_AT..PAGE_AT].copy_from_slice(&items.to_le_bytes());
        bytes[PAGE_AT..SCALE_AT].copy_from_slice(&identity.page.to_le_bytes());
        bytes[SCALE_AT..USED_AT].copy_from_slice(&identity.scale_pages.to_le_bytes());
        bytes[USED_AT..SEQUENCE_AT].copy_from_slice(&(used as u32).to_le_bytes());
        bytes[SEQUENCE_AT..GENERATION_AT].copy_from_slice(&identity.sequence.to_le_bytes());
        bytes[GENERATION_AT..HEADER_BYTES].copy_from_slice(&identity.generation.to_le_bytes());
        let checksum = crc32c(&bytes[FORMAT_AT..used]);
        bytes[..FORMAT_AT].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// A verified page.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    bytes: &'a [u8],
    items: u16,
}

impl<'a> Page<'a> {
    /// Verifies `bytes`, one page as it was read.
    ///
    /// # Errors
    /// See [`Unusable`].
    pub fn open(bytes: &'a [u8], identity: Identity) -> Result<Self, Unusable> {
        let page = Self::with_checksum(bytes, identity)?;
        // Entries are sliced by their own lengths: a wrong length must not cause a panic.
        if page.is_well_formed() { Ok(page) } else { Err(Unusable::Damaged) }
    }

    /// The item with this key in `bytes`, one page as it was read. Unlike [`open`](Self::open), it decodes the entries once, and only those
    /// up to the item.
    ///
    /// # Errors
    /// See [`Unusable`].
    pub fn find(bytes: &'a [u8], identity: Identity, key: &[u8]) -> Result<Option<Entry<'a>>, Unusable> {
        let page = Self::with_checksum(bytes, identity)?;
        let mut at = HEADER_BYTES;
        for _ in 0..page.items {
            let (entry, end) = decode(page.bytes, at).ok_or(Unusable::Damaged)?;
            if entry.key == key {
                return Ok(Some(entry));
            }
            at = end;
        }
        if at == page.bytes.len() { Ok(None) } else { Err(Unusable::Damaged) }
    }

    /// Verifies everything but the entries.
    fn with_checksum(bytes: &'a [u8], identity: Identity) -> Result<Self, Unusable> {
        let used = u32_at(bytes, USED_AT) as usize;
        // `used` is covered by the checksum, so a value out of range is damage.
        if !(HEADER_BYTES..=bytes.len()).contains(&used)
            || crc32c(&bytes[FORMAT_AT..used]) != u32_at(bytes, 0)
        {
            return Err(Unusable::Damaged);
        }
        // A correct checksum over another format was written by another program.
        if u16_at(bytes, FORMAT_AT) != FORMAT {
            return Err(Unusable::Other);
        }
        let found = Identity {
            generation: u64_at(bytes, GENERATION_AT),
            sequence: u64_at(bytes, SEQUENCE_AT),
            page: u32_at(bytes, PAGE_AT),
            scale_pages: u32_at(bytes, SCALE_AT),
        };
        if found != identity {
            return Err(Unusable::Other);
        }
        Ok(Self { bytes: &bytes[..used], items: u16_at(bytes, ITEMS_AT) })
    }

    fn is_well_formed(&self) -> bool {
        let mut at = HEADER_BYTES;
        for _ in 0..self.items {
            match decode(self.bytes, at) {
                Some((_, end)) => at = end,
                None => return false,
            }
        }
        at == self.bytes.len()
    }

    /// The items of the page.
    pub fn entries(self) -> impl Iterator<Item = Entry<'a>> {
        let mut at = HEADER_BYTES;
        (0..self.items).map_while(move |_| {
            let (entry, end) = decode(self.bytes, at)?;
            at = end;
            Some(entry)
        })
    }
}

fn decode(bytes: &[u8], at: usize) -> Option<(Entry<'_>, usize)> {
    let fixed = bytes.get(at..at + ENTRY_FIXED_BYTES)?;
    let (flags, key_len) = (fixed[0], usize::from(fixed[1]));
    let value_len = usize::from(u16::from_le_bytes([fixed[2], fixed[3]]));
    if flags & !FLAGS != 0 {
        return None;
    }
    let mut at = at + ENTRY_FIXED_BYTES;
    let mut expiry_seconds = 0;
    if flags & FLAG_EXPIRY != 0 {
        expiry_seconds = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
        at += 4;
    }
    let mut tag = 0;
    if flags & FLAG_TAG != 0 {
        tag = u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
        at += 2;
    }
    let value_at = at + key_len;
    let key = bytes.get(at..value_at)?;
    let value = bytes.get(value_at..value_at + value_len)?;
    Some((Entry { key, value, expiry_seconds, tag, value_at }, value_at + value_len))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity { generation: 7, sequence: 9, page: 3, scale_pages: 12 };

    fn sample() -> Vec<u8> {
        let mut bytes = vec![0; 512];
        let mut writer = PageWriter::new(&mut bytes);
        writer.push(b"keyvalue", 3, 0, 0);
        writer.push(b"k2", 2, 1000, 0);
        writer.push(b"xlonger value", 1, 1000, 0x8001);
        writer.seal(IDENTITY);
        bytes
    }

    #[test]
    fn sealed_page_returns_its_items() {
        let bytes = sample();
        let page = Page::open(&bytes, IDENTITY).unwrap();
        let found: Vec<_> = page.entries().map(|e| (e.key, e.value, e.expiry_seconds, e.tag)).collect();
        let expected: [(&[u8], &[u8], u32, u16); 3] =
            [(b"key", b"value", 0, 0), (b"k2", b"", 1000, 0), (b"x", b"longer value", 1000, 0x8001)];
        assert_eq!(found, expected);
        let find = |key: &[u8]| Page::find(&bytes, IDENTITY, key).unwrap();
        assert_eq!(&bytes[find(b"x").unwrap().value_range()], b"longer value");
        assert_eq!(find(b"absent"), None);
    }

    /// A program error, or a file that was made to mislead: the checksum alone does not vouch for the lengths of entries.
    #[test]
    fn wrong_lengths_with_a_correct_checksum_are_damage() {
        let sealed = |used: usize, flags: u8, value_len: u8| {
            let mut bytes = sample();
            bytes[HEADER_BYTES] = flags;
            bytes[HEADER_BYTES + 2] = value_len;
            bytes[USED_AT..SEQUENCE_AT].copy_from_slice(&(used as u32).to_le_bytes());
            let checksum = crc32c(&bytes[FORMAT_AT..used]);
            bytes[..FORMAT_AT].copy_from_slice(&checksum.to_le_bytes());
            bytes
        };
        let used = u32_at(&sample(), USED_AT) as usize;
        assert!(Page::open(&sealed(used, 0, 5), IDENTITY).is_ok());
        for (used, flags, value_len) in [(used, 0, 255), (used, 4, 5), (used - 1, 0, 5), (used + 1, 0, 5)] {
            let bytes = sealed(used, flags, value_len);
            let about = format!("{used} bytes used, flags {flags}, value of {value_len} bytes");
            assert_eq!(Page::open(&bytes, IDENTITY).unwrap_err(), Unusable::Damaged, "{about}");
            assert_eq!(Page::find(&bytes, IDENTITY, b"absent"), Err(Unusable::Damaged), "{about}");
        }
    }

    #[test]
    fn every_flipped_byte_up_to_the_last_entry_is_detected() {
        let bytes = sample();
        let used = u32_at(&bytes, USED_AT) as usize;
        for at in 0..used {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert!(Page::open(&changed, IDENTITY).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn page_of_another_location_is_refused() {
        let bytes = sample();
        let others = [
            Identity { generation: 8, ..IDENTITY },
            Identity { sequence: 10, ..IDENTITY },
            Identity { page: 2, ..IDENTITY },
            Identity { scale_pages: 11, ..IDENTITY },
        ];
        for other in others {
            assert_eq!(Page::open(&bytes, other).unwrap_err(), Unusable::Other);
        }
        assert_eq!(Page::open(&[0; 512], IDENTITY).unwrap_err(), Unusable::Damaged);
    }

    #[test]
    fn header_has_its_golden_bytes() {
        let bytes = sample();
        let header = [
            &[0x02, 0x4C][..],
            &[3, 0],
            &[3, 0, 0, 0],
            &[12, 0, 0, 0],
            &(u32::try_from(HEADER_BYTES + 12 + 10 + 23).unwrap()).to_le_bytes(),
            &9_u64.to_le_bytes(),
            &7_u64.to_le_bytes(),
            &[0, 3, 5, 0],
            b"keyvalue",
            &[1, 2, 0, 0, 0xE8, 3, 0, 0],
            b"k2",
            &[3, 1, 12, 0, 0xE8, 3, 0, 0, 1, 0x80],
            b"xlonger value",
        ]
        .concat();
        assert_eq!(&bytes[FORMAT_AT..FORMAT_AT + header.len()], &header[..]);
        assert_eq!(crc32c(&header), u32_at(&bytes, 0));
    }

    #[test]
    fn largest_item_fits_its_page() {
        let mut bytes = vec![0; 4096];
        let item = vec![1; max_item_bytes(4096)];
        assert!(fits(4096, 255, item.len() - 255) && !fits(4096, 255, item.len() - 254));
        let mut writer = PageWriter::new(&mut bytes);
        writer.push(&item, 255, 5, 5);
        writer.seal(IDENTITY);
        assert_eq!(Page::open(&bytes, IDENTITY).unwrap().entries().count(), 1);
    }
}
