//! Operations that must fail, and their messages.

use flashwright_device::file::OpenOptions;
use flashwright_device::{Device, ErrorKind, FileDevice, IoBuffer, PassthroughDevice, Request};

use crate::drives::{BLOCK_BYTES, Drives, FAULTY, PLACING, PLAIN, SINGLE, placed};
use crate::{Check, Verdict};

pub const CHECKS: &[Check] = &[
    ("placement on a drive without support is refused with the reason", not_capable),
    ("placement on a namespace with one handle is refused with the steps to more", single),
    ("a failed write is reported on every kind of access", faults),
    ("a namespace has one owner across all kinds of access", owners),
];

fn not_capable(drives: &Drives) -> Verdict {
    let passed = PassthroughDevice::open(drives.generic(PLAIN), &placed()).unwrap_err();
    let streams = FileDevice::open(drives.block(PLAIN), &placed()).unwrap_err();
    for error in [passed, streams] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("does not support Flexible Data Placement"), "{error}");
    }
    Verdict::Held
}

fn single(drives: &Drives) -> Verdict {
    let error = PassthroughDevice::open(drives.generic(SINGLE), &placed()).unwrap_err().to_string();
    assert!(error.contains("a single placement handle") && error.contains("nvme create-ns"), "{error}");
    Verdict::Held
}

fn faults(drives: &Drives) -> Verdict {
    let passed = PassthroughDevice::open(drives.generic(FAULTY), &OpenOptions::default()).unwrap();
    for submitted in [true, false] {
        let error = failed_write(&passed, submitted);
        assert!(error.contains("write fault (NVMe status 280h)"), "{error}");
    }
    assert_eq!(passed.counters().errors, 2);
    read_works(&passed);
    drop(passed);
    let block = FileDevice::open(drives.block(FAULTY), &OpenOptions::default()).unwrap();
    for submitted in [true, false] {
        failed_write(&block, submitted);
    }
    read_works(&block);
    Verdict::Held
}

fn failed_write(device: &dyn Device, submitted: bool) -> String {
    let data = IoBuffer::zeroed(BLOCK_BYTES as usize);
    let request = Request::write(0, data);
    let outcome = if submitted { device.start(request).wait() } else { device.execute(request) };
    let error = outcome.expect_err("a write to a drive that fails all writes");
    assert_eq!(error.kind(), ErrorKind::Medium, "{error}");
    error.to_string()
}

fn read_works(device: &dyn Device) {
    device.read(BLOCK_BYTES, BLOCK_BYTES as usize).wait().expect("only writes fail");
}

fn owners(drives: &Drives) -> Verdict {
    let options = OpenOptions::default();
    let busy = |what: &str, error: Option<flashwright_device::IoError>| {
        let error = error.unwrap_or_else(|| panic!("{what} was accepted"));
        assert_eq!(error.kind(), ErrorKind::Busy, "{what}: {error}");
    };
    let (generic, block) = (drives.generic(PLACING), drives.block(PLACING));
    let passed = PassthroughDevice::open(generic, &options).unwrap();
    busy("a second passed-through owner", PassthroughDevice::open(generic, &options).err());
    busy("the block device beside passing through", FileDevice::open(&block, &options).err());
    drop(passed);
    let owner = FileDevice::open(&block, &options).unwrap();
    busy("passing through beside the block device", PassthroughDevice::open(generic, &options).err());
    drop(owner);
    PassthroughDevice::open(generic, &options).expect("the namespace is free again");
    Verdict::Held
}
