//! Placement: the drive's reports, and the location of writes.

use flashwright_device::nvme::command::Command;
use flashwright_device::nvme::fdp::{HandleUse, Isolation};
use flashwright_device::nvme::ioctl::{Data, Queue, Transport};
use flashwright_device::nvme::wear::Source;
use flashwright_device::nvme::{Readiness, Wear};
use flashwright_device::{Device, FileDevice, IoBuffer, PlacementHandle, StripeDevice};
use std::sync::Arc;

use crate::drives::{
    BLOCK_BYTES, Drives, GROUPS, PLACING, PLAIN, UNIT_BYTES, blocks_left, has_write_streams, placed,
    renew_all, taken_since, write,
};
use crate::{Check, Verdict};

pub const CHECKS: &[Check] = &[
    ("identify, feature and log pages match the drive's configuration", pages),
    ("SMART and endurance group log pages are read, and missing ones are unknown", health),
    ("host bytes (HBMW) are exact, submitted and by the calling thread", host_bytes),
    ("each handle fills its own reclaim unit (RUAMW) and no other", units),
    ("a renewed handle has a whole unit again, and the media wrote the padding", renewal),
    ("an unassigned handle and an invalid identifier use the default", bad_handles),
    ("identifiers of several reclaim groups come from the drive's list", groups),
    ("a stripe of two drives places on both", stripe),
    ("a write stream of the block device is a handle", streams),
    ("media bytes of the device count from its opening", media_counter),
];

fn pages(drives: &Drives) -> Verdict {
    let drive = drives.drive(PLACING);
    let (controller, namespace) = (drive.controller().unwrap(), drive.namespace().unwrap());
    assert!(controller.fdp && controller.endurance_groups && controller.dataset_management);
    assert_eq!((namespace.block_bytes, namespace.metadata_bytes), (Some(BLOCK_BYTES as u32), 0));
    assert_eq!(namespace.endurance_group, Some(1));
    assert!(drive.fdp_feature(1).unwrap().enabled);
    let configurations = drive.fdp_configurations(1).unwrap();
    let configuration = &configurations.each[0];
    assert!(configuration.valid);
    assert_eq!((configuration.reclaim_groups, configuration.reclaim_unit_bytes), (1, Some(UNIT_BYTES)));
    assert_eq!(configuration.handles, [Isolation::Initially; 8]);
    let used = drive.fdp_handle_use(1).unwrap();
    assert_eq!(used[..4], [HandleUse::Host; 4]);
    assert_eq!(used[4..], [HandleUse::Unused; 4]);
    drive.fdp_events(1, true).unwrap();
    drive.fdp_events(1, false).unwrap();
    let off = drives.drive(PLAIN);
    assert_eq!(Readiness::of(&off).unwrap(), Readiness::NotCapable);
    Verdict::Held
}

fn health(drives: &Drives) -> Verdict {
    let drive = drives.drive(PLACING);
    let smart = drive.smart().unwrap();
    assert!(smart.temperature_celsius.is_some_and(|it| (0..100).contains(&it)), "{smart:?}");
    let wear = Wear::read(&drive, Some(1));
    assert_eq!(wear.written.unwrap().source, Source::Placement);
    let unreported: Vec<_> = wear.unreported.iter().map(|(what, _)| *what).collect();
    assert_eq!(unreported, ["OCP SMART (C0h)"], "only this page is missing");
    let plain = Wear::read(&drives.drive(PLAIN), None);
    assert_eq!(plain.written.unwrap().media_bytes, None);
    Verdict::Held
}

fn host_bytes(drives: &Drives) -> Verdict {
    let device = drives.placed(PLACING);
    let before = device.drive().fdp_statistics(1).unwrap();
    let mut written = 0;
    for turn in 0..64 {
        let len = (turn % 9 + 1) * BLOCK_BYTES;
        write(&device, turn * 65_536, len, PlacementHandle((turn % 4) as u16), turn % 3 == 0);
        written += len;
    }
    let largest = u64::from(device.geometry().max_io_bytes);
    write(&device, 8 << 20, largest, PlacementHandle(1), true);
    let after = device.drive().fdp_statistics(1).unwrap();
    assert_eq!(after.host_written_bytes - before.host_written_bytes, u128::from(written + largest));
    assert!(after.media_written_bytes - before.media_written_bytes >= u128::from(written + largest));
    Verdict::Held
}

fn units(drives: &Drives) -> Verdict {
    let device = drives.placed(PLACING);
    for turn in 0..6 {
        let handle = device.allocate_handle("probe");
        assert_eq!(handle.0, if turn < 3 { turn + 1 } else { 0 }, "distinct until they run out");
    }
    for submitted in [true, false] {
        for handle in 0..4 {
            renew_all(&device);
            let before = blocks_left(device.drive());
            write(&device, 0, 16 * BLOCK_BYTES, PlacementHandle(handle), submitted);
            let mut expected = [0; 4];
            expected[usize::from(handle)] = 16;
            assert_eq!(taken_since(&before, device.drive()), expected);
        }
    }
    Verdict::Held
}

fn renewal(drives: &Drives) -> Verdict {
    let device = drives.placed(PLACING);
    renew_all(&device);
    write(&device, 0, 16 * BLOCK_BYTES, PlacementHandle(2), true);
    let before = device.drive().fdp_statistics(1).unwrap();
    device.renew(PlacementHandle(2)).unwrap();
    assert_eq!(blocks_left(device.drive())[2], UNIT_BYTES / BLOCK_BYTES);
    let after = device.drive().fdp_statistics(1).unwrap();
    let rest = u128::from(UNIT_BYTES - 16 * BLOCK_BYTES);
    assert_eq!(after.media_written_bytes - before.media_written_bytes, rest);
    assert_eq!(after.host_written_bytes, before.host_written_bytes);
    Verdict::Held
}

fn bad_handles(drives: &Drives) -> Verdict {
    let device = drives.placed(PLACING);
    renew_all(&device);
    let before = blocks_left(device.drive());
    write(&device, 0, 2 * BLOCK_BYTES, PlacementHandle(99), true);
    assert_eq!(taken_since(&before, device.drive()), [2, 0, 0, 0]);
    // The drive accepts invalid identifiers, so handles must be checked.
    let command = Command::write(device.drive().namespace_id(), 0, 1, Some(0x7777));
    let block = IoBuffer::zeroed(BLOCK_BYTES as usize);
    device.drive().transport().run(Queue::Io, &command, Data::To(&block)).unwrap();
    assert_eq!(taken_since(&before, device.drive()), [3, 0, 0, 0]);
    Verdict::Held
}

fn groups(drives: &Drives) -> Verdict {
    let device = drives.placed(GROUPS);
    let ids = device.placement_ids().to_vec();
    assert_eq!(ids.len(), 4, "two handles in two groups");
    assert!(ids.iter().any(|&id| id > 0xFF), "the group is in the upper bits: {ids:04x?}");
    renew_all(&device);
    for handle in 0..4 {
        let before = blocks_left(device.drive());
        write(&device, 0, BLOCK_BYTES, PlacementHandle(handle), true);
        let mut expected = [0; 4];
        expected[usize::from(handle)] = 1;
        assert_eq!(taken_since(&before, device.drive()), expected);
    }
    Verdict::Held
}

fn stripe(drives: &Drives) -> Verdict {
    let members = [PLACING, GROUPS].map(|serial| Arc::new(drives.placed(serial)));
    members.iter().for_each(|member| renew_all(member));
    let devices = members.iter().map(|it| Arc::clone(it) as Arc<dyn Device>).collect();
    let stripe = StripeDevice::new(devices, 64 << 10).unwrap();
    let handle = stripe.allocate_handle("probe");
    assert_ne!(handle, PlacementHandle::DEFAULT);
    let before = members.each_ref().map(|it| blocks_left(it.drive()));
    write(&stripe, 0, 256 << 10, handle, true);
    for (member, before) in members.iter().zip(&before) {
        assert_eq!(taken_since(before, member.drive()), [0, 32, 0, 0]);
    }
    Verdict::Held
}

fn streams(drives: &Drives) -> Verdict {
    if !has_write_streams(drives) {
        let error = FileDevice::open(drives.block(PLACING), &placed()).unwrap_err().to_string();
        assert!(error.contains("need Linux 6.16"), "{error}");
        return Verdict::DoesNotApply("this kernel has no write streams, and the error says so");
    }
    renew_all(&drives.placed(PLACING));
    let device = FileDevice::open(drives.block(PLACING), &placed()).unwrap();
    assert_eq!(device.geometry().placement_handles, 3);
    let drive = drives.drive(PLACING);
    for submitted in [true, false] {
        for handle in [0, 1, 2, 3, 99] {
            let before = blocks_left(&drive);
            write(&device, 0, 4 * BLOCK_BYTES, PlacementHandle(handle), submitted);
            let mut expected = [0; 4];
            expected[if handle < 4 { usize::from(handle) } else { 0 }] = 4;
            assert_eq!(taken_since(&before, &drive), expected, "handle {handle}");
        }
    }
    Verdict::Held
}

fn media_counter(drives: &Drives) -> Verdict {
    let device = drives.placed(PLACING);
    assert_eq!(device.counters().media_written_bytes, Some(0));
    renew_all(&device);
    let start = device.counters().media_written_bytes.unwrap();
    write(&device, 0, 8 * BLOCK_BYTES, PlacementHandle(1), true);
    assert_eq!(device.counters().media_written_bytes, Some(start + 8 * BLOCK_BYTES));
    drop(device);
    let block = FileDevice::open(drives.block(PLACING), &Default::default()).unwrap();
    write(&block, 0, 8 * BLOCK_BYTES, PlacementHandle::DEFAULT, true);
    assert_eq!(block.counters().media_written_bytes, Some(8 * BLOCK_BYTES));
    let plain = FileDevice::open(drives.block(PLAIN), &Default::default()).unwrap();
    assert_eq!(plain.counters().media_written_bytes, None);
    Verdict::Held
}
