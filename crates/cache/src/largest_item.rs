//! Checks that items of the configured maximum size can be stored.
//!
//! A default is adapted to the size of DRAM and flash. An explicit size that does not fit is an error: otherwise each insert of such an
//! item would be refused, or the item would be missing on flash, and only a counter would show it.

use crate::config::CacheConfig;
use crate::dram::{HEADER_BYTES, LEAST_SLABS};
use crate::error::CacheError;

impl CacheConfig {
    /// Checks a configured largest item of `asked_bytes`, header and key included.
    pub(crate) fn check_largest_item(&self, asked_bytes: u32) -> Result<(), CacheError> {
        // Explicit sizes are used as they are.
        if !self.dram.alloc_sizes.is_empty() {
            return Ok(());
        }
        let sizes = self.dram.chunk_sizes().map_err(|error| CacheError::Config(error.to_string()))?;
        let largest_bytes = *sizes.last().expect("there is a size");
        if largest_bytes < asked_bytes {
            let needed_bytes = LEAST_SLABS * u64::from(asked_bytes).next_power_of_two();
            let whose =
                if self.memory_budget_bytes.is_some() { "left by memory_budget_bytes" } else { "of DRAM" };
            return Err(CacheError::Config(format!(
                "max_item_bytes is {asked_bytes}, but {} bytes {whose} hold items of at most {largest_bytes}: provide {needed_bytes} \
                 bytes for items, or lower max_item_bytes",
                self.dram.dram_bytes
            )));
        }
        self.check_regions(asked_bytes)
    }

    /// Regions are not enlarged to fit the item: that would divide flash differently and so lose its contents, and would enlarge the
    /// buffers.
    fn check_regions(&self, asked_bytes: u32) -> Result<(), CacheError> {
        let Some(flash) = &self.flash else { return Ok(()) };
        let has_regions = flash.pairs.iter().any(|pair| pair.soc_share < 1.0);
        let (region_bytes, taken) = (flash.regions.region_bytes, flash.regions.max_item_bytes());
        let asked = asked_bytes as usize - HEADER_BYTES.min(asked_bytes as usize);
        if !has_regions || asked <= taken {
            return Ok(());
        }
        let needed_bytes = (asked_bytes as usize + region_bytes as usize - taken).next_multiple_of(1 << 20);
        Err(CacheError::Config(format!(
            "max_item_bytes is {asked_bytes}, but a region of flash holds items of at most {}, and larger ones would never be written to \
             flash: raise regions.region_bytes to {needed_bytes} (now {region_bytes}), or lower max_item_bytes",
            taken + HEADER_BYTES
        )))
    }
}
