//! The engine for small items on flash.

/// The engine for small items on flash.
///
/// The log writes each item once, sequentially. It needs about 3 bytes of DRAM per item (computed) and two regions in memory. Sets write
/// a whole set of 4 KiB for a few new items, at random offsets, and need less than one byte of DRAM per item. Measurements are in
/// `docs/benchmarks.md`.
///
/// Sets are better if DRAM is scarce and items are tiny: at 50 bytes per item, the index of 1 TB of items takes 60 GB in a log and 2 GB
/// of filters with sets. They are also better if items are overwritten or removed often, since an old version takes space in a log until
/// its region is evicted, and if flash for small items is below about 16 MiB, so that a region is a large share of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SmallItems {
    /// Set-associative buckets ([`Soc`](crate::flash::soc::Soc)).
    Sets,
    /// A log in hash order ([`HashLog`](crate::flash::log::HashLog)).
    Log(LogOptions),
}

/// Options of [`SmallItems::Log`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogOptions {
    /// Expected mean of key and value in bytes, which sizes the index. With smaller items the index fills before the log does,
    /// and the oldest items leave earlier.
    pub expected_item_bytes: u32,
    /// Share of each region that may be used for items of the evicted region that were read since their last write; 0 disables
    /// readmission. It raises hits and bytes written.
    pub readmission_share: f64,
    /// Number of regions, 4 to 3,584; `None` chooses it by the size of the log.
    pub regions: Option<u32>,
}

impl Default for LogOptions {
    /// Items of 256 bytes, readmission into at most a quarter of each region.
    fn default() -> Self {
        Self { expected_item_bytes: 256, readmission_share: 0.25, regions: None }
    }
}
