//! The Identify data structures of controller (NVMe Base specification) and namespace (NVM Command Set specification).

use super::bytes::{Malformed, Page, reported};

/// Bytes of every Identify data structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// The controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Model.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Firmware revision.
    pub firmware: String,
    /// NVMe qualified name of the subsystem; empty if it has none.
    pub subsystem_nqn: String,
    /// The controller's number within its subsystem.
    pub id: u16,
    /// PCI vendor.
    pub vendor_id: u16,
    /// Supported NVMe version as (major, minor, tertiary); `None` before 1.2.
    pub version: Option<(u16, u8, u8)>,
    /// Longest transfer, as a power of two of the smallest memory page (MDTS); `None` without a limit.
    pub max_transfer_pages_log2: Option<u8>,
    /// Raw capacity of the whole subsystem in bytes, if reported.
    pub total_capacity_bytes: Option<u128>,
    /// Whether there is a volatile write cache.
    pub volatile_write_cache: bool,
    /// Whether Dataset Management (trim) is supported.
    pub dataset_management: bool,
    /// Whether it can create and delete namespaces.
    pub namespace_management: bool,
    /// Whether Flexible Data Placement is supported (CTRATT bit 19); it can still be disabled.
    pub fdp: bool,
    /// Whether it has endurance groups (CTRATT bit 4).
    pub endurance_groups: bool,
    /// Highest endurance group; `None` if there are none.
    pub max_endurance_group: Option<u16>,
}

impl Controller {
    /// Decodes the Identify Controller data structure (CNS 01h).
    ///
    /// # Errors
    /// [`Malformed`] if it is too short.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let page = Page::of("Identify Controller data structure", bytes, 1024)?;
        let (attributes, admin, io) = (page.u32(96), page.u16(256), page.u16(520));
        Ok(Self {
            serial: page.text(4, 20),
            model: page.text(24, 40),
            firmware: page.text(64, 8),
            subsystem_nqn: page.text(768, 256),
            id: page.u16(78),
            vendor_id: page.u16(0),
            version: reported(page.u32(80)).map(|it| ((it >> 16) as u16, (it >> 8) as u8, it as u8)),
            max_transfer_pages_log2: reported(page.u8(77)),
            total_capacity_bytes: reported(page.u128(280)),
            volatile_write_cache: page.u8(525) & 1 != 0,
            dataset_management: io & (1 << 2) != 0,
            namespace_management: admin & (1 << 3) != 0,
            fdp: attributes & (1 << 19) != 0,
            endurance_groups: attributes & (1 << 4) != 0,
            max_endurance_group: reported(page.u16(340)),
        })
    }
}

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Size in logical blocks.
    pub size_blocks: u64,
    /// Allocated blocks; drives that do not count them report the capacity.
    pub used_blocks: u64,
    /// Bytes of a logical block; `None` if the current format is missing or invalid.
    pub block_bytes: Option<u32>,
    /// Bytes of metadata with each block.
    pub metadata_bytes: u16,
    /// Whether metadata follow each block's data in the same buffer.
    pub extended_blocks: bool,
    /// Preferred write granularity (NPWG) in bytes: the indirection unit, if the drive reports it.
    pub preferred_write_bytes: Option<u64>,
    /// The namespace's endurance group; `None` if not reported.
    pub endurance_group: Option<u16>,
}

impl Namespace {
    /// Decodes the Identify Namespace data structure (CNS 00h).
    ///
    /// # Errors
    /// [`Malformed`] if it is too short.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        const FORMATS: usize = 128;
        const MAX_FORMATS: usize = 64;
        let page = Page::of("Identify Namespace data structure", bytes, FORMATS + 4 * MAX_FORMATS)?;
        let format_in_use = page.u8(26);
        // The upper two bits of the index were added when sixteen formats no longer sufficed.
        let index = usize::from(format_in_use & 0xF | (format_in_use >> 1) & 0x30);
        let block_log2 = page.u8(FORMATS + 4 * index + 2);
        let block_bytes = (9..32).contains(&block_log2).then(|| 1 << block_log2);
        let tells_preferences = page.u8(24) & (1 << 4) != 0;
        let preferred = |blocks_less_one: u16| {
            tells_preferences.then(|| Some((u64::from(blocks_less_one) + 1) * u64::from(block_bytes?)))?
        };
        Ok(Self {
            size_blocks: page.u64(0),
            used_blocks: page.u64(16),
            block_bytes,
            metadata_bytes: page.u16(FORMATS + 4 * index),
            extended_blocks: format_in_use & (1 << 4) != 0,
            preferred_write_bytes: preferred(page.u16(64)),
            endurance_group: reported(page.u16(102)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::bytes::torture;
    use super::*;

    fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
        page[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn controller() -> Vec<u8> {
        let mut page = vec![0; IDENTIFY_BYTES];
        put(&mut page, 0, &[0x4D, 0x14]);
        put(&mut page, 4, b"S64ANE0R123456      ");
        put(&mut page, 24, b"PM9D3a 1.92TB\x1b                          ");
        put(&mut page, 64, b"GDC7402Q");
        (page[77], page[78]) = (7, 0x41);
        put(&mut page, 80, &0x0002_0001u32.to_le_bytes());
        put(&mut page, 96, &(1u32 << 19 | 1 << 4).to_le_bytes());
        put(&mut page, 256, &[0x08, 0]);
        put(&mut page, 280, &1_920_383_410_176u128.to_le_bytes());
        put(&mut page, 340, &[1, 0]);
        put(&mut page, 520, &[4, 0]);
        page[525] = 1;
        put(&mut page, 768, b"nqn.1994-11.com.example:drive");
        page
    }

    #[test]
    fn controller_page_decodes_identity_and_capabilities() {
        let found = Controller::decode(&controller()).unwrap();
        let expected = Controller {
            model: "PM9D3a 1.92TB?".into(),
            serial: "S64ANE0R123456".into(),
            firmware: "GDC7402Q".into(),
            subsystem_nqn: "nqn.1994-11.com.example:drive".into(),
            id: 0x41,
            vendor_id: 0x144D,
            version: Some((2, 0, 1)),
            max_transfer_pages_log2: Some(7),
            total_capacity_bytes: Some(1_920_383_410_176),
            volatile_write_cache: true,
            dataset_management: true,
            namespace_management: true,
            fdp: true,
            endurance_groups: true,
            max_endurance_group: Some(1),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn controller_page_of_zeros_decodes_to_unknown_fields() {
        let found = Controller::decode(&vec![0; IDENTIFY_BYTES]).unwrap();
        assert_eq!((found.version, found.max_transfer_pages_log2), (None, None));
        assert_eq!((found.total_capacity_bytes, found.max_endurance_group), (None, None));
        assert!(!found.fdp && !found.dataset_management);
    }

    fn namespace() -> Vec<u8> {
        let mut page = vec![0; IDENTIFY_BYTES];
        put(&mut page, 0, &65_536u64.to_le_bytes());
        put(&mut page, 16, &1234u64.to_le_bytes());
        page[24] = 1 << 4;
        page[26] = 1 << 5 | 1; // format 17: upper bits 01, lower 0001
        put(&mut page, 64, &3u16.to_le_bytes());
        put(&mut page, 102, &[1, 0]);
        put(&mut page, 128 + 4 * 17, &[8, 0, 12, 0]);
        page
    }

    #[test]
    fn namespace_has_the_block_size_of_the_current_format() {
        let expected = Namespace {
            size_blocks: 65_536,
            used_blocks: 1234,
            block_bytes: Some(4096),
            metadata_bytes: 8,
            extended_blocks: false,
            preferred_write_bytes: Some(16384),
            endurance_group: Some(1),
        };
        assert_eq!(Namespace::decode(&namespace()).unwrap(), expected);
    }

    #[test]
    fn invalid_block_size_and_unreported_preference_are_unknown() {
        let mut page = namespace();
        page[128 + 4 * 17 + 2] = 40;
        let found = Namespace::decode(&page).unwrap();
        assert_eq!((found.block_bytes, found.preferred_write_bytes), (None, None));
        page = namespace();
        (page[24], page[102]) = (0, 0);
        let found = Namespace::decode(&page).unwrap();
        assert_eq!((found.preferred_write_bytes, found.endurance_group), (None, None));
    }

    #[test]
    fn short_and_random_pages_do_not_panic() {
        torture::prefixes(&controller(), 1024, Controller::decode);
        torture::noise(&controller(), Controller::decode);
        torture::prefixes(&namespace(), 384, Namespace::decode);
        torture::noise(&namespace(), Namespace::decode);
    }
}
