//! The sector size that clients see.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use super::{Place, printed};
use crate::loop_device::LoopDevice;

const OPTION_INFO: u32 = 6;
const INFO_BLOCK_SIZE: u16 = 3;
const ANSWER_INFO: u32 = 3;

/// The minimum block size that the NBD server at `socket` advertises.
fn minimum_block_bytes(socket: &Path) -> u32 {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
    let data = [&0_u32.to_be_bytes()[..], &1_u16.to_be_bytes(), &INFO_BLOCK_SIZE.to_be_bytes()].concat();
    let head =
        [&b"IHAVEOPT"[..], &OPTION_INFO.to_be_bytes(), &(data.len() as u32).to_be_bytes(), &data].concat();
    stream.write_all(&head).unwrap();
    loop {
        let mut answer = [0; 20];
        stream.read_exact(&mut answer).unwrap();
        let field = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().unwrap());
        let (kind, mut data) = (field(12), vec![0; field(16) as usize]);
        stream.read_exact(&mut data).unwrap();
        assert_eq!(kind, ANSWER_INFO, "the server did not report its block sizes");
        if data[..2] == INFO_BLOCK_SIZE.to_be_bytes() {
            return u32::from_be_bytes(data[2..6].try_into().unwrap());
        }
    }
}

/// The minimum block size that a server with these flags advertises.
fn shown(place: &Place, flags: &[&str]) -> u32 {
    let server = place.serve_with(flags);
    let minimum = minimum_block_bytes(&place.path("s"));
    server.stop();
    minimum
}

#[test]
fn file_disk_has_sectors_of_512_bytes_and_nbd_no_minimum() {
    let place = Place::new();
    let server = place.serve();
    assert_eq!(minimum_block_bytes(&place.path("s")), 1);
    assert_eq!(place.status()["volume"]["sector_bytes"], 512);
    server.stop();
    assert_eq!(shown(&place, &["--disk", "disk", "--force-disk"]), 1, "the disk without a cache");
}

#[test]
fn created_sector_size_is_recorded_and_serve_overrides_it() {
    let place = Place::new();
    let created =
        place.run("create", &["--sector-size", "4096", "--associativity", "64", "--force", "--yes"], true);
    assert!(created.status.success(), "{}", printed(&created));
    let devices = ["--flash", "flash", "--disk", "disk"];
    assert_eq!(shown(&place, &devices), 4096);
    assert_eq!(shown(&place, &[&devices[..], &["--sector-size", "512"]].concat()), 1);
    assert_eq!(shown(&place, &devices), 4096, "the override applies to one server");
    // Closed as before, and with a warning.
    let mut odd = place.command("serve", true);
    odd.args(["--sector-size", "512", "--socket"]).arg(place.path("s")).stderr(Stdio::piped());
    let mut child = odd.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    let said = printed(&child.wait_with_output().unwrap());
    assert!(said.contains("created with sectors of 4096 bytes and is served with sectors of 512"), "{said}");
}

/// A file system or partition table made through a cache with other sectors is not found on the disk alone.
#[test]
fn disk_with_sectors_of_4096_bytes_is_exported_with_them() {
    let place = Place::new();
    let Some(disk) = LoopDevice::attach(&place.path("disk"), &[]) else { return };
    assert_eq!(shown(&place, &["--disk", &disk.0, "--force-disk"]), 4096, "the disk without a cache");
    assert_eq!(shown(&place, &["--disk", &disk.0, "--force-disk", "--sector-size", "512"]), 1);
    let devices = ["--flash", place.path("flash").to_str().unwrap(), "--disk", &disk.0].map(str::to_owned);
    let devices = devices.each_ref().map(String::as_str);
    let create = [&devices[..], &["--associativity", "64", "--force", "--yes"]].concat();
    let created = place.run("create", &create, false);
    assert!(created.status.success(), "{}", printed(&created));
    assert_eq!(shown(&place, &devices), 4096);
}

#[test]
fn impossible_sector_size_is_refused() {
    let place = Place::new();
    for wrong in ["0", "520", "128KiB"] {
        for command in ["create", "serve"] {
            let refused = place.run(command, &["--sector-size", wrong], true);
            assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
            assert!(printed(&refused).contains("power of two from 512 to 65536"), "{}", printed(&refused));
        }
    }
    // 32 MiB and a sector: created for this size.
    let odd = place.path("odd");
    std::fs::File::create_new(&odd).unwrap().set_len((1 << 20) + 512).unwrap();
    let refused = place.run(
        "serve",
        &["--disk", odd.to_str().unwrap(), "--sector-size", "4096", "--socket", "x"],
        false,
    );
    assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
}
