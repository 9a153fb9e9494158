//! Completion status of a command.

use std::fmt;
use std::io;

use crate::ErrorKind;

/// The status field of a completion: code in bits 7:0, code type in bits 10:8, "do not retry" in bit 14.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u16);

impl Status {
    /// A field of the command is invalid.
    pub const INVALID_FIELD: Self = Self(0x002);
    /// The mapped data buffer is longer than the drive's transfer.
    pub const DATA_LENGTH_INVALID: Self = Self(0x00F);
    /// Placement is not enabled in the endurance group.
    pub const FDP_DISABLED: Self = Self(0x029);
    /// Past the end of the namespace.
    pub const LBA_OUT_OF_RANGE: Self = Self(0x080);

    /// Type and code, without the retry bits.
    #[must_use]
    pub fn code(self) -> u16 {
        self.0 & 0x7FF
    }

    /// Whether this is `other`, ignoring the retry bits.
    #[must_use]
    pub fn is(self, other: Self) -> bool {
        self.code() == other.code()
    }

    /// The corresponding error kind.
    #[must_use]
    pub fn kind(self) -> ErrorKind {
        match self.code() {
            0x002 | 0x00F | 0x013 | 0x080 => ErrorKind::Invalid,
            0x001 | 0x029 | 0x109 | 0x10E => ErrorKind::Unsupported,
            0x081 => ErrorKind::NoSpace,
            _ => ErrorKind::Medium,
        }
    }

    /// Whether the error is temporary: the command was interrupted or the namespace is getting ready, and a retry is allowed. The kernel
    /// retries for block devices, but not for passthrough.
    pub(crate) fn is_temporary(self) -> bool {
        const DO_NOT_RETRY: u16 = 1 << 14;
        matches!(self.code(), 0x021 | 0x082) && self.0 & DO_NOT_RETRY == 0
    }

    fn text(self) -> &'static str {
        match self.code() {
            0x001 => "the drive does not support the command",
            0x002 => "invalid field in the command",
            0x004 => "data transfer error",
            0x006 => "internal error of the drive",
            0x007 => "command aborted",
            0x00B => "no such namespace, or its format is not supported",
            0x00F => "the data length does not match the command",
            0x013 => "invalid data offset",
            0x020 => "the namespace is write protected",
            0x021 => "the command was interrupted",
            0x029 => "Flexible Data Placement is disabled",
            0x02A => "no such placement handle",
            0x080 => "past the end of the namespace",
            0x081 => "the drive's capacity is exceeded",
            0x082 => "the namespace is not ready",
            0x109 => "no such log page",
            0x10E => "the feature is not available",
            0x280 => "write fault",
            0x281 => "unrecovered read error",
            0x285 => "compare failure",
            0x286 => "access denied",
            0x287 => "the block was deallocated or never written",
            _ => match self.code() >> 8 {
                0 => "the command failed",
                1 => "command-specific error",
                2 => "media or data integrity error",
                3 => "the path to the drive failed",
                _ => "vendor-specific error",
            },
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (NVMe status {:03X}h)", self.text(), self.code())
    }
}

impl std::error::Error for Status {}

impl From<Status> for io::Error {
    fn from(status: Status) -> Self {
        Self::other(status)
    }
}

impl Status {
    /// The status in `error`, if it came from a drive.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Self>().copied()
    }

    /// Converts the return value of a passthrough call: 0 and above is the drive's status, below is an error number.
    pub(crate) fn check(result: i32) -> io::Result<()> {
        match result {
            0 => Ok(()),
            1.. => Err(Self((result & 0xFFFF) as u16).into()),
            _ => Err(io::Error::from_raw_os_error(-result)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_value_is_success_status_or_error_number() {
        assert!(Status::check(0).is_ok());
        let fault = Status::check(0x4280).unwrap_err();
        assert_eq!(Status::of(&fault), Some(Status(0x4280)));
        assert_eq!(fault.to_string(), "write fault (NVMe status 280h)");
        let refused = Status::check(-13).unwrap_err();
        assert_eq!((Status::of(&refused), refused.kind()), (None, io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn retry_bit_is_not_part_of_the_code() {
        assert!(Status(0x4029).is(Status::FDP_DISABLED));
        assert_eq!(Status(0x4029).kind(), ErrorKind::Unsupported);
        assert_eq!(Status(0x0280).kind(), ErrorKind::Medium);
        assert_eq!(Status(0x4080).kind(), ErrorKind::Invalid);
    }
}
