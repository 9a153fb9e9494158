//! Parts of the cache for the benches, tools and fuzz targets of this repository. They may change in any release.

/// The DRAM tier.
pub mod dram {
    pub use crate::dram::{Discard, Dram, HEADER_BYTES};
}

/// Decoders of the formats on flash, for fuzz targets.
#[cfg(feature = "fuzzing")]
pub use crate::flash::fuzzing;
pub use crate::flash::{FlashItem, Waiting};

/// The log of small items.
pub mod log {
    pub use crate::flash::log::{HashLog, LogConfig, memory_of};
}

/// The region stores.
pub mod region {
    pub use crate::flash::region::{
        DryStore, ENTRY_HEADER_BYTES, Lookup, Packing, Progress, Refusal, RegionStore, StoreId,
    };
}

/// The sets of small items.
pub mod soc {
    pub use crate::flash::soc::{BUCKET_HEADER_BYTES, ENTRY_BYTES, Soc, SocConfig};
}

/// The superblock.
pub mod superblock {
    pub use crate::flash::superblock::{Recognised, SUPERBLOCKS_BYTES, recognise_head};
}
