//! Serves a volume.

use std::io;

use device::{ErrorKind, IoError, IoSlice};

use super::current_volume::CurrentVolume;
use super::extents::Extents;
use super::tasks::Tasks;
use super::{Context, Export, Extent, Operation, Reply, STEP_BYTES, Shape};
use crate::volume::{SECTOR_BYTES, Volume, VolumeError, VolumeErrorKind};

/// Serves a volume. Its devices should be wrapped by [`Tasks::resuming`] or [`Tasks::with_inline_transfers`], so that a hit needs no
/// thread wake-up.
pub struct VolumeExport {
    current: CurrentVolume,
    /// Whether requests insert blocks into the cache.
    may_cache: bool,
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
        Self::of_current(CurrentVolume::new(volume))
    }

    /// Serves the volume that `current` holds.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn of_current(current: CurrentVolume) -> io::Result<Self> {
        Ok(Self { current, may_cache: true, tasks: Tasks::new()? })
    }

    /// Serves the volume that `current` holds to clients whose requests [insert no blocks](Volume::without_caching).
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn without_caching(current: CurrentVolume) -> io::Result<Self> {
        Ok(Self { may_cache: false, ..Self::of_current(current)? })
    }
}

impl Export for VolumeExport {
    fn shape(&self) -> Shape {
        let volume = self.current.volume();
        Shape {
            size_bytes: volume.size_bytes(),
            block_bytes: SECTOR_BYTES,
            sector_bytes: volume.sector_bytes(),
            preferred_bytes: volume.block_bytes(),
            read_only: false,
        }
    }

    fn submit(&self, operation: Operation, reply: Reply) {
        if let Operation::Zero { only_if_fast: true, may_trim, .. } = operation
            && !(may_trim && self.current.volume().unmaps())
        {
            let message = "zeroing is not faster than writing zeros";
            return reply.send(Err(IoError::new(ErrorKind::Unsupported, message)));
        }
        let (current, may_cache) = (self.current.clone(), self.may_cache);
        self.tasks.run(async move {
            let done = perform_in(&current, may_cache, &operation).await;
            reply.send(done.map_err(|error| io_error(&error)));
        });
    }

    fn contexts(&self) -> &[Context] {
        &Context::ALL
    }

    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError> {
        let volume = self.current.volume();
        let mut extents = Extents::default();
        let (mut at, end) = (offset, offset + len.min(EXTENTS_BYTES));
        while at < end && extents.len() < most {
            let bytes = (end - at).min(BYTES_PER_LOCK);
            if context == Context::Allocation {
                let holes = volume.holes(at, bytes).map_err(|error| io_error(&error))?;
                extents.push_allocation(&(at..at + bytes), holes);
                at += bytes;
                continue;
            }
            let known = volume.extents(at, bytes, most).map_err(|error| io_error(&error))?;
            for extent in known {
                at += extent.len;
                let flags = u32::from(if context == Context::Dirty { extent.dirty } else { extent.cached });
                extents.push(extent.len, flags);
            }
        }
        Ok(extents.first(most))
    }
}

/// Performs `operation`, again on each successor of a volume that is closed.
async fn perform_in(
    current: &CurrentVolume,
    may_cache: bool,
    operation: &Operation,
) -> Result<Option<IoSlice>, VolumeError> {
    let mut volume = current.volume();
    loop {
        let done = match may_cache {
            true => perform(&volume, operation).await,
            false => perform(&volume.without_caching(), operation).await,
        };
        match done {
            Err(error) if error.kind() == VolumeErrorKind::Closed => {
                volume = current.successor(&volume).await.ok_or(error)?;
            }
            done => return done,
        }
    }
}

async fn perform(volume: &Volume, operation: &Operation) -> Result<Option<IoSlice>, VolumeError> {
    let done = match *operation {
        Operation::Read { offset, len } => return volume.read(offset, len as usize).await.map(Some),
        Operation::Write { offset, ref data, durable } => volume.write(offset, data.clone(), durable).await,
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
    done.map(|()| None)
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
