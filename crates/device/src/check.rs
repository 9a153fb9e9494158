//! The contract's rules on a request, in one place for every device.

use crate::buffer::ALIGNMENT;
use crate::{ErrorKind, Geometry, IoError, Request};

/// Longest read or write of the devices here that have no limit of their own. Larger ones would only keep the
/// caller busy pinning pages before the first byte moves.
pub const MAX_IO_BYTES: u32 = 16 << 20;

impl Geometry {
    /// Refuses a request that breaks the rules on alignment, length and range.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], saying which rule.
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
        // No drive asks for more than a page, however large its blocks are.
        let alignment = (self.block_bytes as usize).min(ALIGNMENT);
        if len > 0 && !bytes.as_ptr().addr().is_multiple_of(alignment) {
            let words = format!("{verb} at {offset}: the buffer is not aligned to {alignment} bytes");
            return Err(invalid(words));
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
