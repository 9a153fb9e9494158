//! Flash and disk that consist of several devices, each with its own volatile buffer.

use std::sync::Arc;

use device::open::STRIPE_UNIT_BYTES;
use device::wrap::{CrashDevice, Power};
use device::{Device, IoError, MemoryDevice, StripeDevice};
use flashwright_block::sets::Mode;
use flashwright_block::striped::{self, Member};
use flashwright_block::volume::{Recovery, Result, Volume};

use crate::history::{Shape, draw, play, read_all};
use crate::ledger::Ledger;
use crate::stage::{DISK_BYTES, Opens, config, timer};

const UUID: u128 = 0x1234_5678_9abc;

/// Images of all media: those of the labelled flash stripe, and those of the disk stripe.
struct Media {
    flash: Vec<MemoryDevice>,
    disk: Vec<MemoryDevice>,
}

struct Stage {
    power: Arc<Power>,
    flash: Vec<Arc<CrashDevice>>,
    disk: Vec<Arc<CrashDevice>>,
}

impl Media {
    fn empty() -> Self {
        let devices =
            |count, units| (0..count).map(|_| MemoryDevice::new(units * STRIPE_UNIT_BYTES)).collect();
        Self { flash: devices(3, 3), disk: devices(2, 1) }
    }

    /// Devices with a new volume.
    fn created(mode: Mode) -> Self {
        let stage = Stage::new(&Self::empty());
        stage.create(mode).unwrap();
        stage.crash(1)
    }
}

impl Stage {
    fn new(media: &Media) -> Self {
        let power = Arc::new(Power::default());
        let powered =
            |memory: &MemoryDevice| Arc::new(CrashDevice::new(memory.duplicate()).powered_by(&power));
        let [flash, disk] = [&media.flash, &media.disk].map(|media| media.iter().map(powered).collect());
        Self { flash, disk, power }
    }

    fn members(&self) -> Vec<Member> {
        let member = |(place, device): (usize, &Arc<CrashDevice>)| (format!("f{place}"), device.clone() as _);
        self.flash.iter().enumerate().map(member).collect()
    }

    fn disk(&self) -> Arc<dyn Device> {
        let members = self.disk.iter().map(|device| device.clone() as _).collect();
        Arc::new(StripeDevice::new(members, STRIPE_UNIT_BYTES).unwrap())
    }

    /// Creates a volume in the same steps as the command line.
    fn create(&self, mode: Mode) -> std::result::Result<(), String> {
        let members = self.members();
        let flash = striped::join_unlabelled(&members).map_err(|error| error.to_string())?;
        striped::label(&members, UUID).map_err(|error| error.to_string())?;
        let made = pollster::block_on(Volume::create(&flash, &self.disk(), &config(mode), UUID));
        made.map(drop).map_err(|error| error.to_string())
    }

    /// The media after a power cut, with a separate seed for each device.
    fn crash(&self, seed: u64) -> Media {
        let mut number = 0;
        let mut crashed = |device: &Arc<CrashDevice>| {
            number += 1;
            device.crash(seed.wrapping_mul(0x9E37_79B9) ^ number)
        };
        Media {
            flash: self.flash.iter().map(&mut crashed).collect(),
            disk: self.disk.iter().map(&mut crashed).collect(),
        }
    }
}

impl Opens for Stage {
    fn power(&self) -> &Power {
        &self.power
    }

    async fn open(&self) -> Result<(Volume, Recovery)> {
        let flash = striped::join(&self.members()).expect("it is labelled");
        Volume::open(flash, self.disk(), timer()).await
    }
}

fn read_raw(disk: &dyn Device) -> std::result::Result<Vec<u8>, IoError> {
    let read = disk.read(0, DISK_BYTES as usize).wait()?;
    Ok(read.to_vec())
}

/// Opens the volume on an image, checks its contents, and cleans it.
async fn recover(media: &Media, ledger: &Ledger) -> std::result::Result<(), String> {
    let stage = Stage::new(media);
    let message = |error: flashwright_block::volume::VolumeError| error.to_string();
    let (volume, _) = stage.open().await.map_err(message)?;
    let bytes = read_all(&volume).await.map_err(message)?;
    ledger.check_recovered(0, &bytes)?;
    volume.clean().await.map_err(message)?;
    volume.close().await.map_err(message)?;
    let disk = Stage::new(&stage.crash(3)).disk();
    if read_raw(&*disk).map_err(|error| error.to_string())? != bytes {
        return Err("the disk lacks cleaned data".into());
    }
    Ok(())
}

#[test]
fn power_cuts_on_stripes_keep_durable_data() {
    let shape = Shape { steps: 12, sectors: 1000, longest: 64, with_trims: true };
    let mut cuts = 0;
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        let media = Media::created(mode);
        for seed in 400..403 {
            let steps = draw(&shape, seed);
            for cut in 0.. {
                let stage = Stage::new(&media);
                stage.power.cut_after(cut);
                let mut ledger = Ledger::new(DISK_BYTES);
                let fail = |wrong: String| panic!("{mode:?}, seed {seed}, cut after {cut} requests: {wrong}");
                pollster::block_on(play(&stage, &mut ledger, &steps)).unwrap_or_else(fail);
                if !stage.power.is_cut() {
                    break;
                }
                for image in 0..3 {
                    cuts += 1;
                    let found = pollster::block_on(recover(&stage.crash(image), &ledger));
                    found.unwrap_or_else(|wrong| {
                        panic!("{mode:?}, seed {seed}, cut after {cut}, image {image}: {wrong}")
                    });
                }
            }
        }
    }
    println!("{cuts} cuts");
}

/// Labels are written and flushed first, so a superblock is never found without its stripe.
#[test]
fn power_cut_during_stripe_creation_leaves_a_stripe_or_none() {
    for cut in 0.. {
        let stage = Stage::new(&Media::empty());
        stage.power.cut_after(cut);
        let made = stage.create(Mode::WriteBack);
        assert_eq!(made.is_err(), stage.power.is_cut(), "cut after {cut}");
        for image in 0..10 {
            let found = Stage::new(&stage.crash(image));
            let opened = striped::join(&found.members())
                .map(|flash| pollster::block_on(Volume::open(flash, found.disk(), timer())));
            match opened {
                Ok(Ok((volume, _))) => {
                    assert!(pollster::block_on(read_all(&volume)).unwrap().iter().all(|byte| *byte == 0));
                }
                refused => assert!(made.is_err(), "it was made: {:?}", refused.map(|opened| opened.err())),
            }
        }
        if made.is_ok() {
            return;
        }
    }
}
