//! The device on a simulated drive. `cargo xtask vm` tests it with a kernel on an emulated drive.

use super::*;
use crate::conformance;
use crate::nvme::fake::{BLOCK_BYTES, Fake};
use crate::{IoBuffer, SliceDevice, StripeDevice};
use std::sync::Arc;

fn location() -> Location {
    Location::for_test("nvme0n1")
}

fn over(fake: Fake, options: &OpenOptions) -> Result<PassthroughDevice<Fake>, IoError> {
    let options = OpenOptions { engine: Some(Engine::ThreadPool), ..options.clone() };
    let limits = Limits { max_io_bytes: 504 << 10, block_device: None };
    PassthroughDevice::over(Drive::new(fake, 1), &location(), limits, Path::new("/dev/ng0n1"), &options)
}

fn placed() -> OpenOptions {
    OpenOptions { placement: true, ..Default::default() }
}

fn write(device: &dyn Device, placement: PlacementHandle, blocks: usize) -> Outcome {
    let data = IoBuffer::zeroed(blocks * BLOCK_BYTES).into();
    device.execute(Request::Write { offset: 0, data, placement })
}

#[test]
fn device_conforms_with_and_without_placement() {
    for options in [OpenOptions::default(), placed()] {
        conformance::run(|| Box::new(over(Fake::sized(8 << 20), &options).unwrap()));
    }
}

#[test]
fn handles_write_to_their_identifiers_and_unknown_ones_to_the_default() {
    let device = over(Fake::new(), &placed()).unwrap();
    assert_eq!(
        (device.geometry().placement_handles, device.placement_ids()),
        (3, &[0, 0x4000, 1, 0x4001][..])
    );
    let handles: Vec<_> = ["soc", "loc", "hot", "cold"].map(|it| device.allocate_handle(it)).to_vec();
    assert_eq!(handles, [1, 2, 3, 0].map(PlacementHandle));
    assert_eq!(device.consumers()[3], ("cold".into(), PlacementHandle::DEFAULT));
    for (blocks, &handle) in (1..).zip(&handles) {
        write(&device, handle, blocks).unwrap();
    }
    write(&device, PlacementHandle(77), 8).unwrap();
    let written = device.drive().transport().state.lock().placement.clone();
    let expected = [(0, 12), (0x4000, 1), (1, 2), (0x4001, 3)].map(|(id, blocks)| (id, blocks * 4096));
    assert_eq!(written, expected);
}

#[test]
fn without_placement_all_writes_use_the_default_handle() {
    let device = over(Fake::new(), &OpenOptions::default()).unwrap();
    assert_eq!((device.geometry().placement_handles, device.allocate_handle("soc").0), (0, 0));
    write(&device, PlacementHandle(1), 1).unwrap();
    assert_eq!(device.drive().transport().state.lock().placement[0], (0, 4096));
}

#[test]
fn stripe_allocates_an_identifier_on_each_member() {
    let members: Vec<_> = (0..2).map(|_| Arc::new(over(Fake::new(), &placed()).unwrap())).collect();
    members[1].allocate_handle("an earlier consumer");
    let devices = members.iter().map(|it| Arc::clone(it) as Arc<dyn Device>).collect();
    let stripe = StripeDevice::new(devices, BLOCK_BYTES as u64).unwrap();
    let handles = ["a", "b", "c"].map(|consumer| stripe.allocate_handle(consumer).0);
    assert_eq!(handles, [1, 2, 0], "limited by the member with the fewest left");
    write(&stripe, PlacementHandle(1), 2).unwrap();
    let on = |member: usize| members[member].drive().transport().state.lock().placement.clone();
    assert_eq!((on(0)[1], on(1)[2]), ((0x4000, 4096), (1, 4096)));
}

#[test]
fn open_without_placement_names_the_missing_requirement_and_the_steps() {
    let refusal = |change: fn(&mut crate::nvme::fake::State)| {
        let fake = Fake::new();
        change(&mut fake.state.lock());
        let error = over(fake, &placed()).expect_err("no placement");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        error.to_string()
    };
    assert!(
        refusal(|it| it.fdp_capable = false).contains("the drive does not support Flexible Data Placement")
    );
    let off = refusal(|it| it.fdp_enabled = false);
    for step in [
        "(FDP) is off",
        "nvme fdp configs /dev/nvme0 -e 1",
        "nvme delete-ns /dev/nvme0 -n 1",
        "nvme set-feature /dev/nvme0 -f 0x1d --value=1 --cdw12=0x1 -s",
        "nvme create-ns /dev/nvme0 -s 4096 -c 4096 -b 4096 -e 1 -n 4 -p 0,1,2,3",
        "nvme attach-ns /dev/nvme0 -n 1 -c 0",
    ] {
        assert!(off.contains(step), "{step:?} in {off}");
    }
    let none = refusal(|it| it.placement.clear());
    assert!(none.contains("no placement handles") && !none.contains("set-feature"), "{none}");
    assert!(refusal(|it| it.placement.truncate(1)).contains("a single placement handle"));
}

#[test]
fn slice_without_placement_takes_no_handle_of_the_drive() {
    let whole: Arc<dyn Device> = Arc::new(over(Fake::new(), &placed()).unwrap());
    let slice = |range| SliceDevice::new(Arc::clone(&whole), range).unwrap();
    let (placing, plain) = (slice(0..4096), slice(4096..8192).without_placement());
    assert_eq!(plain.allocate_handle("plain"), PlacementHandle::DEFAULT);
    assert_eq!((placing.geometry().placement_handles, plain.geometry().placement_handles), (3, 0));
    assert_eq!(placing.allocate_handle("placing"), PlacementHandle(1));
}

#[test]
fn statistics_are_unknown_without_privilege_and_io_works() {
    let fake = Fake::new();
    fake.state.lock().privileged = false;
    let device = over(fake, &placed()).unwrap();
    write(&device, PlacementHandle(1), 1).unwrap();
    assert_eq!(device.counters().media_written_bytes, None);
    let with_statistics = over(Fake::new(), &placed()).unwrap();
    write(&with_statistics, PlacementHandle(1), 3).unwrap();
    assert_eq!(with_statistics.counters().media_written_bytes, Some(3 * 4096));
}

#[test]
fn drive_error_reaches_the_caller_with_its_status() {
    let device = over(Fake::new(), &placed()).unwrap();
    let fail = |status| device.drive().transport().state.lock().fault = Some(Status(status));
    fail(0x280);
    let error = write(&device, PlacementHandle::DEFAULT, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Medium);
    let message = "/dev/ng0n1: write of 4096 bytes at 0: write fault (NVMe status 280h)";
    assert_eq!(error.to_string(), message);
    fail(0x021);
    write(&device, PlacementHandle::DEFAULT, 1).expect("an interrupted command is retried");
}

#[test]
fn renewed_handle_has_a_new_reclaim_unit() {
    let device = over(Fake::new(), &placed()).unwrap();
    device.renew(PlacementHandle(1)).unwrap();
    device.renew(PlacementHandle::DEFAULT).unwrap();
    assert_eq!(device.drive().transport().state.lock().renewed, [0x4000, 0]);
    assert_eq!(device.renew(PlacementHandle(9)).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn long_trim_is_split_into_supported_ranges() {
    let drive = Drive::new(Fake::new(), 1);
    drive.deallocate(5, 23, 10).unwrap();
    assert_eq!(drive.transport().state.lock().trimmed, [(5, 10), (15, 10), (25, 3)]);
}

#[test]
fn open_unsupported_namespace_is_refused() {
    let kind = |change: fn(&mut crate::nvme::fake::State), options: OpenOptions| {
        let fake = Fake::new();
        change(&mut fake.state.lock());
        over(fake, &options).expect_err("a refusal").kind()
    };
    let sized = |size_bytes| OpenOptions { size_bytes: Some(size_bytes), ..Default::default() };
    assert_eq!(kind(|it| it.metadata_bytes = 8, OpenOptions::default()), ErrorKind::Unsupported);
    assert_eq!(kind(|_| (), OpenOptions { buffered: true, ..Default::default() }), ErrorKind::Unsupported);
    assert_eq!(kind(|_| (), sized((16 << 20) + 4096)), ErrorKind::Open);
    assert_eq!(kind(|_| (), sized(100)), ErrorKind::Open);
    let error = PassthroughDevice::open("/dev/null", &OpenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Open);
}
