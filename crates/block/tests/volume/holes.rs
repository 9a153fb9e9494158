//! Holes, and ranges that are zeroed.

use std::error::Error;
use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Completion, Device, ErrorKind, IoBuffer, IoError, IoSlice, MemoryDevice, Request};
use flashwright_block::sets::Mode;
use flashwright_block::volume::{Volume, VolumeConfig, VolumeErrorKind};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::faulty::opened;
use crate::world::{Shape, World, config};

const BLOCK: u64 = 4096;
const SIZE: u64 = 8 << 20;

fn noise(random: &mut StdRng, len: u64) -> IoSlice {
    IoBuffer::copy_of(&vec![random.random_range(1..=255); len as usize]).into()
}

/// Start and end of each hole.
fn holes(volume: &Volume) -> Vec<(u64, u64)> {
    volume.holes(0, SIZE).unwrap().into_iter().map(|hole| (hole.start, hole.end)).collect()
}

#[test]
fn dirty_block_over_a_hole_is_data_before_and_after_cleaning() {
    let world = World::new(1, Shape { disk_block: 4096, ..Shape::default() });
    let volume = world.volume(&config());
    assert_eq!(holes(&volume), [(0, SIZE)]);
    let again = volume.clone();
    world
        .run(async move { again.write(10 * BLOCK + 512, IoBuffer::copy_of(&[7; 512]).into(), false).await })
        .unwrap();
    assert_eq!(holes(&volume), [(0, 10 * BLOCK), (11 * BLOCK, SIZE)], "on flash alone");
    let again = volume.clone();
    world.run(async move { again.clean().await }).unwrap();
    assert!(
        holes(&volume).iter().all(|&(start, end)| end <= 10 * BLOCK || start >= 11 * BLOCK),
        "on the disk, and cached"
    );
    let again = volume.clone();
    world.run(async move { again.trim(0, 1 << 20).await }).unwrap();
    assert_eq!(holes(&volume), [(0, SIZE)]);
    assert_eq!(volume.holes(512, 1024).unwrap(), [], "no block of the disk lies there whole");
    assert!(volume.holes(SIZE, 512).is_err());
}

/// A hole reads as zeros, and so does a zeroed range, after any history.
#[test]
fn reported_holes_read_as_zeros_after_any_history() {
    for (seed, mode) in (0..).zip([Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly]) {
        let world = World::new(seed, Shape { flash_bytes: 3 << 20, ..Shape::default() });
        let mut tuning = config().tuning;
        tuning.mode = mode;
        let volume = world.volume(&VolumeConfig { tuning, ..config() });
        world.run(async move {
            let mut random = StdRng::seed_from_u64(seed);
            let mut model = vec![0; SIZE as usize];
            for step in 0..400 {
                let len = random.random_range(1..=64) * 512;
                let offset = random.random_range(0..=(SIZE - len) / 512) * 512;
                let bytes = offset as usize..(offset + len) as usize;
                match random.random_range(0..8) {
                    0..4 => {
                        let data = noise(&mut random, len);
                        model[bytes].copy_from_slice(&data);
                        volume.write(offset, data, false).await.unwrap();
                    }
                    4..6 => {
                        model[bytes].fill(0);
                        volume.unmap(offset, len, step % 2 == 0).await.unwrap();
                    }
                    6 => drop(volume.upkeep().await.unwrap()),
                    _ => volume.clean().await.unwrap(),
                }
                if step % 10 == 0 {
                    for hole in volume.holes(0, SIZE).unwrap() {
                        let bytes = &model[hole.start as usize..hole.end as usize];
                        assert!(bytes.iter().all(|&byte| byte == 0), "seed {seed}, step {step}: {hole:?}");
                    }
                }
            }
            for (number, expected) in model.chunks(64 << 10).enumerate() {
                let read = volume.read(number as u64 * (64 << 10), expected.len()).await.unwrap();
                assert!(read[..] == *expected, "seed {seed}: {number}");
            }
        });
    }
}

#[test]
fn unmap_frees_space_on_the_disk() {
    let world = World::new(3, Shape::default());
    let volume = world.volume(&config());
    let disk = world.disk.clone();
    world.run(async move {
        volume.write(0, IoBuffer::copy_of(&[1; 1 << 20]).into(), false).await.unwrap();
        volume.clean().await.unwrap();
        volume.write(512, IoBuffer::copy_of(&[2; 512]).into(), true).await.unwrap();
        assert_eq!(disk.hole_in(0..1 << 20), None);
        volume.unmap(0, 1 << 20, true).await.unwrap();
        let read = volume.read(0, 1 << 20).await.unwrap();
        assert!(read.iter().all(|&byte| byte == 0));
        // The dirty block is zeroed on flash: the disk may expose its older contents after a power cut.
        assert_eq!(disk.hole_in(0..1 << 20), Some(64 << 10..1 << 20));
        assert_eq!(volume.stats().dirty_blocks, 1);
    });
}

#[test]
fn ordered_volume_unmaps_by_writing_zeros() {
    let world = World::new(4, Shape::default());
    let volume = world.volume(&VolumeConfig { ordered: true, ..config() });
    assert!(!volume.unmaps());
    let again = volume.clone();
    world.run(async move { again.unmap(0, 8 * BLOCK, false).await }).unwrap();
    assert_eq!(volume.stats().dirty_blocks, 8);
    assert_eq!(holes(&volume)[0].0, 8 * BLOCK);
}

/// A device that fails trims.
struct TrimsFail(MemoryDevice, ErrorKind);

impl Device for TrimsFail {
    device::forward_device!(0: geometry, counters);

    fn submit(&self, request: Request, completion: Completion) {
        match request {
            Request::Trim { .. } => completion.complete(Err(IoError::new(self.1, "it cannot be trimmed"))),
            _ => self.0.submit(request, completion),
        }
    }
}

#[test]
fn trim_of_a_disk_without_trims_succeeds_and_one_that_fails_is_an_error_of_the_disk() {
    for kind in [ErrorKind::Unsupported, ErrorKind::Medium] {
        pollster::block_on(async {
            let flash = Arc::new(MemoryDevice::new(4 << 20));
            let disk = Arc::new(TrimsFail(MemoryDevice::new(SIZE), kind));
            let volume = opened((flash, disk), &config(), Arc::new(SystemTimer::default())).await;
            volume.write(0, IoBuffer::copy_of(&[7; 8192]).into(), false).await.unwrap();
            let trimmed = volume.trim(0, BLOCK).await;
            if kind == ErrorKind::Unsupported {
                trimmed.unwrap();
            } else {
                let error = trimmed.unwrap_err();
                assert_eq!(error.kind(), VolumeErrorKind::Disk);
                assert!(error.source().unwrap().to_string().contains("it cannot be trimmed"), "{error}");
            }
            let read = volume.read(0, 8192).await.unwrap();
            assert!(read[..4096].iter().all(|&byte| byte == 0) && read[4096..].iter().all(|&byte| byte == 7));
        });
    }
}
