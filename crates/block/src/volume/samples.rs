//! Comparing clean blocks on flash and disk, to recognise the disk.

use device::checksum::crc32c;

use super::SECTOR_BYTES;
use super::disk_io::read_disk_block;
use super::error::{Result, VolumeError, VolumeErrorKind};
use super::shared::Shared;
use crate::sets::Slot;

/// Length in bytes of the disk's start and end where all clean blocks are compared. A file system's superblock is there, which
/// changes with each mount.
const COMPARED_END_BYTES: u64 = 1 << 20;

/// Other clean blocks compared in one sweep over the disk. The first sweep is always made.
const SAMPLES_PER_SWEEP: usize = 64;

/// Sweeps if time allows.
const SWEEPS: usize = 16;

/// Time limit of the comparison after the first sweep.
const TIME_LIMIT_NS: u64 = 500_000_000;

/// Compares clean blocks on flash and disk: all at the disk's ends, then samples spread over the flash, in sweeps over the disk
/// while time allows. Returns a description of each block whose page is damaged; such a page proves nothing about the disk.
pub(super) async fn check_samples(shared: &Shared) -> Result<Vec<String>> {
    let begun_ns = shared.timer.monotonic_ns();
    let mut bad = Vec::new();
    for (sweep, samples) in samples(shared).into_iter().enumerate() {
        for (slot, block) in samples {
            if sweep > FIRST_SWEEP && shared.timer.monotonic_ns().saturating_sub(begun_ns) > TIME_LIMIT_NS {
                return Ok(bad);
            }
            match is_same_on_disk(shared, slot, block).await {
                Ok(true) => {}
                Ok(false) => {
                    return Err(shared.identity.disk_differs(block * u64::from(shared.layout.block_bytes)));
                }
                Err(error) if error.kind() == VolumeErrorKind::Flash => {
                    bad.push(format!("block {block}: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(bad)
}

/// The blocks to compare: those at the ends of the disk, then one list for each sweep, in disk order. Two passes avoid a list of
/// all clean blocks, which may be too large for memory.
fn samples(shared: &Shared) -> Vec<Vec<(Slot, u64)>> {
    let state = shared.state.lock();
    let block_bytes = u64::from(shared.layout.block_bytes);
    let low = COMPARED_END_BYTES / block_bytes;
    let high = shared.disk.bytes().saturating_sub(COMPARED_END_BYTES) / block_bytes;
    let clean = || {
        let clean = state.sets.held().filter(|(_, word)| !word.is_dirty());
        clean.filter_map(|(slot, word)| Some((slot, word.block()?)))
    };
    let is_at_end = |block: u64| block < low || block >= high;
    let mut sweeps = vec![Vec::new(); FIRST_SWEEP + SWEEPS];
    let (mut count, mut lowest, mut highest) = (0, None, None);
    for (slot, block) in clean() {
        if is_at_end(block) {
            sweeps[AT_ENDS].push((slot, block));
            continue;
        }
        count += 1;
        lowest = lowest.filter(|&(_, known)| known < block).or(Some((slot, block)));
        highest = highest.filter(|&(_, known)| known > block).or(Some((slot, block)));
    }
    let most = SAMPLES_PER_SWEEP * SWEEPS;
    let used = count.min(most).div_ceil(SAMPLES_PER_SWEEP).max(1);
    let others = clean().filter(|&(_, block)| !is_at_end(block)).enumerate();
    let spread = others.filter(|(number, _)| number * most % count < most);
    for (number, (_, sample)) in spread.enumerate() {
        sweeps[FIRST_SWEEP + number % used].push(sample);
    }
    sweeps[FIRST_SWEEP].extend(lowest.into_iter().chain(highest));
    for sweep in &mut sweeps {
        sweep.sort_unstable_by_key(|&(_, block)| block);
        sweep.dedup();
    }
    sweeps
}

/// Whether a clean block is equal on flash and disk.
pub(super) async fn is_same_on_disk(shared: &Shared, slot: Slot, block: u64) -> Result<bool> {
    let copy = shared.state.lock().map.copy(slot);
    let Some(copy) = copy else { return Ok(true) };
    let on_disk = read_disk_block(shared, block).await?;
    let read =
        shared.flash.read(shared.layout.page_offset(copy.page), shared.layout.block_bytes as usize).await;
    let page = read.map_err(|error| VolumeError::flash("reading the flash", error))?;
    if copy.crc.is_some_and(|known| known != crc32c(&page)) {
        let why = format!("the checksum of page {} is wrong", copy.page);
        return Err(VolumeError::new(VolumeErrorKind::Flash, why));
    }
    let sectors = copy.partial.unwrap_or(shared.grid.whole(block));
    let sector = SECTOR_BYTES as usize;
    let same = |run: std::ops::Range<u32>| {
        let bytes = run.start as usize * sector..run.end as usize * sector;
        page[bytes.clone()] == on_disk[bytes]
    };
    Ok(sectors.runs().all(same))
}

/// Index of the blocks at the disk's ends in the list of samples.
const AT_ENDS: usize = 0;

/// Index of the first sweep.
const FIRST_SWEEP: usize = 1;
