//! Kills of the process: both devices keep every completed request, flushed or not.

use device::IoBuffer;
use flashwright_block::sets::Mode;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::history::read_all;
use crate::ledger::Ledger;
use crate::long::{Turns, drawn_config, live};
use crate::short::read_raw;
use crate::stage::{DISK_BYTES, Media, Opens, Stage, config};

/// Opens one volume repeatedly, and kills the process each time: acknowledged writes must be present without a flush.
fn lives(seed: u64, count: u64, turns: Turns) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut media = Media::created(&drawn_config(seed));
    let mut ledger = Ledger::new(DISK_BYTES);
    for life in 0..count {
        let (flash, disk, after, wrong) = live(&media, ledger, random.random(), turns);
        ledger = after;
        if let Some(wrong) = wrong {
            panic!("seed {seed}, life {life}: {wrong}");
        }
        media = Media { flash: flash.kill(random.random()), disk: disk.kill(random.random()) };
        let bytes = pollster::block_on(async {
            let stage = Stage::new(media.duplicate());
            let (volume, _) =
                stage.open().await.unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
            let bytes = read_all(&volume).await.unwrap();
            ledger.check_read(0, &bytes).unwrap_or_else(|wrong| panic!("seed {seed}, life {life}: {wrong}"));
            if life % 4 == 0 {
                volume.clean().await.unwrap();
                volume.close().await.unwrap();
                assert_eq!(
                    read_raw(&stage.crash(3).disk),
                    bytes,
                    "seed {seed}, life {life}: cleaned and closed"
                );
            }
            bytes
        });
        ledger.adopt(&bytes);
    }
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let seeds = std::env::var("FLASHWRIGHT_TEST_SEEDS").map_or(1, |text| text.parse().expect("a number"));
    for seed in 0..24 * seeds {
        lives(seed, 10, Turns::FEW);
    }
}

/// The intent log must be read in every mode, because it may record blocks left dirty by another mode.
#[test]
fn acknowledged_writes_survive_a_kill_after_a_mode_change() {
    let seeds = std::env::var("FLASHWRIGHT_TEST_SEEDS").map_or(1, |text| text.parse().expect("a number"));
    for seed in 0..24 * seeds {
        lives(seed, 10, Turns { modes: 0.1, ..Turns::FEW });
    }
}

/// A write that bypassed the cache may be in the disk's volatile buffer when the process is killed. The next process must flush the disk
/// although it has not written to it.
#[test]
fn flush_after_a_kill_covers_earlier_disk_writes() {
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        for seed in 0..16 {
            let stage = Stage::new(Media::created(&config(mode)));
            pollster::block_on(async {
                let (volume, _) = stage.open().await.unwrap();
                volume.write(8 << 10, IoBuffer::copy_of(&[7; 4096]).into(), false).await.unwrap();
                drop(volume);
                let (volume, _) = stage.open().await.unwrap();
                volume.flush().await.unwrap();
            });
            let media = stage.crash(seed);
            assert_eq!(read_raw(&media.disk)[8 << 10..12 << 10], [7; 4096], "{mode:?}, seed {seed}");
        }
    }
}
