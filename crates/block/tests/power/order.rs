//! The disk of an ordered volume after the loss of its flash.

use flashwright_block::sets::{Mode, Tuning};
use flashwright_block::volume::{Volume, VolumeConfig};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::ledger::{Ledger, SECTOR};
use crate::short::read_raw;
use crate::stage::{DISK_BYTES, Media, Opens, Stage, config};

/// A client that writes and flushes while epochs are destaged, until a power cut. Returns the versions that each flush
/// covered.
async fn write_and_flush(stage: &Stage, ledger: &mut Ledger, seed: u64) -> Vec<u64> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut flushed = Vec::new();
    let timer = stage.timer();
    let open = Volume::open(stage.flash.clone(), stage.disk.clone(), timer.clone()).await;
    let Ok((volume, _)) = open else { return flushed };
    for _ in 0..60 {
        // Time passes, so that blocks become idle if the settings use that.
        timer.wait_until(timer.monotonic_ns() + 500_000_000);
        if step(&volume, ledger, &mut flushed, &mut random).await.is_err() {
            assert!(stage.power.is_cut(), "seed {seed}: it failed by itself");
            break;
        }
    }
    flushed
}

async fn step(
    volume: &Volume,
    ledger: &mut Ledger,
    flushed: &mut Vec<u64>,
    random: &mut StdRng,
) -> flashwright_block::volume::Result<()> {
    match random.random_range(0..10) {
        0..6 => {
            let count = random.random_range(1..=16);
            let first = random.random_range(0..160 - count);
            let data = ledger.begin_write(first, count);
            volume.write((first * SECTOR) as u64, data, false).await?;
            ledger.complete(first, count);
        }
        6..8 => {
            let flush = ledger.begin_flush();
            // Successful or not, the flush separates epochs: later writes reach the disk after earlier ones.
            flushed.push(ledger.versions());
            volume.flush().await?;
            ledger.end_flush(&flush);
        }
        8 => {
            volume.upkeep().await?;
        }
        _ => volume.clean().await?,
    }
    Ok(())
}

fn ordered(ordered: bool) -> VolumeConfig {
    let config = config(Mode::WriteBack);
    VolumeConfig { ordered, tuning: Tuning { dirty_percent: 5, ..config.tuning }, ..config }
}

/// The first invalid state of a disk after a power cut, if any.
fn disks_are_consistent(config: &VolumeConfig, seeds: u64) -> Result<(), String> {
    let media = Media::created(config);
    for seed in 0..seeds {
        for cut in (0..150).step_by(3) {
            let stage = Stage::new(media.duplicate());
            stage.power.cut_after(cut + seed % 3);
            let mut ledger = Ledger::new(DISK_BYTES);
            let flushed = pollster::block_on(write_and_flush(&stage, &mut ledger, seed));
            for image in 0..3 {
                let found = stage.crash(image);
                let wrong = |wrong| format!("seed {seed}, cut {cut}, image {image}: {wrong}");
                ledger.is_stale_but_consistent(&read_raw(&found.disk), &flushed).map_err(wrong)?;
                // And again after a recovery that is cut off while it destages epochs.
                let second = Stage::new(found);
                second.power.cut_after(8 + cut % 11);
                pollster::block_on(async {
                    if let Ok((volume, _)) = second.open().await {
                        let _ = volume.clean().await;
                    }
                });
                let found = second.crash(image);
                ledger.is_stale_but_consistent(&read_raw(&found.disk), &flushed).map_err(wrong)?;
            }
        }
    }
    Ok(())
}

#[test]
fn ordered_disk_without_its_flash_is_in_a_state_between_two_flushes() {
    if let Err(wrong) = disks_are_consistent(&ordered(true), 4) {
        panic!("{wrong}");
    }
}

/// Here epochs are destaged only because of idle blocks or on request.
#[test]
fn idle_cleaning_keeps_the_order_of_flushes() {
    let mut config = ordered(true);
    config.tuning = Tuning { dirty_percent: 100, idle_seconds: 1, ..config.tuning };
    if let Err(wrong) = disks_are_consistent(&config, 4) {
        panic!("{wrong}");
    }
}

/// Checks that the tests above can fail.
#[test]
fn unordered_disk_violates_the_order_of_flushes() {
    assert!(disks_are_consistent(&ordered(false), 4).is_err());
}
