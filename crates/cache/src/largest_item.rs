//! Checks that items of the configured maximum size can be stored.
//!
//! A default is adapted to the size of DRAM and flash. An explicit size that does not fit is an error: otherwise each item of that
//! size would be refused, or be missing on flash, and only a counter would show it.

use crate::config::CacheConfig;
use crate::dram::{DramConfig, KEY_ALLOWANCE_BYTES};
use crate::error::CacheError;

impl CacheConfig {
    /// Checks a configured largest value of `requested_bytes`.
    pub(crate) fn check_largest_item(&self, requested_bytes: u32) -> Result<(), CacheError> {
        // Explicit sizes are used as they are.
        if !self.dram.alloc_sizes.is_empty() {
            return Ok(());
        }
        let largest_bytes =
            self.dram.max_value_bytes().map_err(|error| CacheError::Config(error.to_string()))?;
        if largest_bytes < requested_bytes as usize {
            let needed_bytes = DramConfig::least_dram_bytes(requested_bytes);
            let room =
                if self.memory_budget_bytes.is_some() { "left by memory_budget_bytes" } else { "of DRAM" };
            return Err(CacheError::Config(format!(
                "max_item_bytes is {requested_bytes}, but {} bytes {room} hold values of at most {largest_bytes}: \
                 provide {needed_bytes} bytes for items, or lower max_item_bytes",
                self.dram.dram_bytes
            )));
        }
        self.check_regions(requested_bytes)
    }

    /// Regions are not enlarged to fit the item: that would divide flash differently and so lose its contents, and would enlarge the
    /// buffers.
    fn check_regions(&self, requested_bytes: u32) -> Result<(), CacheError> {
        let Some(flash) = &self.flash else { return Ok(()) };
        let has_regions = flash.pairs.iter().any(|pair| pair.soc_share < 1.0);
        let (region_bytes, taken) = (flash.regions.region_bytes, flash.regions.max_item_bytes());
        let payload_bytes = requested_bytes as usize + KEY_ALLOWANCE_BYTES;
        if !has_regions || payload_bytes <= taken {
            return Ok(());
        }
        let needed_bytes = (payload_bytes + region_bytes as usize - taken).next_multiple_of(1 << 20);
        Err(CacheError::Config(format!(
            "max_item_bytes is {requested_bytes}, but a region of flash holds values of at most {}, and larger ones would never be written to \
             flash: raise regions.region_bytes to {needed_bytes} (now {region_bytes}), or lower max_item_bytes",
            taken.saturating_sub(KEY_ALLOWANCE_BYTES)
        )))
    }
}
