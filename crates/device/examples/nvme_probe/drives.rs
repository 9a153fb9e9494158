//! The emulated drives, by the serial numbers that `cargo xtask vm` assigns, and the setup common to all checks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use flashwright_device::file::OpenOptions;
use flashwright_device::nvme::{Drive, PassthroughDevice};
use flashwright_device::{Device, FileDevice, IoBuffer, PlacementHandle, Request};

/// One reclaim group, four placement handles, reclaim units of 4 MiB.
pub const PLACING: &str = "PLACING1";
/// Two reclaim groups with two handles each.
pub const GROUPS: &str = "GROUPS01";
/// Placement, and a single handle.
pub const SINGLE: &str = "SINGLE01";
/// No placement.
pub const PLAIN: &str = "PLAIN001";
/// No placement, and every write fails.
pub const FAULTY: &str = "FAULTY01";

pub const BLOCK_BYTES: u64 = 4096;
pub const UNIT_BYTES: u64 = 4 << 20;

/// Paths of generic devices (`/dev/ng…`) by serial number.
pub struct Drives(HashMap<String, PathBuf>);

impl Drives {
    pub fn find() -> Self {
        let names = std::fs::read_dir("/dev").unwrap().flatten().map(|entry| entry.path());
        let generic = names.filter(|path| path.to_string_lossy().starts_with("/dev/ng"));
        let by_serial = |path: PathBuf| Some((Drive::open(&path).ok()?.controller().ok()?.serial, path));
        let drives = Self(generic.filter_map(by_serial).collect());
        for serial in [PLACING, GROUPS, SINGLE, PLAIN, FAULTY] {
            assert!(drives.0.contains_key(serial), "no drive {serial} among {:?}", drives.0);
        }
        drives
    }

    /// The path of the generic device of this drive.
    pub fn generic(&self, serial: &str) -> &Path {
        &self.0[serial]
    }

    /// The path of the block device of this drive.
    pub fn block(&self, serial: &str) -> PathBuf {
        self.generic(serial).to_string_lossy().replace("/dev/ng", "/dev/nvme").into()
    }

    pub fn drive(&self, serial: &str) -> Drive {
        Drive::open(self.generic(serial)).unwrap()
    }

    pub fn placed(&self, serial: &str) -> PassthroughDevice {
        PassthroughDevice::open(self.generic(serial), &placed()).unwrap()
    }
}

pub fn placed() -> OpenOptions {
    OpenOptions { placement: true, ..Default::default() }
}

/// Whether this kernel has write streams on block devices.
pub fn has_write_streams(drives: &Drives) -> bool {
    FileDevice::open(drives.block(PLACING), &placed()).is_ok()
}

/// Whether users other than root can use passthrough.
pub fn passes_commands_for_everyone() -> bool {
    let release = kernel();
    let mut numbers = release.split(['.', '-']).filter_map(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 2)
}

pub fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Writes `len` bytes at `offset`, submitted or on the calling thread.
pub fn write(device: &dyn Device, offset: u64, len: u64, handle: PlacementHandle, submitted: bool) {
    let data = IoBuffer::copy_of(&vec![0x5A; len as usize]).into();
    let request = Request::Write { offset, data, placement: handle };
    let outcome = if submitted { device.start(request).wait() } else { device.execute(request) };
    outcome.unwrap();
}

/// Logical blocks that still fit into the reclaim unit of each placement identifier.
pub fn blocks_left(drive: &Drive) -> Vec<u64> {
    drive.placement_status().unwrap().iter().map(|it| it.blocks_left).collect()
}

/// Blocks written to each identifier's reclaim unit since `before`. None may have crossed the unit's end.
pub fn taken_since(before: &[u64], drive: &Drive) -> Vec<u64> {
    let now = blocks_left(drive);
    before.iter().zip(now).map(|(before, now)| before.checked_sub(now).expect("within a unit")).collect()
}

/// Switches every identifier to a new unit, so that later writes stay within units.
pub fn renew_all(device: &PassthroughDevice) {
    for handle in 0..device.placement_ids().len() {
        device.renew(PlacementHandle(handle as u16)).unwrap();
    }
}
