//! Short histories with a power cut at every request.

use flashwright_block::sets::Mode;

use crate::history::{Shape, Step, draw, play, read_all};
use crate::ledger::Ledger;
use crate::stage::{DISK_BYTES, Media, Opens, Stage, config};

/// Random images of the media per cut.
const IMAGES: u64 = 3;

/// Runs `steps` on `media` repeatedly, cutting power one request later each time, and checks the images.
pub fn cut_everywhere(media: &Media, steps: &[Step], only_prefixes: bool, seed: u64) -> u64 {
    let mut cuts = 0;
    for cut in 0.. {
        let stage = Stage::new(media.duplicate());
        stage.power.cut_after(cut);
        let mut ledger = Ledger::new(DISK_BYTES);
        let fail = |wrong: String| panic!("seed {seed}, cut after {cut} requests: {wrong}");
        pollster::block_on(play(&stage, &mut ledger, steps)).unwrap_or_else(fail);
        if !stage.power.is_cut() {
            return cuts;
        }
        for image in 0..IMAGES {
            cuts += 1;
            let found = pollster::block_on(recover(&stage.crash(image), &ledger, only_prefixes));
            found.unwrap_or_else(|wrong| panic!("seed {seed}, cut after {cut}, image {image}: {wrong}"));
        }
    }
    unreachable!("a history ends")
}

/// Opens the volume on an image and checks that its contents are permitted and stay.
pub async fn recover(media: &Media, ledger: &Ledger, only_prefixes: bool) -> Result<(), String> {
    let stage = Stage::new(media.duplicate());
    let message = |error: flashwright_block::volume::VolumeError| error.to_string();
    let (volume, _) = stage.open().await.map_err(message)?;
    let bytes = read_all(&volume).await.map_err(message)?;
    ledger.check_recovered(0, &bytes)?;
    if only_prefixes {
        ledger.prefix(&bytes)?;
    }
    volume.clean().await.map_err(message)?;
    let again = read_all(&volume).await.map_err(message)?;
    volume.close().await.map_err(message)?;
    if again != bytes {
        return Err("cleaning changed the contents after the power cut".into());
    }
    let disk = stage.crash(3).disk;
    let on_disk = read_raw(&disk);
    if on_disk != bytes {
        return Err("the disk lacks cleaned data".into());
    }
    Ok(())
}

pub fn read_raw(disk: &device::MemoryDevice) -> Vec<u8> {
    use device::{Device, Request};
    let read = Request::read(0, DISK_BYTES as usize);
    disk.execute(read).unwrap().to_vec()
}

#[test]
fn power_cuts_of_short_histories_in_every_mode_keep_durable_data() {
    let shape = Shape { steps: 12, sectors: 400, longest: 40, with_trims: true };
    let mut cuts = 0;
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly] {
        let media = Media::created(&config(mode));
        for seed in 0..4 {
            cuts += cut_everywhere(&media, &draw(&shape, seed), false, seed);
        }
    }
    println!("{cuts} cuts");
}

/// A write-back cache without bypasses loses only the end of the history.
#[test]
fn power_cut_loses_only_the_end_of_the_history() {
    let shape = Shape { steps: 14, sectors: 300, longest: 24, with_trims: false };
    let media = Media::created(&config(Mode::WriteBack));
    for seed in 100..104 {
        cut_everywhere(&media, &draw(&shape, seed), true, seed);
    }
}

#[test]
fn power_cut_during_create_leaves_a_volume_or_none() {
    for cut in 0..20 {
        let stage = Stage::new(Media::empty());
        stage.power.cut_after(cut);
        let made = pollster::block_on(stage.create(&config(Mode::WriteBack)));
        assert_eq!(made.is_err(), stage.power.is_cut());
        for image in 0..20 {
            let media = stage.crash(image);
            assert!(read_raw(&media.disk).iter().all(|&byte| byte == 0));
            let opened = pollster::block_on(Stage::new(media.duplicate()).open());
            match opened {
                Ok((volume, _)) => {
                    assert_eq!(pollster::block_on(read_all(&volume)).unwrap(), read_raw(&media.disk));
                }
                Err(error) => {
                    let kind = error.kind();
                    assert_eq!(kind, flashwright_block::volume::VolumeErrorKind::Foreign, "{error}");
                    assert!(made.is_err(), "it was made: {error}");
                }
            }
        }
    }
}

/// Power cuts while recovering from power cuts.
#[test]
fn power_cut_during_recovery_keeps_durable_data() {
    let shape = Shape { steps: 16, sectors: 300, longest: 24, with_trims: false };
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        let media = Media::created(&config(mode));
        for seed in 200..203 {
            let stage = Stage::new(media.duplicate());
            stage.power.cut_after(23 + seed % 7);
            let mut ledger = Ledger::new(DISK_BYTES);
            pollster::block_on(play(&stage, &mut ledger, &draw(&shape, seed))).unwrap();
            for image in 0..8 {
                let found = stage.crash(image);
                for cut in 0..8 {
                    let second = Stage::new(found.duplicate());
                    second.power.cut_after(cut);
                    let _ = pollster::block_on(second.open());
                    for image in 0..3 {
                        let result = pollster::block_on(recover(&second.crash(image), &ledger, false));
                        result.unwrap_or_else(|wrong| {
                            panic!("{mode:?}, seed {seed}, cut {cut}, image {image}: {wrong}")
                        });
                    }
                }
            }
        }
    }
}
