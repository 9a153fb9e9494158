//! Servers that end under a mounted file system, and their successors.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use crate::Check;
use crate::filesystem::{MOUNTED, check, make, make_on, mount, mount_from};
use crate::place::{DISK, Place, Server, is_there, pause, run};

pub const CHECKS: &[Check] = &[
    ("a file system survives killed servers, and its writers only wait", killed),
    ("a server can be killed at any moment of a takeover", killed_at_once),
    ("a mounted disk waits for the next server when its server stops", stopped),
    ("a disk with a mounted partition waits too", partitioned),
    ("an unused disk of a server killed with requests in flight is removed by the next", abandoned),
];

const WRITERS: usize = 3;
const KILLS: usize = 4;
const KILLS_AT_ONCE: u64 = 20;

fn killed() {
    let place = Place::new();
    let mut server = place.serve();
    make();
    mount();
    let (ends, records) = (AtomicBool::new(false), [const { AtomicU32::new(0) }; WRITERS]);
    let server = std::thread::scope(|scope| {
        let _end = EndsWriters(&ends);
        for (writer, count) in records.iter().enumerate() {
            let ends = &ends;
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    append(writer, count.load(Ordering::Relaxed));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let sum = || records.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u32>();
        for _ in 0..KILLS {
            let before = sum();
            while sum() < before + 20 {
                pause(20);
            }
            server.kill();
            pause(300);
            server = place.serve();
            assert!(server.ready.contains("taken over"), "{}", server.ready);
        }
        server
    });
    let counts = records.map(AtomicU32::into_inner);
    verify(&counts);
    run("umount", &[MOUNTED]);
    check();
    mount();
    verify(&counts);
    run("umount", &[MOUNTED]);
    server.stop();
    assert!(!is_there());
    place.check();
}

/// Creates a file system with a first record, and mounts it.
fn mounted() -> (Place, Server) {
    let place = Place::new();
    let server = place.serve();
    make();
    mount();
    append(0, 0);
    (place, server)
}

fn killed_at_once() {
    let (place, server) = mounted();
    server.kill();
    let began = Instant::now();
    place.serve().kill();
    let takes_milliseconds = began.elapsed().as_millis() as u64;
    let waits = std::thread::spawn(|| append(0, 1));
    for turn in 0..KILLS_AT_ONCE {
        kill_in(&place, kill_time(takes_milliseconds, turn, KILLS_AT_ONCE));
    }
    let server = place.serve();
    assert!(server.ready.contains("taken over"), "{}", server.ready);
    waits.join().unwrap();
    assert!(fs::read(path_of(0)).unwrap() == [record(0, 0), record(0, 1)].concat());
    run("umount", &[MOUNTED]);
    check();
    server.stop();
    assert!(!is_there());
}

/// Milliseconds after which to kill a server whose start takes `takes_milliseconds`: in the last part of the start. Other tests kill a
/// server that opens its volume.
fn kill_time(takes_milliseconds: u64, turn: u64, turns: u64) -> u64 {
    takes_milliseconds * (60 + turn * 50 / turns) / 100
}

/// Starts a server and kills it after this time, ready or not.
fn kill_in(place: &Place, milliseconds: u64) {
    let mut child = place.start();
    pause(milliseconds);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Stops the writers on drop, so that they are joined even after a failure.
struct EndsWriters<'a>(&'a AtomicBool);

impl Drop for EndsWriters<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes per record: a writer syncs each before it writes the next.
const RECORD_BYTES: usize = 6000;

fn path_of(writer: usize) -> PathBuf {
    Path::new(MOUNTED).join(format!("writer{writer}"))
}

fn record(writer: usize, number: u32) -> Vec<u8> {
    let seed = number.wrapping_mul(2_654_435_761).wrapping_add(writer as u32);
    (0..RECORD_BYTES as u32).map(|at| (seed.wrapping_add(at.wrapping_mul(seed | 1)) >> 13) as u8).collect()
}

fn append(writer: usize, number: u32) {
    let mut file = OpenOptions::new().create(true).append(true).open(path_of(writer)).unwrap();
    file.write_all(&record(writer, number)).unwrap();
    file.sync_all().unwrap();
}

fn verify(counts: &[u32]) {
    run("sync", &[]);
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    for (writer, count) in counts.iter().enumerate() {
        assert!(*count >= 20 / WRITERS as u32, "writer {writer} wrote nothing");
        let found = fs::read(path_of(writer)).unwrap();
        assert_eq!(found.len(), *count as usize * RECORD_BYTES, "writer {writer}");
        for (number, bytes) in found.chunks(RECORD_BYTES).enumerate() {
            assert!(*bytes == record(writer, number as u32), "record {number} of writer {writer}");
        }
    }
}

fn stopped() {
    let (place, server) = mounted();
    let output = server.stop();
    assert!(output.contains("waits for the next server"), "{output}");
    assert!(is_there());
    let waits = std::thread::spawn(|| append(0, 1));
    pause(500);
    assert!(!waits.is_finished(), "a sync cannot complete without a server");
    let server = place.serve();
    assert!(
        server.ready.contains("taken over") && server.ready.contains("closed cleanly"),
        "{}",
        server.ready
    );
    waits.join().unwrap();
    let found = fs::read(path_of(0)).unwrap();
    assert!(found == [record(0, 0), record(0, 1)].concat());
    run("umount", &[MOUNTED]);
    check();
    server.stop();
    assert!(!is_there());
}

fn partitioned() {
    let partition = format!("{DISK}p1");
    let place = Place::new();
    let server = place.serve();
    File::options().write(true).open(DISK).unwrap().write_all(&partition_table(256, 37_500)).unwrap();
    server.stop();
    let server = place.serve();
    // Newer kernels scan for partitions after the disk appears.
    (0..50).take_while(|_| !Path::new(&partition).exists()).for_each(|_| pause(100));
    make_on(&partition);
    mount_from(&partition);
    append(0, 0);
    let output = server.stop();
    assert!(output.contains("waits for the next server"), "{output}");
    let server = place.serve();
    append(0, 1);
    run("umount", &[MOUNTED]);
    server.stop();
    assert!(!is_there());
}

/// A master boot record with one partition, in sectors of the disk (4096 bytes).
fn partition_table(first_sector: u32, sectors: u32) -> [u8; 512] {
    const LINUX: u8 = 0x83;
    let mut table = [0; 512];
    table[450] = LINUX;
    table[454..458].copy_from_slice(&first_sector.to_le_bytes());
    table[458..462].copy_from_slice(&sectors.to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xAA]);
    table
}

fn abandoned() {
    let place = Place::new();
    let server = place.serve();
    let writes = std::thread::spawn(|| {
        let mut file = File::options().write(true).open(DISK).unwrap();
        let written = (0..8).try_for_each(|turn| file.write_all(&vec![turn; 4 << 20]));
        written.and_then(|()| file.sync_all())
    });
    pause(200);
    server.kill();
    let server = place.serve();
    writes.join().unwrap().unwrap();
    server.stop();
    assert!(!is_there());
    place.check();
}
