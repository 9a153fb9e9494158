//! Every format on flash, on bytes that nobody wrote: for the fuzz targets alone.
//!
//! Checksums are made right first. What flips by itself they find; these checks are about what they vouch for wrongly.

use super::{region, soc, superblock};

/// The first byte chooses the format, the rest is the content. Nothing panics, and what is read back is what was there.
pub fn check(data: &[u8]) {
    let Some((&format, bytes)) = data.split_first() else { return };
    match format % 5 {
        0 => superblock::fuzzing::check(bytes),
        1 => soc::fuzzing::check(bytes),
        2 => region::fuzzing::check_entry(bytes),
        3 => region::fuzzing::check_table(bytes),
        _ => region::fuzzing::check_snapshot(bytes),
    }
}
