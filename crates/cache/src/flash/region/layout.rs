//! The layout: regions on the device, units in a region, addresses of units.
//!
//! ```text
//! device   | … | region 0 | region 1 | … | region n-1 | rest, unused |
//! region   | entry | entry | … | entry |  hole  | table of entries | trailer |
//!            each begins at a multiple of the unit       [`super::table`] ends with the region
//! ```

use std::ops::Range;

/// Units a store can address: 40 bits. With 64-byte units that is 64 TiB.
pub(crate) const ADDRESS_UNITS: u64 = 1 << 40;

/// Most insertion points a store may have.
pub const MAX_POINTS: usize = 16;

/// A region, counted from the start of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u32);

/// Distinguishes a store from earlier ones on the same device, whose items must not be read. Each new store needs its own identity, for
/// instance a random number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreId(pub u64);

/// The location of an entry, in units from the start of the store; below [`ADDRESS_UNITS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address(pub u64);

/// The sizes of a checked [`super::RegionConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// First byte of the store on the device.
    pub offset_bytes: u64,
    /// Bytes of a region.
    pub region_bytes: u32,
    /// Number of regions.
    pub region_count: u32,
    /// Granularity of entries.
    pub unit_bytes: u32,
    /// Granularity of transfers.
    pub block_bytes: u32,
    /// Longest read.
    pub max_read_bytes: u32,
    /// Longest write.
    pub max_write_bytes: u32,
}

impl Layout {
    pub(crate) fn units_per_region(&self) -> u64 {
        u64::from(self.region_bytes / self.unit_bytes)
    }

    /// Number of units for `bytes`.
    pub(crate) fn units(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(self.unit_bytes as usize)).expect("entries are far below 2^32 units")
    }

    pub(crate) fn address(&self, region: RegionId, unit: u32) -> Address {
        Address(u64::from(region.0) * self.units_per_region() + u64::from(unit))
    }

    /// The region of an address, and the unit within it.
    pub(crate) fn place(&self, address: Address) -> (RegionId, u32) {
        let units = self.units_per_region();
        let region = u32::try_from(address.0 / units).expect("addresses are made from region numbers");
        (RegionId(region), u32::try_from(address.0 % units).expect("a region has at most 2^26 units"))
    }

    /// All addresses of a region.
    pub(crate) fn addresses(&self, region: RegionId) -> Range<Address> {
        let first = self.address(region, 0).0;
        Address(first)..Address(first + self.units_per_region())
    }

    /// First byte of a region on the device.
    pub(crate) fn region_offset(&self, region: RegionId) -> u64 {
        self.offset_bytes + u64::from(region.0) * u64::from(self.region_bytes)
    }

    /// The whole blocks that cover `bytes` of a region.
    pub(crate) fn covering_blocks(&self, bytes: &Range<usize>) -> Range<usize> {
        let block = self.block_bytes as usize;
        let end = bytes.end.next_multiple_of(block).min(self.region_bytes as usize);
        bytes.start / block * block..end
    }

    /// Splits `bytes` into parts of at most `max_bytes`.
    pub(crate) fn pieces(bytes: Range<usize>, max_bytes: u32) -> impl Iterator<Item = Range<usize>> {
        let end = bytes.end;
        bytes.step_by(max_bytes as usize).map(move |start| start..end.min(start + max_bytes as usize))
    }
}

/// A length in units, rounded up to one of 8 steps per power of two so that it fits a byte. One read of this length fetches the whole
/// entry, and at most an eighth more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeHint(pub u8);

impl SizeHint {
    const STEPS: u32 = 8;

    pub(crate) fn of_units(units: u32) -> Self {
        if units < Self::STEPS {
            return Self(u8::try_from(units).expect("below 8"));
        }
        let shift = units.ilog2() - 3;
        let steps = units.div_ceil(1 << shift);
        // Rounding up may give 16 steps, which is step 8 of the next power of two: the sum below handles the carry.
        Self(u8::try_from(shift * Self::STEPS + steps).expect("below 2^30 units this ends at 232"))
    }

    pub(crate) fn units(self) -> u32 {
        let code = u32::from(self.0);
        if code < 2 * Self::STEPS {
            return code;
        }
        let shift = code / Self::STEPS - 1;
        (code - shift * Self::STEPS) << shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const LAYOUT: Layout = Layout {
        offset_bytes: 8192,
        region_bytes: 3 * 4096,
        region_count: 5,
        unit_bytes: 64,
        block_bytes: 4096,
        max_read_bytes: 1 << 20,
        max_write_bytes: 1 << 20,
    };

    #[test]
    fn address_converts_back_to_its_offset() {
        for region in 0..5 {
            for unit in 0..192 {
                let address = LAYOUT.address(RegionId(region), unit);
                assert_eq!(LAYOUT.place(address), (RegionId(region), unit));
                assert!(LAYOUT.addresses(RegionId(region)).contains(&address));
            }
        }
        assert_eq!(LAYOUT.region_offset(RegionId(2)), 8192 + 2 * 12288);
    }

    #[test]
    fn covering_blocks_are_exactly_those_of_the_range() {
        assert_eq!(LAYOUT.covering_blocks(&(0..1)), 0..4096);
        assert_eq!(LAYOUT.covering_blocks(&(4095..4097)), 0..8192);
        assert_eq!(LAYOUT.covering_blocks(&(4096..8192)), 4096..8192);
    }

    #[test]
    fn split_ranges_join_to_the_whole_range() {
        let pieces: Vec<_> = Layout::pieces(0..10_000, 4096).collect();
        assert_eq!(pieces, [0..4096, 4096..8192, 8192..10_000]);
        assert_eq!(Layout::pieces(5..5, 4096).count(), 0);
    }

    #[test]
    fn size_hint_is_never_too_small_and_at_most_an_eighth_too_large() {
        let sizes = (0..70_000).chain((17..=30).flat_map(|bit| (1 << bit) - 3..=(1 << bit) + 3));
        for units in sizes.filter(|&units| units <= 1 << 30) {
            let hinted = SizeHint::of_units(units).units();
            assert!(hinted >= units, "{units} became {hinted}");
            assert!(hinted - units <= units / 8, "{units} became {hinted}");
        }
    }
}
