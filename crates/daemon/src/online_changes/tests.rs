use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use block::export::{Export, Operation, Reply, VolumeExport};
use block::volume::VolumeConfig;
use device::IoSlice;
use device::event_loop::wait_for;

use super::*;
use crate::devices::{Access, DiskOverrides, NewFiles, OpenedVolume, Opening};

const DISK_BYTES: u64 = 32 << 20;

/// A served cache on files, with its upkeep.
struct Served {
    _directory: tempfile::TempDir,
    cache: Cache,
    below: Mutex<Vec<Below>>,
    export: VolumeExport,
    upkeep: JoinHandle<()>,
}

impl Served {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let name = |name: &str| directory.path().join(name).display().to_string();
        let devices =
            Devices { flash: name("flash"), disk: name("disk"), opening: Opening { buffered: true } };
        let mut files = NewFiles::default();
        files.make("--flash-size", &devices.flash, Some(8 << 20)).unwrap();
        files.make("--disk-size", &devices.disk, Some(DISK_BYTES)).unwrap();
        files.keep();
        let config = VolumeConfig { ways: 64, ..VolumeConfig::default() };
        let [flash, disk] = devices.open(Access::Write).unwrap();
        wait_for(Volume::create(&flash, &disk, &config, 7)).unwrap();
        drop((flash, disk));
        let opened = devices.open_volume(DiskOverrides { force_disk: false }).unwrap();
        let OpenedVolume { volume, recovery, flash, disk } = opened;
        let current = CurrentVolume::new(volume);
        let driven = current.clone();
        let upkeep = std::thread::Builder::new().name("block-upkeep".into());
        let upkeep = upkeep.spawn(move || wait_for(driven.run_upkeep())).unwrap();
        let export = VolumeExport::of_current(current.clone()).unwrap();
        let below = Mutex::new(vec![("flash", flash), ("disk", disk)]);
        let cache = Cache { current, recovery, admission: Arc::default(), devices: Mutex::new(devices) };
        Self { _directory: directory, cache, below, export, upkeep }
    }

    fn submit(&self, operation: Operation) -> Option<IoSlice> {
        let (sender, receiver) = channel();
        self.export.submit(operation, Reply::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().unwrap()
    }

    fn write(&self, block: u64, byte: u8) {
        let data = IoBuffer::copy_of(&[byte; 4096]).into();
        self.submit(Operation::Write { offset: block * 4096, data, durable: byte.is_multiple_of(8) });
    }

    fn read(&self, block: u64) -> u8 {
        let bytes = self.submit(Operation::Read { offset: block * 4096, len: 4096 }).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }

    /// Runs `change` while a client writes blocks from 4096 on and reads them back. Returns the last byte of each.
    fn while_writing<T>(&self, change: impl FnOnce() -> T) -> (T, Vec<u8>) {
        let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut last = vec![0; 100];
                while !is_over.load(Relaxed) {
                    let number = rounds.fetch_add(1, Relaxed);
                    let (place, byte) = (number * 7 % 100, (number % 250) as u8 + 1);
                    self.write(4096 + place * 3, byte);
                    assert_eq!(self.read(4096 + place * 3), byte);
                    last[place as usize] = byte;
                }
                last
            });
            let wait_for = |count| {
                while rounds.load(Relaxed) < count {
                    assert!(!writer.is_finished(), "the client failed");
                    std::thread::yield_now();
                }
            };
            wait_for(20);
            let changed = change();
            wait_for(rounds.load(Relaxed) + 20);
            is_over.store(true, Relaxed);
            (changed, writer.join().unwrap())
        })
    }

    fn check_written(&self, last: &[u8]) {
        for (place, &byte) in (0..).zip(last) {
            assert_eq!(self.read(4096 + place * 3), byte, "place {place}");
        }
    }

    /// Closes the cache and opens it again with the present devices.
    fn reopened(self) -> (Devices, Volume) {
        let Self { _directory: directory, cache, below, export, upkeep } = self;
        wait_for(cache.current.volume().close()).unwrap();
        upkeep.join().unwrap();
        let devices = lock(&cache.devices).clone();
        drop((cache, below, export));
        let opened = devices.open_volume(DiskOverrides { force_disk: false }).unwrap();
        assert!(opened.recovery.was_clean);
        drop(directory);
        (devices, opened.volume)
    }
}

fn resize(path: &str, bytes: u64) {
    File::options().write(true).open(Path::new(path)).unwrap().set_len(bytes).unwrap();
}

#[test]
fn disk_grows_while_a_client_writes() {
    let served = Served::new();
    let disk = lock(&served.cache.devices).disk.clone();
    let error = grow_disk(&served.cache, &served.below).unwrap_err();
    assert!(error.contains("the disk has not grown"), "{error}");
    let new_bytes = DISK_BYTES + (4 << 20);
    let (grown, last) = served.while_writing(|| {
        resize(&disk, new_bytes);
        grow_disk(&served.cache, &served.below).unwrap()
    });
    assert_eq!((&grown["disk_bytes_before"], &grown["disk_bytes"]), (&DISK_BYTES.into(), &new_bytes.into()));
    assert_eq!(served.export.shape().size_bytes, new_bytes);
    served.write(DISK_BYTES / 4096, 9);
    assert_eq!(served.read(DISK_BYTES / 4096), 9);
    served.check_written(&last);
    let (_, volume) = served.reopened();
    assert_eq!(volume.size_bytes(), new_bytes);
}

#[test]
fn flash_is_replaced_while_a_client_writes() {
    let served = Served::new();
    for block in 0..10 {
        served.write(block * 256, block as u8 + 1);
        served.read(block * 256 + 2);
    }
    let old = lock(&served.cache.devices).flash.clone();
    let error = replace_flash(&served.cache, &served.below, &old, false).unwrap_err();
    assert!(error.contains("is in use by this cache already"), "{error}");
    let new = format!("{old} new");
    File::create_new(&new).unwrap().set_len(16 << 20).unwrap();
    let (capacity, tuning) = {
        let volume = served.cache.current.volume();
        (volume.stats().capacity_blocks, volume.superblock().tuning)
    };
    let (replaced, last) =
        served.while_writing(|| replace_flash(&served.cache, &served.below, &new, false).unwrap());
    assert_eq!((&replaced["dirty_blocks"], &replaced["old_flash_overwritten"]), (&0.into(), &true.into()));
    let volume = served.cache.current.volume();
    assert!(volume.stats().capacity_blocks > capacity * 3 / 2);
    assert!(replaced["paused_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(volume.superblock().tuning, tuning);
    let disk_reads = volume.stats().counters.disk_reads;
    for block in 0..10 {
        assert_eq!(served.read(block * 256), block as u8 + 1);
        assert_eq!(served.read(block * 256 + 2), 0);
    }
    assert_eq!(volume.stats().counters.disk_reads, disk_reads, "all of them are cached");
    served.check_written(&last);
    drop(volume);
    let (devices, volume) = served.reopened();
    assert_eq!((&devices.flash, volume.superblock().layout.end() > 8 << 20), (&new, true));
}
