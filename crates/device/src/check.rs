//! The contract's rules for requests, shared by all devices.

use crate::buffer::ALIGNMENT;
use crate::{ErrorKind, Geometry, IoError, Request};

/// Longest read or write of devices without their own limit. Longer ones would only delay the first byte by pinning pages.
pub const MAX_IO_BYTES: u32 = 16 << 20;

impl Geometry {
    /// Refuses a request that violates the rules for alignment, length and range.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the rule.
    pub fn check(&self, request: &Request) -> Result<(), IoError> {
        match request {
            Request::Read { offset, buffer } => self.check_transfer("read", *offset, buffer),
            Request::Write { offset, data, .. } => self.check_transfer("write", *offset, data),
            Request::Trim { offset, len } => self.check_range("trim", *offset, *len),
            Request::Flush => Ok(()),
        }
    }

    fn check_transfer(&self, verb: &str, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        let len = bytes.len() as u64;
        self.check_range(verb, offset, len)?;
        if len > u64::from(self.max_io_bytes) {
            let max = self.max_io_bytes;
            return Err(invalid(format!("{verb} of {len} bytes: a request has at most {max} bytes")));
        }
        // No drive needs an alignment above a page, even with larger blocks.
        let alignment = (self.block_bytes as usize).min(ALIGNMENT);
        if len > 0 && !bytes.as_ptr().addr().is_multiple_of(alignment) {
            let message = format!("{verb} at {offset}: the buffer is not aligned to {alignment} bytes");
            return Err(invalid(message));
        }
        Ok(())
    }

    fn check_range(&self, verb: &str, offset: u64, len: u64) -> Result<(), IoError> {
        let block = u64::from(self.block_bytes);
        if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(invalid(format!(
                "{verb} of {len} bytes at {offset}: not a multiple of the {block}-byte block"
            )));
        }
        let capacity = self.capacity_bytes;
        if offset.checked_add(len).is_none_or(|end| end > capacity) {
            return Err(invalid(format!(
                "{verb} of {len} bytes at {offset}: past the end of the device at {capacity}"
            )));
        }
        Ok(())
    }
}

fn invalid(context: String) -> IoError {
    IoError::new(ErrorKind::Invalid, context)
}
