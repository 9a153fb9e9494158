//! The control device `/dev/ublk-control`: creates, starts, recovers and deletes devices.

use std::fs::File;
use std::io;

use device::{ErrorKind, IoError};
use rustix::io::Errno;

use super::ring::ControlRing;
use super::uapi::{ControlCommand, DeviceInfo, Parameters, control, feature};

const PATH: &str = "/dev/ublk-control";

/// Required features of the driver, which Linux 6.5 has.
pub(super) const FEATURES: u64 =
    feature::USER_COPY | feature::IOCTL_ENCODED | feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;

/// The driver's control device.
pub(super) struct Control {
    ring: ControlRing,
    features: u64,
}

impl Control {
    /// Opens the control device and checks the driver's features.
    pub fn open() -> Result<Self, IoError> {
        let control = File::options().read(true).write(true).open(PATH).map_err(unopened)?;
        let ring = ControlRing::new(control).map_err(|error| {
            IoError::with_source(ErrorKind::Unsupported, "ublk needs io_uring, which is not available", error)
        })?;
        let mut opened = Self { ring, features: 0 };
        opened.features = opened.sufficient_features()?;
        Ok(opened)
    }

    /// Whether a device with several queues can always be recovered after a kill of its server. Before Linux 6.16 it cannot if the
    /// server was killed during a recovery, when only some queues had fetched requests.
    pub fn can_recover_many_queues(&self) -> bool {
        self.features & feature::QUIESCE != 0
    }

    /// Queries the driver's features. A driver that does not know the command is too old.
    fn sufficient_features(&mut self) -> Result<u64, IoError> {
        let mut word = [0; 8];
        let features = match self.run(control::GET_FEATURES, 0, 0, &mut word) {
            Ok(()) => u64::from_ne_bytes(word),
            Err(error) if is_refused(&error) => return Err(unprivileged(error)),
            Err(_) => 0,
        };
        let missing = FEATURES & !features;
        if missing == 0 {
            return Ok(features);
        }
        let message =
            format!("this kernel's ublk driver is too old (it lacks {missing:#x}): Linux 6.5 is needed");
        Err(IoError::new(ErrorKind::Unsupported, message))
    }

    /// Information on a device; `None` if it does not exist.
    pub fn info(&mut self, number: u32) -> Result<Option<DeviceInfo>, IoError> {
        let mut bytes = [0; DeviceInfo::BYTES];
        match self.run(control::GET_DEVICE_INFO, number, 0, &mut bytes) {
            Ok(()) => Ok(Some(DeviceInfo::decode(&bytes))),
            Err(error) if is(&error, Errno::NODEV) => Ok(None),
            Err(error) => Err(failed(number, "querying it", error)),
        }
    }

    /// Creates a device. Returns its actual properties.
    pub fn add(&mut self, wanted: &DeviceInfo) -> Result<DeviceInfo, IoError> {
        let mut bytes = wanted.encode();
        self.run(control::ADD_DEVICE, wanted.number, 0, &mut bytes).map_err(|error| {
            if is_refused(&error) { unprivileged(error) } else { failed(wanted.number, "creating it", error) }
        })?;
        Ok(DeviceInfo::decode(&bytes))
    }

    pub fn set_parameters(&mut self, number: u32, parameters: &Parameters) -> Result<(), IoError> {
        let result = self.run(control::SET_PARAMETERS, number, 0, &mut parameters.encode());
        result.map_err(|error| failed(number, "setting its parameters", error))
    }

    /// Size and logical block size of a device.
    pub fn size_and_sectors(&mut self, number: u32) -> Result<(u64, u32), IoError> {
        let mut bytes = Parameters::empty();
        let queried = self.run(control::GET_PARAMETERS, number, 0, &mut bytes);
        queried.map_err(|error| failed(number, "querying its size", error))?;
        Ok((Parameters::size_bytes_of(&bytes), Parameters::logical_block_bytes_of(&bytes)))
    }

    /// Makes the disk available, after all its queues have fetched.
    pub fn start(&mut self, number: u32) -> Result<(), IoError> {
        let started = self.run(control::START_DEVICE, number, this_process(), &mut []);
        started.map_err(|error| failed(number, "starting it", error))
    }

    /// Removes the disk after its requests are answered; then its queues end. Succeeds if it is already gone.
    pub fn stop(&mut self, number: u32) -> Result<(), IoError> {
        unless_gone(self.run(control::STOP_DEVICE, number, 0, &mut []))
            .map_err(|error| failed(number, "stopping it", error))
    }

    /// Deletes the device, without waiting for the last user to close it, which frees its number. Kernels before 6.9 can only
    /// wait.
    pub fn delete(&mut self, number: u32) -> Result<(), IoError> {
        let deleted = match self.run(control::DELETE_DEVICE_ASYNC, number, 0, &mut []) {
            Err(error) if is(&error, Errno::OPNOTSUPP) => {
                self.run(control::DELETE_DEVICE, number, 0, &mut [])
            }
            deleted => deleted,
        };
        unless_gone(deleted).map_err(|error| failed(number, "removing it", error))
    }

    /// Begins a recovery. Returns `false` while the kernel has not noticed the end of the previous server.
    pub fn start_recovery(&mut self, number: u32) -> Result<bool, IoError> {
        match self.run(control::START_USER_RECOVERY, number, 0, &mut []) {
            Ok(()) => Ok(true),
            // Kernels before 6.16: the previous server had begun a recovery and not fetched yet.
            Err(error) if is(&error, Errno::INVAL) => Ok(true),
            Err(error) if is(&error, Errno::BUSY) => Ok(false),
            Err(error) => Err(failed(number, "taking it over", error)),
        }
    }

    /// Ends a recovery, after all queues have fetched: requests are delivered.
    pub fn end_recovery(&mut self, number: u32) -> Result<(), IoError> {
        let ended = self.run(control::END_USER_RECOVERY, number, this_process(), &mut []);
        ended.map_err(|error| failed(number, "taking it over", error))
    }

    fn run(&mut self, operation: u32, device: u32, argument: u64, data: &mut [u8]) -> io::Result<()> {
        self.ring.run(operation, ControlCommand { device, argument }, data)
    }
}

fn this_process() -> u64 {
    u64::from(std::process::id())
}

fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}

fn is_refused(error: &io::Error) -> bool {
    is(error, Errno::PERM) || is(error, Errno::ACCESS)
}

fn unless_gone(ended: io::Result<()>) -> io::Result<()> {
    match ended {
        Err(error) if is(&error, Errno::NODEV) => Ok(()),
        ended => ended,
    }
}

fn failed(number: u32, doing: &str, error: io::Error) -> IoError {
    IoError::with_source(ErrorKind::Open, format!("/dev/ublkb{number}: {doing}"), error)
}

fn unprivileged(error: io::Error) -> IoError {
    IoError::with_source(ErrorKind::Open, format!("{PATH}: ublk needs root (CAP_SYS_ADMIN)"), error)
}

fn unopened(error: io::Error) -> IoError {
    match error.kind() {
        io::ErrorKind::NotFound => {
            let message = "does not exist: ublk needs Linux 6.5 or later with its driver (modprobe ublk_drv)";
            IoError::new(ErrorKind::Unsupported, format!("{PATH} {message}"))
        }
        io::ErrorKind::PermissionDenied => unprivileged(error),
        _ => IoError::with_source(ErrorKind::Open, format!("cannot open {PATH}"), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_driver_or_permission_is_explained() {
        let absent = unopened(io::ErrorKind::NotFound.into());
        assert_eq!(absent.kind(), ErrorKind::Unsupported);
        assert!(absent.to_string().contains("modprobe ublk_drv"), "{absent}");
        let refused = unopened(Errno::ACCESS.into());
        assert!(refused.to_string().contains("root"), "{refused}");
        assert!(!refused.to_string().contains('\n'));
    }
}
