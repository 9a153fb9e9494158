//! Copies pages from one flash device to another.

use device::Device;
use device::checksum::crc32c;
use futures_util::future::join_all;

use super::error::{Result, VolumeError};
use super::layout::Layout;

/// Concurrent page copies.
pub(super) const PAGES_AT_ONCE: usize = 64;

/// A page to copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    pub block: u64,
    pub dirty: bool,
    pub from: u32,
    pub to: u32,
    /// Expected checksum of the page, if known.
    pub crc: Option<u32>,
}

/// Copies pages. Returns those that cannot be read, with the reason.
pub(super) async fn copy_pages(
    [old, new]: [&dyn Device; 2],
    [from, to]: [Layout; 2],
    part: &[Move],
) -> Result<Vec<(Move, String)>> {
    let reads = part.iter().map(|step| old.read(from.page_offset(step.from), from.block_bytes as usize));
    let (mut writes, mut unreadable) = (Vec::new(), Vec::new());
    for (step, read) in part.iter().zip(join_all(reads).await) {
        let page = match read {
            Ok(page) => page,
            Err(error) => {
                unreadable.push((*step, error.to_string()));
                continue;
            }
        };
        if step.crc.is_some_and(|known| known != crc32c(&page)) {
            unreadable.push((*step, "its checksum is wrong".into()));
            continue;
        }
        writes.push(new.write(to.page_offset(step.to), page));
    }
    let written: std::result::Result<Vec<_>, _> = join_all(writes).await.into_iter().collect();
    written.map_err(|error| VolumeError::flash("copying to the new flash", error))?;
    Ok(unreadable)
}
