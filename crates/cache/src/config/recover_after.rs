//! The ends of a cache after which the next one finds the items on flash.

/// The ends of a cache after which the next one on the device finds the items on flash. Items in memory are lost after a kill: those in
/// DRAM, and those that wait to be written.
///
/// A removed or replaced item is never found again. For that, [`Kill`](Self::Kill) and [`PowerLoss`](Self::PowerLoss) record every
/// remove, overwrite and change of TTL of a key that flash may hold, in a journal on the device, before the call returns. A key that
/// only DRAM holds is not recorded. A journal takes 8 bytes per expected item: about 3 % of a log at 256 bytes, 0.2 % of the regions, where
/// 4 KiB are expected, but at least one region, and 0.4 % of sets. If the journal of the regions is full, because items are smaller and
/// often replaced, the oldest regions remain in use but are not recovered. A recorded call writes one block of the device. The next cache
/// reads a log or sets completely when it opens. [`Kill`] and [`PowerLoss`] reserve the same journal; a change between them and
/// [`CleanClose`] makes the next cache start empty.
///
/// If a write of the journal fails, the call returns, and the write is tried again with the next record. A kill before that can bring back
/// the old item.
///
/// [`CleanClose`]: Self::CleanClose
/// [`Kill`]: Self::Kill
/// [`PowerLoss`]: Self::PowerLoss
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RecoverAfter {
    /// After [`Cache::close`](crate::Cache::close) only. Costs nothing.
    #[default]
    CleanClose,
    /// After the end of the process too. A record is a copy to the page cache of the device's file, or a write where there is no page
    /// cache (NVMe namespaces), on the calling thread. After a restart of the system the cache starts empty.
    Kill,
    /// After a power cut or a crash of the system too. The device is flushed before a recorded call returns, once for all calls that wait
    /// at the same time. The calling thread is blocked meanwhile, also in async calls. A power cut may tear any block that is being
    /// written.
    PowerLoss,
}
