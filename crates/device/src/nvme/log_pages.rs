//! Health and wear: SMART (02h), endurance group information (09h) and the OCP extended SMART page (C0h).
//!
//! Sources: NVMe Base specification, Get Log Page; OCP Datacenter NVMe SSD specification, SMART-1 and following. NVMe
//! reserves 0 for "not reported" in the data unit counters; here that is `None`.

use super::bytes::{Malformed, Page, reported};

/// Bytes of each of the three pages.
pub const LOG_PAGE_BYTES: usize = 512;

/// The unit of SMART's data counters: a thousand blocks of 512 bytes.
const SMART_UNIT_BYTES: u128 = 512_000;

/// The unit of an endurance group's data counters.
const GROUP_UNIT_BYTES: u128 = 1_000_000_000;

/// SMART / Health Information (log page 02h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Smart {
    /// Critical warnings: low spare, temperature, degraded, read only, backup failed. 0 is healthy.
    pub critical_warning: u8,
    /// Temperature in degrees Celsius.
    pub temperature_celsius: Option<i32>,
    /// Available spare blocks in percent.
    pub available_spare_percent: u8,
    /// Life used in percent; can exceed 100 up to 255.
    pub life_used_percent: u8,
    /// Bytes read by hosts, to the nearest 512,000.
    pub host_read_bytes: Option<u128>,
    /// Bytes written by hosts, to the nearest 512,000.
    pub host_written_bytes: Option<u128>,
    /// Read commands completed.
    pub host_reads: u128,
    /// Write commands completed.
    pub host_writes: u128,
    /// Hours powered on.
    pub power_on_hours: u128,
    /// Unclean power losses.
    pub unsafe_shutdowns: u128,
    /// Unrecovered data errors.
    pub media_errors: u128,
}

impl Smart {
    /// Decodes log page 02h.
    ///
    /// # Errors
    /// [`Malformed`] if it is too short.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let page = Page::of("SMART log page (02h)", bytes, 176)?;
        let bytes_at = |at| reported(page.u128(at)).and_then(|units| units.checked_mul(SMART_UNIT_BYTES));
        Ok(Self {
            critical_warning: page.u8(0),
            temperature_celsius: reported(page.u16(1)).map(|kelvin| i32::from(kelvin) - 273),
            available_spare_percent: page.u8(3),
            life_used_percent: page.u8(5),
            host_read_bytes: bytes_at(32),
            host_written_bytes: bytes_at(48),
            host_reads: page.u128(64),
            host_writes: page.u128(80),
            power_on_hours: page.u128(128),
            unsafe_shutdowns: page.u128(144),
            media_errors: page.u128(160),
        })
    }
}

/// Endurance Group Information (log page 09h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnduranceGroup {
    /// Life used in percent; can exceed 100.
    pub life_used_percent: u8,
    /// Bytes that can be written in total, to the nearest 10^9.
    pub endurance_estimate_bytes: Option<u128>,
    /// Bytes read by hosts, to the nearest 10^9.
    pub host_read_bytes: Option<u128>,
    /// Bytes written by hosts, to the nearest 10^9.
    pub host_written_bytes: Option<u128>,
    /// Bytes written to the media, including garbage collection, to the nearest 10^9.
    pub media_written_bytes: Option<u128>,
}

impl EnduranceGroup {
    /// Decodes log page 09h.
    ///
    /// # Errors
    /// [`Malformed`] if it is too short.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let page = Page::of("endurance group log page (09h)", bytes, 96)?;
        let bytes_at = |at| reported(page.u128(at)).and_then(|units| units.checked_mul(GROUP_UNIT_BYTES));
        Ok(Self {
            life_used_percent: page.u8(5),
            endurance_estimate_bytes: bytes_at(32),
            host_read_bytes: bytes_at(48),
            host_written_bytes: bytes_at(64),
            media_written_bytes: bytes_at(80),
        })
    }
}

/// OCP SMART / Health Information Extended (log page C0h): exact media bytes, and erase counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OcpSmart {
    /// Bytes written to the media, by hosts and internally.
    pub media_written_bytes: u128,
    /// Bytes read from the media.
    pub media_read_bytes: u128,
    /// Retired blocks of user data; `None` if the drive does not count them (all ones).
    pub bad_user_blocks: Option<u64>,
    /// Highest and lowest erase count of a block with user data.
    pub erase_counts: (u32, u32),
    /// Times that the drive was throttled by heat; counts up to 255.
    pub thermal_throttles: u8,
    /// Free blocks in percent.
    pub free_blocks_percent: u8,
    /// Bytes that can be written in total; `None` if not reported.
    pub endurance_estimate_bytes: Option<u128>,
    /// Version of the page's layout.
    pub version: u16,
}

/// Identifies the page as OCP's; other vendors use C0h differently. Stored last byte first.
const OCP_GUID: u128 = 0xAFD5_14C9_7C6F_4F9C_A4F2_BFEA_2810_AFC5;

impl OcpSmart {
    /// Decodes log page C0h; `None` if the page is not OCP's.
    ///
    /// # Errors
    /// [`Malformed`] if it is too short.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        const ALL_ONES: u64 = (1 << 48) - 1;
        let page = Page::of("OCP SMART log page (C0h)", bytes, LOG_PAGE_BYTES)?;
        if page.u128(496) != OCP_GUID {
            return Ok(None);
        }
        let bad_user_blocks = page.narrow::<6>(32);
        Ok(Some(Self {
            media_written_bytes: page.u128(0),
            media_read_bytes: page.u128(16),
            bad_user_blocks: (bad_user_blocks != ALL_ONES).then_some(bad_user_blocks),
            erase_counts: (page.u32(88), page.u32(92)),
            thermal_throttles: page.u8(96),
            free_blocks_percent: page.u8(120),
            endurance_estimate_bytes: reported(page.u128(176)),
            version: page.u16(494),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::bytes::torture;
    use super::*;

    fn page(fields: &[(usize, u128, usize)]) -> Vec<u8> {
        let mut page = vec![0; LOG_PAGE_BYTES];
        for &(at, value, len) in fields {
            page[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        page
    }

    fn smart() -> Vec<u8> {
        page(&[
            (0, 0x01, 1),
            (1, 310, 2),
            (3, 97, 1),
            (5, 103, 1),
            (32, 10, 16),
            (48, 3, 16),
            (64, 7, 16),
            (80, 9, 16),
            (128, 8760, 16),
            (144, 2, 16),
            (160, 1, 16),
        ])
    }

    #[test]
    fn smart_counts_thousands_of_512_byte_blocks() {
        let expected = Smart {
            critical_warning: 1,
            temperature_celsius: Some(37),
            available_spare_percent: 97,
            life_used_percent: 103,
            host_read_bytes: Some(5_120_000),
            host_written_bytes: Some(1_536_000),
            host_reads: 7,
            host_writes: 9,
            power_on_hours: 8760,
            unsafe_shutdowns: 2,
            media_errors: 1,
        };
        assert_eq!(Smart::decode(&smart()).unwrap(), expected);
    }

    #[test]
    fn endurance_group_counts_in_billions_and_zero_is_unknown() {
        let bytes = page(&[(5, 12, 1), (32, 7_000_000, 16), (64, 5, 16), (80, 7, 16)]);
        let expected = EnduranceGroup {
            life_used_percent: 12,
            endurance_estimate_bytes: Some(7_000_000_000_000_000),
            host_read_bytes: None,
            host_written_bytes: Some(5_000_000_000),
            media_written_bytes: Some(7_000_000_000),
        };
        assert_eq!(EnduranceGroup::decode(&bytes).unwrap(), expected);
        let silent = EnduranceGroup::decode(&page(&[])).unwrap();
        assert_eq!((silent.media_written_bytes, silent.host_written_bytes), (None, None));
    }

    fn ocp() -> Vec<u8> {
        page(&[
            (0, 1 << 70, 16),
            (16, 55, 16),
            (32, 0x0102_0304_0506, 6),
            (38, 99, 2),
            (88, 300, 4),
            (92, 200, 4),
            (96, 4, 1),
            (120, 33, 1),
            (176, 9, 16),
            (494, 3, 2),
            (496, OCP_GUID, 16),
        ])
    }

    #[test]
    fn ocp_page_counts_media_bytes_exactly() {
        let expected = OcpSmart {
            media_written_bytes: 1 << 70,
            media_read_bytes: 55,
            bad_user_blocks: Some(0x0102_0304_0506),
            erase_counts: (300, 200),
            thermal_throttles: 4,
            free_blocks_percent: 33,
            endurance_estimate_bytes: Some(9),
            version: 3,
        };
        assert_eq!(OcpSmart::decode(&ocp()).unwrap(), Some(expected));
        assert_eq!(ocp()[496..500], [0xC5, 0xAF, 0x10, 0x28], "the GUID's first bytes on the wire");
    }

    #[test]
    fn page_without_the_ocp_guid_is_not_decoded() {
        for at in 496..512 {
            let mut bytes = ocp();
            bytes[at] ^= 1;
            assert_eq!(OcpSmart::decode(&bytes).unwrap(), None);
        }
        let mut uncounted = ocp();
        uncounted[32..38].fill(0xFF);
        assert_eq!(OcpSmart::decode(&uncounted).unwrap().unwrap().bad_user_blocks, None);
    }

    #[test]
    fn short_and_random_pages_do_not_panic() {
        torture::prefixes(&smart(), 176, Smart::decode);
        torture::noise(&[0xFF; LOG_PAGE_BYTES], Smart::decode);
        torture::prefixes(&smart(), 96, EnduranceGroup::decode);
        torture::noise(&[0xFF; LOG_PAGE_BYTES], EnduranceGroup::decode);
        torture::prefixes(&ocp(), LOG_PAGE_BYTES, OcpSmart::decode);
        torture::noise(&ocp(), OcpSmart::decode);
    }

    #[test]
    fn overflowing_counters_are_unknown() {
        assert_eq!(Smart::decode(&[0xFF; LOG_PAGE_BYTES]).unwrap().host_written_bytes, None);
        assert_eq!(EnduranceGroup::decode(&[0xFF; LOG_PAGE_BYTES]).unwrap().media_written_bytes, None);
    }
}
