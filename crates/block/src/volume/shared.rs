//! What all inner of a volume share: the devices, the clock and the state.

use std::sync::Arc;

use device::Device;
use device::timer::Timer;
use event_listener::Event;
use parking_lot::Mutex;

use super::disk::Disk;
use super::identity::Identity;
use super::layout::Layout;
use super::os_identity::OsIdentity;
use super::segment::Grid;
use super::state::State;
use super::superblock::Superblock;

pub(super) struct Shared {
    pub(super) flash: Arc<dyn Device>,
    pub(super) disk: Arc<Disk>,
    pub(super) identity: Identity,
    pub(super) timer: Arc<dyn Timer>,
    pub(super) layout: Layout,
    pub(super) grid: Grid,
    pub(super) state: Mutex<State>,
    /// Notified when a commit ends, pages become free, or a block is no longer being cleaned.
    pub(super) changed: Event,
}

impl Shared {
    pub(super) fn new(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
        os_identity: OsIdentity,
        superblock: Superblock,
        state: State,
    ) -> Self {
        let (layout, disk_bytes) = (superblock.layout, superblock.disk.bytes);
        Self {
            flash,
            disk: Arc::new(Disk::new(disk, disk_bytes, Arc::clone(&timer))),
            identity: Identity::new(superblock, os_identity),
            timer,
            layout,
            grid: Grid::new(&layout, disk_bytes),
            state: Mutex::new(state),
            changed: Event::new(),
        }
    }
}
