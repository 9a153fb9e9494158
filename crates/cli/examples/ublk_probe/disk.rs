//! The disk: its attributes, and that it keeps written data.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use device::IoBuffer;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use rustix::fs::{FallocateFlags, fallocate};

use crate::Check;
use crate::place::{DISK, Place, attribute, is_there, open_direct};

pub const CHECKS: &[Check] = &[
    ("the disk has the sector size, limits and features of the drive", attributes_match_the_drive),
    ("--sector-size overrides the sector size of the drive", sector_size_is_overridden),
    ("the disk is served without NBD", alone),
    ("writes of many threads are read back and reach the slow drive", contents),
    ("data written through the page cache survives a server stop", page_cache),
    ("flushes and FUA writes reach the cache", flush),
    ("an open but unmounted disk is removed with its server", merely_open),
    ("ranges can be zeroed and discarded", ranges),
    ("a request past the end fails without affecting the disk", past_the_end),
];

const MIB: usize = 1 << 20;

/// The logical block size of the emulated drives, and so of the disk.
const SECTOR: usize = 4096;

fn attributes_match_the_drive() {
    let place = Place::new();
    let server = place.serve();
    assert_eq!(attribute("size"), (256 * MIB / 512).to_string(), "in units of 512 bytes");
    for (name, value) in [
        ("queue/logical_block_size", "4096"),
        ("queue/physical_block_size", "4096"),
        ("queue/write_cache", "write back"),
        ("queue/fua", "1"),
        ("queue/max_hw_sectors_kb", "512"),
        ("queue/rotational", "0"),
        ("ro", "0"),
    ] {
        assert_eq!(attribute(name), value, "{name}");
    }
    for name in ["queue/discard_max_hw_bytes", "queue/write_zeroes_max_bytes"] {
        assert_ne!(attribute(name), "0", "{name}");
    }
    server.stop();
    assert!(!is_there(), "an unused disk is removed with its server");
}

fn sector_size_is_overridden() {
    let place = Place::new();
    let server = place.serve_with(&["--sector-size", "512"]);
    assert_eq!(attribute("queue/logical_block_size"), "512");
    let disk = open_direct(Path::new(DISK));
    disk.write_all_at(&IoBuffer::zeroed(4096), 0).unwrap();
    disk.write_all_at(&IoBuffer::copy_of(&[1; 512]), 512).unwrap();
    let found = read(&disk, 0, 4096);
    assert!(found.iter().enumerate().all(|(at, byte)| *byte == u8::from((512..1024).contains(&at))));
    drop(disk);
    server.stop();
    place.clean();
    let found = read(&open_direct(&place.slow), 0, 4096);
    assert_eq!((found[511], found[512], found[1023], found[1024]), (0, 1, 1, 0));
}

fn alone() {
    let place = Place::new();
    let server = place.serve_alone();
    assert!(
        server.ready.starts_with(&format!("ready {DISK} (closed cleanly: 0 blocks")),
        "{:?}",
        server.ready
    );
    open_direct(Path::new(DISK)).write_all_at(&IoBuffer::zeroed(4096), 0).unwrap();
    let reported = server.status(["--ublk", "0"]);
    assert_eq!((&reported["serving"], &reported["connections"]), (&DISK.into(), &serde_json::Value::Null));
    assert_eq!(reported["state"]["dirty_blocks"], 1);
    server.stop();
    assert!(!is_there());
}

/// Each thread has its own part of the disk and a model of its contents.
const THREADS: usize = 4;
const PART_BYTES: usize = 8 * MIB;

fn contents() {
    let place = Place::new();
    let server = place.serve();
    let written: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|part| scope.spawn(move || write_and_read(part))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    server.stop();
    place.check();
    place.clean();
    let slow = open_direct(&place.slow);
    for (part, written) in written.iter().enumerate() {
        assert!(
            read(&slow, part * PART_BYTES, PART_BYTES)[..] == written[..],
            "part {part} of the slow drive"
        );
    }
}

fn write_and_read(part: usize) -> Vec<u8> {
    let (mut random, disk) = (StdRng::seed_from_u64(part as u64), open_direct(Path::new(DISK)));
    let start = part * PART_BYTES;
    let mut model = read(&disk, start, PART_BYTES).to_vec();
    for turn in 0..200 {
        // Every 20th request can exceed the largest size: the kernel splits it.
        let most = if turn % 20 == 0 { 256 } else { 16 };
        let len = random.random_range(1..=most) * SECTOR;
        let at = random.random_range(0..=(PART_BYTES - len) / SECTOR) * SECTOR;
        if random.random_bool(0.6) {
            let mut data = IoBuffer::zeroed(len);
            random.fill_bytes(&mut data);
            disk.write_all_at(&data, (start + at) as u64).unwrap();
            model[at..at + len].copy_from_slice(&data);
        } else {
            assert!(
                read(&disk, start + at, len)[..] == model[at..at + len],
                "{len} bytes at {at} of part {part}"
            );
        }
    }
    assert!(read(&disk, start, PART_BYTES)[..] == model[..], "part {part}");
    model
}

fn read(file: &File, at: usize, len: usize) -> IoBuffer {
    let mut buffer = IoBuffer::zeroed(len);
    file.read_exact_at(&mut buffer, at as u64).unwrap();
    buffer
}

fn page_cache() {
    let place = Place::new();
    let server = place.serve();
    // The data stays in the page cache: there is no fsync.
    File::options().write(true).open(DISK).unwrap().write_all_at(&[0x5A; 3 * MIB], 4096).unwrap();
    server.stop();
    let server = place.serve();
    assert!(read(&open_direct(Path::new(DISK)), 4096, 3 * MIB).iter().all(|byte| *byte == 0x5A));
    server.stop();
}

fn flush() {
    const O_DSYNC: i32 = 0o10_000;
    let place = Place::new();
    let server = place.serve();
    let disk = open_direct(Path::new(DISK));
    disk.write_all_at(&IoBuffer::copy_of(&[1; 4096]), 0).unwrap();
    let (flushes, of_flash) = (server.counter("client_flushes"), server.counter("ssd_flushes"));
    disk.sync_all().unwrap();
    assert_eq!(server.counter("client_flushes"), flushes + 1);
    let after_flush = server.counter("ssd_flushes");
    assert!(after_flush > of_flash, "the flash is flushed");
    let kept = OpenOptions::new().write(true).custom_flags(O_DSYNC | 0o40_000).open(DISK).unwrap();
    kept.write_all_at(&IoBuffer::copy_of(&[2; 4096]), 4096).unwrap();
    // The kernel sends a write with FUA, a flush after the write, or both.
    assert!(server.counter("client_flushes") >= flushes + 2, "the write is durable");
    assert!(server.counter("ssd_flushes") > after_flush, "the flash is flushed again");
    server.kill();
    let server = place.serve();
    let found = read(&disk, 0, 8192);
    assert_eq!((found[0], found[4096]), (1, 2), "an open file can still be read");
    drop((disk, kept));
    server.stop();
}

fn merely_open() {
    let place = Place::new();
    let server = place.serve();
    let disk = open_direct(Path::new(DISK));
    server.stop();
    assert!(!is_there());
    assert!(disk.write_at(&IoBuffer::zeroed(4096), 0).is_err(), "the disk no longer exists");
    drop(disk);
    let server = place.serve();
    assert!(!server.ready.contains("taken over"), "{}", server.ready);
    server.stop();
}

fn ranges() {
    let place = Place::new();
    let server = place.serve();
    let disk = open_direct(Path::new(DISK));
    disk.write_all_at(&IoBuffer::copy_of(&vec![7; 2 * MIB]), 0).unwrap();
    fallocate(&disk, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, SECTOR as u64, MIB as u64)
        .unwrap();
    let found = read(&disk, 0, 2 * MIB);
    assert!(found[..SECTOR].iter().all(|byte| *byte == 7));
    assert!(found[SECTOR..SECTOR + MIB].iter().all(|byte| *byte == 0));
    assert!(found[SECTOR + MIB..].iter().all(|byte| *byte == 7));
    let before = server.counter("trim_blocks");
    crate::place::run("blkdiscard", &["-o", "1048576", "-l", "65536", DISK]);
    assert!(server.counter("trim_blocks") > before, "the discard did not arrive");
    assert!(read(&disk, MIB + 65_536, 4096).iter().all(|byte| *byte == 7), "nothing else was discarded");
    drop(disk);
    server.stop();
}

fn past_the_end() {
    let place = Place::new();
    let server = place.serve();
    let disk = open_direct(Path::new(DISK));
    assert_eq!(disk.read_at(&mut IoBuffer::zeroed(4096), 256 * MIB as u64).unwrap(), 0);
    assert!(disk.write_at(&IoBuffer::zeroed(4096), 256 * MIB as u64).is_err());
    assert_eq!(read(&disk, 256 * MIB - 4096, 4096).len(), 4096);
    drop(disk);
    server.stop();
}
