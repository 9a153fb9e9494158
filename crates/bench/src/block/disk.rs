//! A model of a disk with one head.

/// Cost of disk operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskModel {
    /// Seek and rotation time, unless the operation starts where the previous one ended.
    pub seek_ns: u64,
    /// Transfer rate.
    pub bytes_per_second: u64,
}

impl Default for DiskModel {
    /// A disk at 7,200 rpm: 7 ms per seek, then 150 MB/s.
    fn default() -> Self {
        Self { seek_ns: 7_000_000, bytes_per_second: 150_000_000 }
    }
}

/// The disk and its counters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk {
    model: DiskModel,
    head_byte: u64,
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Operations that started where the previous one ended.
    pub without_seek: u64,
    /// Busy time.
    pub busy_ns: u64,
}

impl Disk {
    /// Creates an idle disk.
    #[must_use]
    pub fn new(model: DiskModel) -> Self {
        Self { model, ..Self::default() }
    }

    /// Counts a read operation.
    pub fn read(&mut self, first_byte: u64, bytes: u64) {
        self.reads += 1;
        self.read_bytes += bytes;
        self.move_head(first_byte, bytes);
    }

    /// Counts a write operation.
    pub fn write(&mut self, first_byte: u64, bytes: u64) {
        self.writes += 1;
        self.written_bytes += bytes;
        self.move_head(first_byte, bytes);
    }

    /// Reads and writes.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.reads + self.writes
    }

    /// Resets the counters and keeps the head position.
    pub fn zero(&mut self) {
        *self = Self { model: self.model, head_byte: self.head_byte, ..Self::default() };
    }

    fn move_head(&mut self, first_byte: u64, bytes: u64) {
        if first_byte == self.head_byte {
            self.without_seek += 1;
        } else {
            self.busy_ns += self.model.seek_ns;
        }
        let transfer_ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.model.bytes_per_second);
        self.busy_ns += transfer_ns as u64;
        self.head_byte = first_byte.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_at_the_head_position_has_no_seek() {
        let mut disk = Disk::new(DiskModel { seek_ns: 100, bytes_per_second: 1_000_000_000 });
        disk.read(4096, 10);
        assert_eq!(disk.busy_ns, 110);
        disk.write(4106, 10);
        assert_eq!((disk.busy_ns, disk.without_seek), (120, 1));
        disk.read(4096, 10);
        assert_eq!((disk.busy_ns, disk.operations()), (230, 3));
    }
}
