//! What all requests and the background work of a volume share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use device::Device;
use device::timer::Timer;
use event_listener::Event;
use parking_lot::Mutex;

use super::disk::Disk;
use super::identity::Identity;
use super::layout::Layout;
use super::pace::Pace;
use super::ranges::RangeLock;
use super::segment::Grid;
use super::state::State;

pub(super) struct Shared {
    pub(super) flash: Arc<dyn Device>,
    pub(super) disk: Arc<Disk>,
    pub(super) identity: Identity,
    pub(super) timer: Arc<dyn Timer>,
    pub(super) layout: Layout,
    /// Its range 0..1 is locked by a sequential write that bypasses the cache, until it is submitted to the disk.
    pub(super) bypass_turn: Arc<RangeLock>,
    pub(super) grid: Grid,
    /// Locks blocks of the cache for requests other than plain hits.
    pub(super) blocks: Arc<RangeLock>,
    /// Locks blocks of the disk that are being written.
    pub(super) disk_writers: Arc<RangeLock>,
    /// Its range 0..1 is locked while the oldest epoch is written to the disk.
    pub(super) destager: Arc<RangeLock>,
    /// Its range 0..1 is locked while a table or the superblock is written.
    pub(super) metadata_writer: Arc<RangeLock>,
    /// Its range 0..1 is locked by the batch of dirty blocks that is being written to the disk.
    pub(super) cleaning_turn: Arc<RangeLock>,
    pub(super) pace: Mutex<Pace>,
    /// Whether latencies are measured for [`Pace`].
    pub(super) is_paced: AtomicBool,
    pub(super) state: Mutex<State>,
    /// Notified when a commit ends, pages become free, or a block is no longer being cleaned.
    pub(super) changed: Event,
    /// Notified when a commit or an intent log entry ends, and when enough writes wait for an entry.
    pub(super) log_advanced: Event,
    /// Notified when a cleaning ends, for writes in the [slot queue](slot_queue).
    pub(super) slots_freed: Event,
}

impl Shared {
    /// Sets the latency gate in milliseconds; 0 disables it.
    pub(super) fn set_latency_gate(&self, gate_ms: u32) {
        self.pace.lock().set_gate(u64::from(gate_ms) * 1_000_000);
        self.is_paced.store(gate_ms > 0, Relaxed);
    }

    pub(super) fn begin_measure(&self) -> Option<u64> {
        self.is_paced.load(Relaxed).then(|| self.timer.monotonic_ns())
    }

    pub(super) fn end_measure(&self, begun_ns: Option<u64>) {
        if let Some(begun_ns) = begun_ns {
            let now_ns = self.timer.monotonic_ns();
            self.pace.lock().note(now_ns, now_ns.saturating_sub(begun_ns));
        }
    }
}
