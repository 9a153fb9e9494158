//! Commands by ioctl: synchronous, on the calling thread.
#![allow(unsafe_code, reason = "the compiler cannot check an ioctl's number and argument")]

use std::ffi::c_void;
use std::fs::File;
use std::io;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

use super::command::{COMMAND_BYTES, Command};
use super::status::Status;

/// The data of a command.
#[derive(Debug)]
pub enum Data<'a> {
    /// Nothing.
    None,
    /// Filled by the drive. Its length must be exactly that of the command: some drives reject a longer buffer, others overrun a shorter
    /// one.
    From(&'a mut [u8]),
    /// Sent to the drive, with the same rule for the length.
    To(&'a [u8]),
}

impl Data<'_> {
    fn address_and_len(&mut self) -> (u64, usize) {
        match self {
            Self::None => (0, 0),
            Self::From(bytes) => (bytes.as_mut_ptr().expose_provenance() as u64, bytes.len()),
            Self::To(bytes) => (bytes.as_ptr().expose_provenance() as u64, bytes.len()),
        }
    }
}

/// The queue of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// The controller's queue: identify, log pages, features.
    Admin,
    /// A namespace's queue: transfers, flush, trim, I/O management.
    Io,
}

/// Sends commands to a drive and returns the completion's result.
pub trait Transport: Send + Sync {
    /// Runs `command` to completion. A status other than success is an error that [`Status::of`] recognises.
    ///
    /// # Errors
    /// The drive's status, or the system's error.
    fn run(&self, queue: Queue, command: &Command, data: Data<'_>) -> io::Result<u64>;
}

/// `_IOWR('N', 0x47, struct nvme_passthru_cmd64)` and `0x48`.
const ADMIN: Opcode = opcode::read_write::<Passed>(b'N', 0x47);
const IO: Opcode = opcode::read_write::<Passed>(b'N', 0x48);

/// `_IO('N', 0x40)`: returns the number of the file's namespace.
const NAMESPACE: Opcode = opcode::none(b'N', 0x40);

impl Transport for File {
    fn run(&self, queue: Queue, command: &Command, mut data: Data<'_>) -> io::Result<u64> {
        let (address, len) = data.address_and_len();
        let Ok(data_len) = u32::try_from(len) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut passed = Passed { command: command.encode(address, data_len), result: [0; 8] };
        let number = if queue == Queue::Admin { ADMIN } else { IO };
        // SAFETY: both ioctls read and write one `Passed`; its address and length are those of `data`, which is borrowed until the call
        // returns, mutably if the drive writes.
        let status = unsafe { ioctl(self, Call { number, argument: (&raw mut passed).cast() }) }?;
        Status::check(status)?;
        Ok(u64::from_le_bytes(passed.result))
    }
}

/// The number of the namespace of `file`.
///
/// # Errors
/// If it is not a namespace.
pub fn namespace_number(file: &File) -> io::Result<u32> {
    // SAFETY: the ioctl has no argument.
    let number = unsafe { ioctl(file, Call { number: NAMESPACE, argument: std::ptr::null_mut() }) }?;
    u32::try_from(number).ok().filter(|&number| number > 0).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// `struct nvme_passthru_cmd64`.
#[repr(C, align(8))]
struct Passed {
    command: [u8; COMMAND_BYTES],
    result: [u8; 8],
}

/// An ioctl that returns its result as return value.
struct Call {
    number: Opcode,
    argument: *mut c_void,
}

// SAFETY: number and argument match in both places that create a `Call`.
unsafe impl Ioctl for Call {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.number
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _argument: *mut c_void) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ioctl_numbers_equal_those_of_the_kernel() {
        assert_eq!((ADMIN, IO, NAMESPACE), (0xC050_4E47, 0xC050_4E48, 0x4E40));
    }

    #[test]
    fn ioctl_on_a_regular_file_fails() {
        let file = tempfile::tempfile().unwrap();
        let mut page = [0; 16];
        let refused = file.run(Queue::Admin, &Command::identify_controller(), Data::From(&mut page));
        assert_eq!(Status::of(&refused.unwrap_err()), None);
        assert!(namespace_number(&file).is_err());
    }
}
