//! Serves a volume.

use std::io;

use device::{ErrorKind, IoError};

use super::extents::Extents;
use super::tasks::Tasks;
use super::{Context, Export, Extent, Operation, OperationResult, Reply, STEP_BYTES, Shape};
use crate::volume::{SECTOR_BYTES, Volume, VolumeError, VolumeErrorKind};

/// Serves a volume. Its devices should be wrapped by [`Tasks::resuming`] or [`Tasks::with_inline_transfers`], so that a hit needs no
/// thread wake-up.
pub struct VolumeExport {
    volume: Volume,
    tasks: Tasks,
}

/// Limit of bytes per query of extents; the client queries the rest.
const EXTENTS_BYTES: u64 = 1 << 30;

/// Bytes examined per hold of the volume's lock.
const BYTES_PER_LOCK: u64 = 16 << 20;

impl VolumeExport {
    /// Serves `volume`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(volume: Volume) -> io::Result<Self> {
        Ok(Self { volume, tasks: Tasks::new()? })
    }
}

impl Export for VolumeExport {
    fn shape(&self) -> Shape {
        Shape {
            size_bytes: self.volume.size_bytes(),
            block_bytes: SECTOR_BYTES,
            sector_bytes: self.volume.sector_bytes(),
            preferred_bytes: self.volume.block_bytes(),
            read_only: false,
        }
    }

    fn submit(&self, operation: Operation, reply: Reply) {
        let volume = self.volume.clone();
        self.tasks.run(async move { reply.send(perform(&volume, operation).await) });
    }

    fn contexts(&self) -> &[Context] {
        &Context::ALL
    }

    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError> {
        let mut extents = Extents::default();
        let (mut at, end) = (offset, offset + len.min(EXTENTS_BYTES));
        while at < end && extents.len() < most {
            let bytes = (end - at).min(BYTES_PER_LOCK);
            if context == Context::Allocation {
                let holes = self.volume.holes(at, bytes).map_err(|error| io_error(&error))?;
                extents.push_allocation(&(at..at + bytes), holes);
                at += bytes;
                continue;
            }
            let known = self.volume.extents(at, bytes, most).map_err(|error| io_error(&error))?;
            for extent in known {
                at += extent.len;
                let flags = u32::from(if context == Context::Dirty { extent.dirty } else { extent.cached });
                extents.push(extent.len, flags);
            }
        }
        Ok(extents.first(most))
    }
}

async fn perform(volume: &Volume, operation: Operation) -> OperationResult {
    let done = match operation {
        Operation::Read { offset, len } => {
            return volume.read(offset, len as usize).await.map(Some).map_err(|error| io_error(&error));
        }
        Operation::Write { offset, data, durable } => volume.write(offset, data, durable).await,
        Operation::Zero { only_if_fast: true, may_trim, .. } if !(may_trim && volume.unmaps()) => {
            let words = "zeroing is not faster than writing zeros";
            return Err(IoError::new(ErrorKind::Unsupported, words));
        }
        Operation::Zero { offset, len, may_trim: true, durable, .. } => {
            volume.unmap(offset, len, durable).await
        }
        Operation::Zero { offset, len, durable, .. } => volume.write_zeroes(offset, len, durable).await,
        Operation::Trim { offset, len, durable } => match volume.trim(offset, len).await {
            Ok(()) if durable => volume.flush().await,
            trimmed => trimmed,
        },
        Operation::Prefetch { offset, len } => prefetch(volume, offset, len).await,
        Operation::Flush => volume.flush().await,
    };
    done.map(|()| None).map_err(|error| io_error(&error))
}

async fn prefetch(volume: &Volume, offset: u64, len: u64) -> Result<(), VolumeError> {
    let (mut at, end) = (offset, offset + len);
    // In a mode that does not insert on reads, reading would be useless.
    while at < end && volume.caches_reads() {
        let bytes = (end - at).min(STEP_BYTES as u64);
        volume.read(at, bytes as usize).await?;
        at += bytes;
    }
    Ok(())
}

fn io_error(error: &VolumeError) -> IoError {
    let kind = match error.kind() {
        VolumeErrorKind::Invalid => ErrorKind::Invalid,
        VolumeErrorKind::Closed => ErrorKind::Closed,
        _ => ErrorKind::Medium,
    };
    IoError::new(kind, error.to_string())
}
