//! The conformance suite on every kind of access to a namespace.

use flashwright_device::file::{Engine, OpenOptions};
use flashwright_device::{Device, DeviceSpec, FileDevice, PassthroughDevice, StripeDevice, conformance};

use crate::drives::{Drives, GROUPS, PLACING, PLAIN, has_write_streams, placed};
use crate::{Check, Verdict};

/// The part of a drive that the suite uses.
const SIZE_BYTES: u64 = 32 << 20;

pub const CHECKS: &[Check] = &[
    ("the contract holds on the block device", |drives| {
        let path = drives.block(PLACING);
        conformance::run(|| Box::new(FileDevice::open(&path, &sized(&OpenOptions::default())).unwrap()));
        Verdict::Held
    }),
    ("the contract holds on the block device with write streams", |drives| {
        if !has_write_streams(drives) {
            return Verdict::DoesNotApply("this kernel has no write streams");
        }
        let path = drives.block(PLACING);
        conformance::run(|| Box::new(FileDevice::open(&path, &sized(&placed())).unwrap()));
        Verdict::Held
    }),
    ("the contract holds by passed-through commands, with placement", |drives| {
        conformance::run(|| passthrough(drives, PLACING, &sized(&placed())));
        Verdict::Held
    }),
    ("the contract holds by passed-through commands, without placement", |drives| {
        conformance::run(|| passthrough(drives, PLAIN, &sized(&OpenOptions::default())));
        Verdict::Held
    }),
    ("the contract holds by ioctl alone", |drives| {
        let options = OpenOptions { engine: Some(Engine::ThreadPool), ..sized(&placed()) };
        conformance::run(|| passthrough(drives, PLACING, &options));
        Verdict::Held
    }),
    ("the contract holds on a stripe of two drives", |drives| {
        conformance::run(|| {
            let members =
                [PLACING, GROUPS].map(|serial| passthrough(drives, serial, &sized(&placed())).into());
            Box::new(StripeDevice::new(members.to_vec(), 64 << 10).unwrap())
        });
        Verdict::Held
    }),
    ("a path alone leads to the right back end", |drives| {
        for (path, handles) in [(drives.generic(PLACING).to_path_buf(), 3), (drives.block(PLAIN), 0)] {
            let options = OpenOptions { placement: handles > 0, ..Default::default() };
            let device = DeviceSpec::Path(path).open(&options).unwrap();
            assert_eq!(device.geometry().placement_handles, handles);
        }
        Verdict::Held
    }),
];

fn passthrough(drives: &Drives, serial: &str, options: &OpenOptions) -> Box<dyn Device> {
    let device = PassthroughDevice::open(drives.generic(serial), options).unwrap();
    let engine = options.engine.unwrap_or(Engine::IoUring);
    assert_eq!(device.engine(), engine);
    Box::new(device)
}

fn sized(options: &OpenOptions) -> OpenOptions {
    OpenOptions { size_bytes: Some(SIZE_BYTES), ..options.clone() }
}
