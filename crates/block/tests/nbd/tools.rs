//! Third-party clients. A test is skipped if its client is not installed.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use device::file::OpenOptions;
use device::timer::SystemTimer;
use device::{Device, FileDevice, MemoryDevice};
use flashwright_block::export::{ByteExport, DeviceExport, VolumeExport};
use flashwright_block::nbd::Options;
use flashwright_block::volume::{Volume, VolumeConfig};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::client::Served;

const SIZE_BYTES: u64 = 32 << 20;

/// The output of a command, which must succeed; `None` if its program is not installed.
fn run(words: &[&str]) -> Option<String> {
    let output = match Command::new(words[0]).args(&words[1..]).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("SKIPPED: {} is not installed", words[0]);
            return None;
        }
        Err(error) => panic!("{words:?}: {error}"),
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {}\n{out}\n{err}", output.status);
    Some(out.into_owned())
}

fn serve(device: Arc<dyn Device>) -> Served {
    let export = Arc::new(ByteExport::new(Arc::new(DeviceExport::new(device))));
    Served::new(export, Options::default())
}

fn memory() -> Served {
    serve(Arc::new(MemoryDevice::with_block_bytes(SIZE_BYTES, 4096)))
}

/// A sparse file, with direct I/O if available.
fn on_file(file: &tempfile::NamedTempFile) -> Served {
    let options = OpenOptions { size_bytes: Some(SIZE_BYTES), create: true, ..OpenOptions::default() };
    let opened = FileDevice::open(file.path(), &options)
        .or_else(|_| FileDevice::open(file.path(), &OpenOptions { buffered: true, ..options }));
    serve(Arc::new(opened.unwrap()))
}

/// A write-back cache of a sixth of its disk, so that the programs cause evictions.
#[expect(clippy::disallowed_methods, reason = "a served volume has a thread of its own for its upkeep")]
fn cached() -> Served {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_bytes(6 << 20, 4096));
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_bytes(SIZE_BYTES, 4096));
    let volume = pollster::block_on(async {
        Volume::create(&flash, &disk, &VolumeConfig::default(), 5).await.unwrap();
        Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap().0
    });
    let driven = volume.clone();
    std::thread::spawn(move || pollster::block_on(driven.run_upkeep()));
    let export = ByteExport::new(Arc::new(VolumeExport::new(volume).unwrap()));
    Served::new(Arc::new(export), Options::default())
}

fn noise(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; SIZE_BYTES as usize];
    StdRng::seed_from_u64(1).fill_bytes(&mut bytes);
    std::fs::write(path, &bytes).unwrap();
    bytes
}

#[test]
fn nbdinfo_reads_the_export() {
    let served = memory();
    let Some(printed) = run(&["nbdinfo", "--json", &served.uri()]) else { return };
    for words in [
        "\"export-size\": 33554432",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_cache\": true",
        "\"can_zero\": true",
        "\"block_size_maximum\": 33554432",
    ] {
        assert!(printed.contains(words), "{words} in {printed}");
    }
    let map = run(&["nbdinfo", "--map", &served.uri()]).expect("nbdinfo is here");
    assert_eq!(extents(&map), [(0, SIZE_BYTES, 3)], "nothing was ever written: {map}");
}

#[test]
fn nbdcopy_copies_back_the_same_data() {
    for served in [memory(), cached()] {
        let (there, back) = (served.directory.path().join("there"), served.directory.path().join("back"));
        let bytes = noise(&there);
        let (there, back) = (there.display().to_string(), back.display().to_string());
        if run(&["nbdcopy", "--connections=4", "--flush", &there, &served.uri()]).is_none() {
            return;
        }
        run(&["nbdcopy", "--connections=4", &served.uri(), &back]);
        assert!(std::fs::read(&back).unwrap() == bytes);
        run(&["nbdcopy", "--synchronous", "--allocated", &served.uri(), &back]);
        assert!(std::fs::read(&back).unwrap() == bytes);
    }
}

/// Cached and dirty ranges are reported as extents of our own metadata contexts.
#[test]
fn nbdinfo_maps_cached_and_dirty_extents() {
    let served = cached();
    let uri = served.uri();
    let Some(map) = run(&["nbdinfo", "--map=flashwright:dirty", &uri]) else { return };
    assert_eq!(extents(&map), [(0, SIZE_BYTES, 0)], "{map}");
    if run(&["qemu-io", "-f", "raw", "-c", "write -P 7 64k 8k", "-c", "flush", &uri]).is_none() {
        return;
    }
    for context in ["dirty", "cached"] {
        let map = run(&["nbdinfo", &format!("--map=flashwright:{context}"), &uri]).expect("nbdinfo is here");
        let expected = [(0, 65536, 0), (65536, 8192, 1), (73728, SIZE_BYTES - 73728, 0)];
        assert_eq!(extents(&map), expected, "{map}");
    }
}

/// Otherwise a copy of a nearly empty disk would be as long as the disk.
#[test]
fn nbdinfo_and_qemu_img_report_holes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (served, data_bytes) in [(on_file(&file), 8192), (cached(), 8192), (memory(), 65536)] {
        let uri = served.uri();
        if run(&["qemu-io", "-f", "raw", "-c", "write -P 7 64k 8k", "-c", "flush", &uri]).is_none() {
            return;
        }
        let Some(map) = run(&["nbdinfo", "--map", &uri]) else { return };
        let rest = 65536 + data_bytes;
        let expected = [(0, 65536, 3), (65536, data_bytes, 0), (rest, SIZE_BYTES - rest, 3)];
        assert_eq!(extents(&map), expected, "{map}");
        let map = run(&["qemu-img", "map", "-f", "raw", "--output=json", &uri])
            .expect("qemu-img is beside qemu-io");
        assert!(map.contains("\"start\": 65536") && map.contains("\"zero\": true"), "{map}");
        // Zeros that may be holes become holes.
        run(&[
            "qemu-io",
            "-f",
            "raw",
            "-d",
            "unmap",
            "-c",
            "write -z -u 64k 64k",
            "-c",
            "read -P 0 64k 64k",
            &uri,
        ]);
    }
}

/// Offset, length and flags of each line of a map.
fn extents(map: &str) -> Vec<(u64, u64, u64)> {
    let number = |word: Option<&str>| word.unwrap().parse().unwrap();
    let extent = |line: &str| {
        let mut words = line.split_whitespace();
        (number(words.next()), number(words.next()), number(words.next()))
    };
    map.lines().map(extent).collect()
}

#[test]
fn qemu_io_writes_zeroes_and_discards() {
    for served in [memory(), cached()] {
        qemu_io_on(&served);
    }
}

fn qemu_io_on(served: &Served) {
    let commands = [
        "write -P 0xab 4k 8k",
        "read -P 0xab 4k 8k",
        "write -f -P 0xcd 1234 567",
        "read -P 0xcd 1234 567",
        "read -P 0xab 4k 8k",
        "write -z 4k 4k",
        "read -P 0 4k 4k",
        "discard 8k 4k",
        "flush",
    ];
    let uri = served.uri();
    let mut words = vec!["qemu-io", "-f", "raw"];
    words.extend(commands.iter().flat_map(|command| ["-c", command]));
    words.push(&uri);
    if let Some(printed) = run(&words) {
        assert!(!printed.contains("failed"), "{printed}");
    }
}

#[test]
fn nbdsh_uses_all_commands() {
    let served = memory();
    let script = "
h.add_meta_context('base:allocation')
import sys
h.connect_uri(sys.argv[1] if len(sys.argv) > 1 else URI)
h.pwrite(b'x' * 512, 100, nbd.CMD_FLAG_FUA)
assert h.pread(514, 99) == b'\\0' + b'x' * 512 + b'\\0'
h.zero(300, 101)
assert h.pread(512, 100) == b'x' + b'\\0' * 300 + b'x' * 211
h.trim(8192, 4096)
h.cache(8192, 0)
h.flush()
seen = []
h.block_status(65536, 512, lambda context, offset, entries, error: seen.append((context, entries)))
assert seen[0][0] == 'base:allocation' and seen[0][1][0] >= 65024 and seen[0][1][1] == 0, seen
try:
    h.pread(2, h.get_size() - 1)
    assert False
except nbd.Error as error:
    assert error.errno == 'EINVAL', error
h.shutdown()
";
    let script = script.replace("sys.argv[1] if len(sys.argv) > 1 else URI", &format!("'{}'", served.uri()));
    // The system's Python has the bindings; another one in the path may not.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    match Command::new("nbdsh").env("PATH", path).args(["-c", &script]).output() {
        Err(_) => println!("SKIPPED: nbdsh is not installed"),
        Ok(output) => {
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            if printed.contains("No module named") {
                return println!("SKIPPED: nbdsh has no bindings here");
            }
            assert!(output.status.success(), "{printed}");
        }
    }
}

#[test]
fn fio_verifies_what_it_wrote_to_memory_to_a_file_and_to_a_cache() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for served in [memory(), on_file(&file), cached()] {
        let uri = format!("--uri={}", served.uri());
        let words = ["fio", "--name=verify", "--ioengine=nbd", &uri, "--rw=randwrite", "--bsrange=512-128k"];
        let more = [
            "--size=16M",
            "--iodepth=16",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--fsync=32",
        ];
        let Some(printed) = run(&[&words[..], &more[..]].concat()) else { return };
        assert!(printed.contains("err= 0"), "{printed}");
    }
}
