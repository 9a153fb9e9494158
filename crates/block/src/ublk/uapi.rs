//! The layouts of `linux/ublk_cmd.h`: command numbers and field offsets.
//!
//! ```text
//! struct ublksrv_ctrl_cmd        dev_id 0  queue_id 4  len 6  addr 8  data 16  dev_path_len 24            32 bytes
//! struct ublksrv_ctrl_dev_info   nr_hw_queues 0  queue_depth 2  state 4  max_io_buf_bytes 8  dev_id 12
//!                                ublksrv_pid 16  flags 24  ublksrv_flags 32  owner_uid 40  owner_gid 44  64 bytes
//! struct ublk_params             len 0  types 4  basic 8  discard 40  (more that is not ours)             60 bytes
//!   struct ublk_param_basic      attrs 0  logical_bs_shift 4  physical 5  io_opt 6  io_min 7
//!                                max_sectors 8  chunk_sectors 12  dev_sectors 16  virt_boundary_mask 24
//!   struct ublk_param_discard    alignment 0  granularity 4  max_sectors 8  max_zeroes_sectors 12  max_segments 16
//! struct ublksrv_io_desc         op_flags 0  nr_sectors 4  start_sector 8  addr 16                        24 bytes
//! struct ublksrv_io_cmd          q_id 0  tag 2  result 4  addr 8                                          16 bytes
//! ```
//!
//! All fields are in native byte order.

/// Unit of offsets and lengths in descriptors and parameters.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Commands to `/dev/ublk-control`, encoded as ioctl numbers: `_IOR` if they only read, otherwise `_IOWR`.
pub(super) mod control {
    pub(in super::super) const GET_DEVICE_INFO: u32 = reads(0x02);
    pub(in super::super) const ADD_DEVICE: u32 = writes(0x04);
    pub(in super::super) const DELETE_DEVICE: u32 = writes(0x05);
    pub(in super::super) const START_DEVICE: u32 = writes(0x06);
    pub(in super::super) const STOP_DEVICE: u32 = writes(0x07);
    pub(in super::super) const SET_PARAMETERS: u32 = writes(0x08);
    pub(in super::super) const GET_PARAMETERS: u32 = reads(0x09);
    pub(in super::super) const START_USER_RECOVERY: u32 = writes(0x10);
    pub(in super::super) const END_USER_RECOVERY: u32 = writes(0x11);
    pub(in super::super) const GET_FEATURES: u32 = reads(0x13);
    pub(in super::super) const DELETE_DEVICE_ASYNC: u32 = reads(0x14);

    const fn reads(number: u32) -> u32 {
        0x8020_7500 | number
    }

    const fn writes(number: u32) -> u32 {
        0xC020_7500 | number
    }
}

/// Commands to a queue, `_IOWR`.
pub(super) mod queue {
    pub(in super::super) const FETCH: u32 = 0xC010_7520;
    pub(in super::super) const COMMIT_AND_FETCH: u32 = 0xC010_7521;
}

/// `UBLK_F_*`: features of the driver or of a device.
pub(super) mod feature {
    /// Requests wait for the next server instead of failing.
    pub(in super::super) const USER_RECOVERY: u64 = 1 << 3;
    /// Unanswered requests are delivered to the next server again.
    pub(in super::super) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Commands are encoded as ioctl numbers.
    pub(in super::super) const IOCTL_ENCODED: u64 = 1 << 6;
    /// The server copies data by reading and writing the character device.
    pub(in super::super) const USER_COPY: u64 = 1 << 7;
    /// A device can be quiesced by command (Linux 6.16). Used here to detect such kernels.
    pub(in super::super) const QUIESCE: u64 = 1 << 12;
}

/// `UBLK_S_DEV_*`: the state of a device.
pub(super) mod state {
    /// Not started, or stopped.
    pub(in super::super) const DEAD: u16 = 0;
    /// Served.
    pub(in super::super) const LIVE: u16 = 1;
    /// Without a server: requests wait for the next one.
    pub(in super::super) const QUIESCED: u16 = 2;
    /// Without a server: requests fail.
    pub(in super::super) const FAILING: u16 = 3;
}

/// `UBLK_IO_OP_*`, the low byte of a descriptor's first word.
pub(super) mod operation {
    pub(in super::super) const READ: u32 = 0;
    pub(in super::super) const WRITE: u32 = 1;
    pub(in super::super) const FLUSH: u32 = 2;
    pub(in super::super) const DISCARD: u32 = 3;
    pub(in super::super) const WRITE_ZEROES: u32 = 5;

    /// `UBLK_IO_F_*`, in the same word.
    pub(in super::super) const FUA: u32 = 1 << 13;
    pub(in super::super) const NO_UNMAP: u32 = 1 << 15;
}

/// `UBLK_ATTR_*` of a device.
mod attribute {
    pub(super) const READ_ONLY: u32 = 1 << 0;
    pub(super) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(super) const FUA: u32 = 1 << 3;
}

/// Size of a queue's descriptor area: 4096 descriptors.
const DESCRIPTORS_STRIDE_BYTES: u64 = 4096 * Descriptor::BYTES as u64;

/// Offset in the character device at which a queue's descriptors are mapped.
pub(super) fn descriptors_at(queue: u16, page_bytes: usize) -> u64 {
    u64::from(queue) * DESCRIPTORS_STRIDE_BYTES.next_multiple_of(page_bytes as u64)
}

/// Offset in the character device of a request's data: 25 bits of offset, 16 of tag, 12 of queue.
pub(super) fn data_at(queue: u16, tag: u16) -> u64 {
    const DATA_START: u64 = 0x8000_0000;
    DATA_START + (u64::from(queue) << 41 | u64::from(tag) << 25)
}

/// `struct ublksrv_ctrl_cmd` without its buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct ControlCommand {
    pub device: u32,
    /// The argument of some commands.
    pub argument: u64,
}

impl ControlCommand {
    /// The command of a ring entry, with a buffer of `len` bytes at `address`.
    pub fn encode(self, address: u64, len: u16) -> [u8; 80] {
        const NO_QUEUE: u16 = u16::MAX;
        let mut bytes = [0; 80];
        put(&mut bytes, 0, &self.device.to_ne_bytes());
        put(&mut bytes, 4, &NO_QUEUE.to_ne_bytes());
        put(&mut bytes, 6, &len.to_ne_bytes());
        put(&mut bytes, 8, &address.to_ne_bytes());
        put(&mut bytes, 16, &self.argument.to_ne_bytes());
        bytes
    }
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    pub queues: u16,
    pub depth: u16,
    pub state: u16,
    pub max_io_bytes: u32,
    pub number: u32,
    /// Process ID of the server.
    pub process: i32,
    pub features: u64,
    /// Stored by the kernel for the server.
    pub mark: u64,
}

impl DeviceInfo {
    pub const BYTES: usize = 64;

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &self.queues.to_ne_bytes());
        put(&mut bytes, 2, &self.depth.to_ne_bytes());
        put(&mut bytes, 4, &self.state.to_ne_bytes());
        put(&mut bytes, 8, &self.max_io_bytes.to_ne_bytes());
        put(&mut bytes, 12, &self.number.to_ne_bytes());
        put(&mut bytes, 16, &self.process.to_ne_bytes());
        put(&mut bytes, 24, &self.features.to_ne_bytes());
        put(&mut bytes, 32, &self.mark.to_ne_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            queues: u16::from_ne_bytes(take(bytes, 0)),
            depth: u16::from_ne_bytes(take(bytes, 2)),
            state: u16::from_ne_bytes(take(bytes, 4)),
            max_io_bytes: u32::from_ne_bytes(take(bytes, 8)),
            number: u32::from_ne_bytes(take(bytes, 12)),
            process: i32::from_ne_bytes(take(bytes, 16)),
            features: u64::from_ne_bytes(take(bytes, 24)),
            mark: u64::from_ne_bytes(take(bytes, 32)),
        }
    }
}

/// `struct ublk_params` with its basic and discard parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameters {
    pub size_bytes: u64,
    pub max_io_bytes: u32,
    /// Powers of two.
    pub logical_block_bytes: u32,
    pub physical_block_bytes: u32,
    pub preferred_bytes: u32,
    pub read_only: bool,
    pub max_discard_bytes: u64,
    pub max_zeroes_bytes: u64,
}

impl Parameters {
    pub const BYTES: usize = 60;

    pub fn encode(&self) -> [u8; Self::BYTES] {
        const BASIC_AND_DISCARD: u32 = 0b11;
        const SEGMENTS: u16 = 1;
        let read_only = if self.read_only { attribute::READ_ONLY } else { 0 };
        let attributes = attribute::VOLATILE_CACHE | attribute::FUA | read_only;
        let shift = |bytes: u32| bytes.trailing_zeros() as u8;
        let sectors = |bytes: u64| u32::try_from(bytes / SECTOR_BYTES).unwrap_or(u32::MAX).to_ne_bytes();
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &(Self::BYTES as u32).to_ne_bytes());
        put(&mut bytes, 4, &BASIC_AND_DISCARD.to_ne_bytes());
        put(&mut bytes, 8, &attributes.to_ne_bytes());
        bytes[12] = shift(self.logical_block_bytes);
        bytes[13] = shift(self.physical_block_bytes);
        bytes[14] = shift(self.preferred_bytes);
        bytes[15] = shift(self.physical_block_bytes);
        put(&mut bytes, 16, &sectors(self.max_io_bytes.into()));
        put(&mut bytes, 24, &(self.size_bytes / SECTOR_BYTES).to_ne_bytes());
        put(&mut bytes, 44, &self.preferred_bytes.to_ne_bytes());
        put(&mut bytes, 48, &sectors(self.max_discard_bytes));
        put(&mut bytes, 52, &sectors(self.max_zeroes_bytes));
        put(&mut bytes, 56, &SEGMENTS.to_ne_bytes());
        bytes
    }

    /// A buffer that the kernel fills.
    pub fn empty() -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &(Self::BYTES as u32).to_ne_bytes());
        bytes
    }

    /// The device's size.
    pub fn size_bytes_of(bytes: &[u8; Self::BYTES]) -> u64 {
        u64::from_ne_bytes(take(bytes, 24)).saturating_mul(SECTOR_BYTES)
    }

    /// The device's logical block size; 0 if its shift is invalid.
    pub fn logical_block_bytes_of(bytes: &[u8; Self::BYTES]) -> u32 {
        1_u32.checked_shl(bytes[12].into()).unwrap_or(0)
    }
}

/// `struct ublksrv_io_desc` without its address: a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub operation_and_flags: u32,
    pub sectors: u32,
    pub first_sector: u64,
}

impl Descriptor {
    pub const BYTES: usize = 24;

    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            operation_and_flags: u32::from_ne_bytes(take(bytes, 0)),
            sectors: u32::from_ne_bytes(take(bytes, 4)),
            first_sector: u64::from_ne_bytes(take(bytes, 8)),
        }
    }
}

/// `struct ublksrv_io_cmd` without an address, because the server copies the data.
pub(super) fn queue_command(queue: u16, tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    put(&mut bytes, 0, &queue.to_ne_bytes());
    put(&mut bytes, 2, &tag.to_ne_bytes());
    put(&mut bytes, 4, &result.to_ne_bytes());
    bytes
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the field lies within the bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The non-zero bytes and their offsets.
    fn set(bytes: &[u8]) -> Vec<(usize, u8)> {
        bytes.iter().copied().enumerate().filter(|(_, byte)| *byte != 0).collect()
    }

    #[test]
    fn commands_equal_the_ioctl_numbers_of_the_header() {
        use rustix::ioctl::opcode;
        type Control = [u64; 4];
        type Io = [u64; 2];
        assert_eq!(control::ADD_DEVICE, opcode::read_write::<Control>(b'u', 0x04) as u32);
        assert_eq!(control::END_USER_RECOVERY, opcode::read_write::<Control>(b'u', 0x11) as u32);
        assert_eq!(control::GET_FEATURES, opcode::read::<Control>(b'u', 0x13) as u32);
        assert_eq!(queue::FETCH, opcode::read_write::<Io>(b'u', 0x20) as u32);
        assert_eq!(queue::COMMIT_AND_FETCH, opcode::read_write::<Io>(b'u', 0x21) as u32);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn control_command_has_the_kernel_layout() {
        let bytes = ControlCommand { device: 0x0403_0201, argument: 9 }.encode(0x1122_3344_5566_7788, 64);
        assert_eq!(bytes[..8], [1, 2, 3, 4, 0xFF, 0xFF, 64, 0]);
        assert_eq!(bytes[8..16], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(set(&bytes[16..]), [(0, 9)]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn device_info_has_the_kernel_layout_and_decodes() {
        let info = DeviceInfo {
            queues: 1,
            depth: 2,
            state: 3,
            max_io_bytes: 4,
            number: 5,
            process: 6,
            features: 7,
            mark: 8,
        };
        let bytes = info.encode();
        assert_eq!(set(&bytes), [(0, 1), (2, 2), (4, 3), (8, 4), (12, 5), (16, 6), (24, 7), (32, 8)]);
        assert_eq!(DeviceInfo::decode(&bytes), info);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn parameters_encode_block_sizes_as_shifts_and_sizes_in_sectors() {
        let parameters = Parameters {
            size_bytes: 7 * 512,
            max_io_bytes: 5 * 512,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            preferred_bytes: 65_536,
            read_only: true,
            max_discard_bytes: 3 * 512,
            max_zeroes_bytes: 2 * 512,
        };
        let bytes = parameters.encode();
        let basic = [(0, 60), (4, 3), (8, 0b1101), (12, 9), (13, 12), (14, 16), (15, 12), (16, 5), (24, 7)];
        let discard = [(46, 1), (48, 3), (52, 2), (56, 1)];
        assert_eq!(set(&bytes), [&basic[..], &discard].concat());
        assert_eq!(Parameters::size_bytes_of(&bytes), 7 * 512);
        assert_eq!(Parameters::logical_block_bytes_of(&bytes), 512);
        let large = Parameters { logical_block_bytes: 4096, ..parameters };
        assert_eq!(Parameters::logical_block_bytes_of(&large.encode()), 4096);
        let huge = Parameters { max_discard_bytes: u64::MAX, ..parameters };
        assert_eq!(huge.encode()[48..52], [0xFF; 4], "larger values are clamped");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn descriptor_and_queue_command_have_the_kernel_layout() {
        let bytes = std::array::from_fn(|at| at as u8);
        let descriptor = Descriptor::decode(&bytes);
        assert_eq!(descriptor.operation_and_flags, 0x0302_0100);
        assert_eq!((descriptor.sectors, descriptor.first_sector), (0x0706_0504, 0x0F0E_0D0C_0B0A_0908));
        let command = queue_command(0x0201, 0x0403, -2);
        assert_eq!(command, [1, 2, 3, 4, 0xFE, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn data_and_descriptor_areas_do_not_overlap() {
        assert_eq!(data_at(0, 0), 0x8000_0000);
        assert_eq!(data_at(0, 1) - data_at(0, 0), 32 << 20, "space for the longest request");
        assert_eq!(data_at(1, 0) - data_at(0, 0), (1 << 16) * (32 << 20));
        assert_eq!([descriptors_at(0, 4096), descriptors_at(2, 4096)], [0, 2 * 24 * 4096]);
        assert_eq!(descriptors_at(1, 65_536), 2 * 65_536, "24 times 4096, in whole pages");
    }
}
