//! Lists the ublk devices of all programs, and deletes a device without a server.

use std::path::PathBuf;

use device::IoError;

use super::control::{Control, FEATURES};
use super::disk::{block_path, busy, numbers};
use super::uapi::{DeviceInfo, state};

/// State of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceState {
    /// A server answers requests.
    Served,
    /// The server is gone; requests wait for the next one.
    Waiting,
    /// The server is gone; requests fail.
    Failing,
    /// Never started, or stopped: there is no disk.
    Stopped,
    /// Another state, by the driver's number.
    Unknown(u16),
}

impl DeviceState {
    fn of(number: u16) -> Self {
        match number {
            state::DEAD => Self::Stopped,
            state::LIVE => Self::Served,
            state::QUIESCED => Self::Waiting,
            state::FAILING => Self::Failing,
            other => Self::Unknown(other),
        }
    }

    /// The name of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Waiting => "waiting",
            Self::Failing => "failing",
            Self::Stopped => "stopped",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// A device of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStatus {
    /// `N` of `/dev/ublkbN`.
    pub number: u32,
    /// State of the device.
    pub state: DeviceState,
    /// Process ID of the last server.
    pub process: Option<u32>,
    /// Size of the disk, if known.
    pub size_bytes: Option<u64>,
    /// Whether the device has the features that this program sets, which few other programs do.
    pub is_ours: bool,
    /// The identity of the disk, if this program made the device.
    pub identity: u64,
}

impl DeviceStatus {
    fn of(info: &DeviceInfo, size_bytes: Option<u64>) -> Self {
        Self {
            number: info.number,
            state: DeviceState::of(info.state),
            process: u32::try_from(info.process).ok().filter(|&process| process > 0),
            size_bytes: size_bytes.filter(|&bytes| bytes > 0),
            is_ours: info.features & FEATURES == FEATURES,
            identity: info.mark,
        }
    }

    /// Path of the block device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        block_path(self.number)
    }
}

/// All devices of the driver, by number; none without the driver.
///
/// # Errors
/// [`Open`](device::ErrorKind::Open): no permission, or the driver refuses.
pub fn devices() -> Result<Vec<DeviceStatus>, IoError> {
    let mut numbers = numbers();
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    numbers.sort_unstable();
    let mut control = Control::open()?;
    let mut devices = Vec::new();
    for number in numbers {
        // The device may have been removed meanwhile.
        if let Some(info) = control.info(number)? {
            devices
                .push(DeviceStatus::of(&info, control.size_and_sectors(number).ok().map(|(bytes, _)| bytes)));
        }
    }
    Ok(devices)
}

/// Deletes a device without a server. Pending and later requests of its users fail. The number becomes free when the last user
/// closes the device.
///
/// # Errors
/// [`Busy`](device::ErrorKind::Busy) if a server answers its requests; [`Open`](device::ErrorKind::Open) if there is no such device,
/// no permission, or the driver refuses.
pub fn delete(number: u32) -> Result<(), IoError> {
    let mut control = Control::open()?;
    let Some(info) = control.info(number)? else {
        return Err(IoError::new(
            device::ErrorKind::Open,
            format!("there is no {}", block_path(number).display()),
        ));
    };
    if info.state == state::LIVE {
        return Err(busy(number, "is being served: stop its server first"));
    }
    if info.state != state::DEAD {
        control.stop(number)?;
    }
    control.delete(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_info_decodes_to_state_process_size_and_owner() {
        let info = DeviceInfo {
            queues: 1,
            depth: 2,
            state: state::QUIESCED,
            max_io_bytes: 4096,
            number: 5,
            process: 77,
            features: FEATURES,
            mark: 9,
        };
        let status = DeviceStatus::of(&info, Some(1 << 20));
        assert_eq!((status.state.name(), status.process, status.is_ours), ("waiting", Some(77), true));
        assert_eq!((status.size_bytes, status.path()), (Some(1 << 20), "/dev/ublkb5".into()));
        let other = DeviceInfo { features: FEATURES & !(1 << 7), process: -1, state: 3, ..info };
        let status = DeviceStatus::of(&other, Some(0));
        assert_eq!((status.state, status.process, status.is_ours), (DeviceState::Failing, None, false));
        assert_eq!(status.size_bytes, None);
        assert_eq!([0, 1, 9].map(|number| DeviceState::of(number).name()), ["stopped", "served", "unknown"]);
    }
}
