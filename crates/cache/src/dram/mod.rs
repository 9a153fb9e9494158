//! The DRAM tier.
