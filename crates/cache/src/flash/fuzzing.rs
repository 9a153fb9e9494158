//! Decodes arbitrary bytes as every format on flash; for fuzz targets only.
//!
//! Checksums are corrected first, so that the checks behind them are tested too.

use super::{journal, region, soc, superblock};

/// The first byte selects the format, the rest is the content. Decoding must not panic, and encoding the result must reproduce the
/// content.
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

/// Decodes arbitrary bytes as the blocks of a journal, and recovers engines by it.
pub fn check_journal(data: &[u8]) {
    journal::fuzzing::check(data);
}
