//! Commands that the kernel passes through to the drive.
//!
//! ```text
//!  byte  0       1      2      4     8      12     16        24       32            36        40 … 63      64          68
//!        opcode  flags  (2)    nsid  cdw2   cdw3   metadata  address  metadata len  data len  cdw10 … 15   timeout ms  (4)
//! ```
//!
//! This is `struct nvme_uring_cmd` of `linux/nvme_ioctl.h`, 72 bytes; `struct nvme_passthru_cmd64` has 8 more bytes for the result.

/// Bytes of a command.
pub(super) const COMMAND_BYTES: usize = 72;

/// Offsets of the data's address and length.
pub(super) const ADDRESS_AT: usize = 24;
pub(super) const DATA_LEN_AT: usize = 36;

/// The directive type for placement.
const DATA_PLACEMENT: u32 = 2;

/// A command without the address of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// The operation. The low two bits are the direction of the data: 1 to the drive, 2 from it.
    pub opcode: u8,
    /// Namespace; 0 for none.
    pub namespace: u32,
    /// Double words 10 to 15.
    pub words: [u32; 6],
}

impl Command {
    /// Get Log Page: `len` bytes at `offset` of page `log`. `specific` is the log-specific field; log pages of an endurance group name the
    /// group.
    #[must_use]
    pub fn get_log(log: u8, specific: u8, endurance_group: u16, offset: u64, len: usize) -> Self {
        let words_less_one = (len / 4).saturating_sub(1) as u32;
        let first = u32::from(log) | u32::from(specific) << 8 | (words_less_one & 0xFFFF) << 16;
        let second = words_less_one >> 16 | u32::from(endurance_group) << 16;
        let (low, high) = (offset as u32, (offset >> 32) as u32);
        Self { opcode: 0x02, namespace: 0xFFFF_FFFF, words: [first, second, low, high, 0, 0] }
    }

    /// Identify the controller.
    #[must_use]
    pub fn identify_controller() -> Self {
        Self { opcode: 0x06, namespace: 0, words: [1, 0, 0, 0, 0, 0] }
    }

    /// Identify a namespace.
    #[must_use]
    pub fn identify_namespace(namespace: u32) -> Self {
        Self { opcode: 0x06, namespace, words: [0; 6] }
    }

    /// Get Features: the current value of the placement feature of an endurance group.
    #[must_use]
    pub fn get_fdp_feature(endurance_group: u16) -> Self {
        Self { opcode: 0x0A, namespace: 0, words: [0x1D, endurance_group.into(), 0, 0, 0, 0] }
    }

    /// I/O Management Receive: `len` bytes of the status of the namespace's placement identifiers.
    #[must_use]
    pub fn placement_status(namespace: u32, len: usize) -> Self {
        let words_less_one = (len / 4).saturating_sub(1) as u32;
        Self { opcode: 0x12, namespace, words: [1, words_less_one, 0, 0, 0, 0] }
    }

    /// I/O Management Send: switches the `count` placement identifiers in the data to new reclaim units.
    #[must_use]
    pub fn placement_update(namespace: u32, count: u16) -> Self {
        let operation = 1 | u32::from(count.saturating_sub(1)) << 16;
        Self { opcode: 0x1D, namespace, words: [operation, 0, 0, 0, 0, 0] }
    }

    /// Read `blocks` (1 to 65,536) from `first` on.
    #[must_use]
    pub fn read(namespace: u32, first: u64, blocks: u32) -> Self {
        Self { opcode: 0x02, namespace, words: transfer(first, blocks) }
    }

    /// Write `blocks` (1 to 65,536) from `first` on, optionally to a placement identifier.
    #[must_use]
    pub fn write(namespace: u32, first: u64, blocks: u32, placement_id: Option<u16>) -> Self {
        let mut words = transfer(first, blocks);
        if let Some(placement_id) = placement_id {
            words[2] |= DATA_PLACEMENT << 20;
            words[3] = u32::from(placement_id) << 16;
        }
        Self { opcode: 0x01, namespace, words }
    }

    /// Flush: makes completed writes durable.
    #[must_use]
    pub fn flush(namespace: u32) -> Self {
        Self { opcode: 0x00, namespace, words: [0; 6] }
    }

    /// Dataset Management: deallocates the `count` ranges in the data.
    #[must_use]
    pub fn deallocate(namespace: u32, count: u16) -> Self {
        const DEALLOCATE: u32 = 1 << 2;
        Self { opcode: 0x09, namespace, words: [u32::from(count.saturating_sub(1)), DEALLOCATE, 0, 0, 0, 0] }
    }

    /// The command in bytes, with the data's `address`.
    #[must_use]
    pub(super) fn encode(&self, address: u64, data_len: u32) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[0] = self.opcode;
        bytes[4..8].copy_from_slice(&self.namespace.to_le_bytes());
        bytes[ADDRESS_AT..ADDRESS_AT + 8].copy_from_slice(&address.to_le_bytes());
        bytes[DATA_LEN_AT..DATA_LEN_AT + 4].copy_from_slice(&data_len.to_le_bytes());
        for (place, word) in bytes[40..64].chunks_exact_mut(4).zip(self.words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

fn transfer(first: u64, blocks: u32) -> [u32; 6] {
    [first as u32, (first >> 32) as u32, blocks.saturating_sub(1) & 0xFFFF, 0, 0, 0]
}

/// A range for [`Command::deallocate`].
#[must_use]
pub fn deallocated_range(first: u64, blocks: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&blocks.to_le_bytes());
    bytes[8..].copy_from_slice(&first.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placed_write_has_the_placement_directive() {
        let command = Command::write(3, 0x1_0000_0002, 128, Some(0x4001));
        assert_eq!(command.words, [2, 1, 0x0020_007F, 0x4001_0000, 0, 0]);
        assert_eq!(Command::write(3, 2, 65_536, None).words, [2, 0, 0xFFFF, 0, 0, 0]);
    }

    #[test]
    fn log_page_length_is_in_double_words_minus_one() {
        let command = Command::get_log(0x22, 0, 7, 0x1_0000_0010, 64);
        assert_eq!(command.words, [0x000F_0022, 0x0007_0000, 0x10, 1, 0, 0]);
        assert_eq!(Command::get_log(0x23, 1, 1, 0, 1 << 20).words[..2], [0xFFFF_0123, 0x0001_0003]);
        assert_eq!(Command::placement_status(1, 16 + 32 * 4).words, [1, 35, 0, 0, 0, 0]);
        assert_eq!(Command::placement_update(1, 3).words, [0x0002_0001, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn fields_have_the_offsets_of_the_kernel() {
        let command = Command { opcode: 0x81, namespace: 0x0403_0201, words: [10, 11, 12, 13, 14, 15] };
        let mut expected = [0; COMMAND_BYTES];
        expected[0] = 0x81;
        expected[4..8].copy_from_slice(&[1, 2, 3, 4]);
        expected[24..32].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        expected[36..40].copy_from_slice(&[0, 16, 0, 0]);
        for (number, at) in (40..64).step_by(4).enumerate() {
            expected[at] = 10 + number as u8;
        }
        assert_eq!(command.encode(0x0102_0304_0506_0708, 4096), expected);
    }

    #[test]
    fn deallocated_range_has_length_before_start() {
        let bytes = deallocated_range(0x0102, 0x0304);
        assert_eq!(bytes, [0, 0, 0, 0, 4, 3, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    }
}
