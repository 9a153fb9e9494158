//! The model's counters: those of NVMe's FDP statistics log, and others that real drives do not report.

use std::collections::VecDeque;

use crate::geometry::{LogicalPage, UnitId};

/// Counters since the drive was created, or since the last [reset](crate::Ftl::reset_stats).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes that the host wrote.
    pub host_bytes: u64,
    /// Pages programmed for the host; a write below a page counts as one.
    pub host_pages: u64,
    /// Host writes that covered a page in part, so that the rest had to be read and written again.
    pub partial_pages: u64,
    /// Pages that collection moved.
    pub relocated_pages: u64,
    /// Pages moved by static wear levelling only.
    pub levelled_pages: u64,
    /// Pages left empty or padded when a handle moved to a new unit before its old one was full.
    pub padded_pages: u64,
    /// Pages that the host trimmed while they held data.
    pub trimmed_pages: u64,
    /// Units collected that held live pages: the drive's "media reallocated" events.
    pub gc_events: u64,
    /// Units erased.
    pub erases: u64,
    /// Number of host writes that filled a unit and continued in another.
    pub unit_switches: u64,
    /// Host writes that named a handle or group that the drive does not have.
    pub invalid_placements: u64,
    /// Number of units opened outside of their group, because the group was full of live data.
    pub group_overflows: u64,
    /// The same counters for each stream, that is, for the data written through one handle.
    pub streams: Vec<StreamStats>,
}

/// Counts of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Pages programmed for the host.
    pub host_pages: u64,
    /// Pages last written by this stream that collection or levelling moved.
    pub relocated_pages: u64,
}

impl Stats {
    /// Pages programmed, for any reason.
    #[must_use]
    pub fn media_pages(&self) -> u64 {
        self.host_pages + self.relocated_pages + self.levelled_pages + self.padded_pages
    }

    /// Counts since `earlier`, an older state of the same drive.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut streams = self.streams.clone();
        for (stream, before) in streams.iter_mut().zip(&earlier.streams) {
            stream.host_pages -= before.host_pages;
            stream.relocated_pages -= before.relocated_pages;
        }
        Self {
            host_bytes: self.host_bytes - earlier.host_bytes,
            host_pages: self.host_pages - earlier.host_pages,
            partial_pages: self.partial_pages - earlier.partial_pages,
            relocated_pages: self.relocated_pages - earlier.relocated_pages,
            levelled_pages: self.levelled_pages - earlier.levelled_pages,
            padded_pages: self.padded_pages - earlier.padded_pages,
            trimmed_pages: self.trimmed_pages - earlier.trimmed_pages,
            gc_events: self.gc_events - earlier.gc_events,
            erases: self.erases - earlier.erases,
            unit_switches: self.unit_switches - earlier.unit_switches,
            invalid_placements: self.invalid_placements - earlier.invalid_placements,
            group_overflows: self.group_overflows - earlier.group_overflows,
            streams,
        }
    }

    /// Device-level write amplification: bytes programmed / bytes the host wrote. `None` before the first write.
    #[must_use]
    pub fn dlwa(&self, page_bytes: u32) -> Option<f64> {
        let media = self.media_pages() as f64 * f64::from(page_bytes);
        (self.host_bytes > 0).then(|| media / self.host_bytes as f64)
    }
}

impl StreamStats {
    /// Pages programmed / pages the host wrote, of this stream. `None` before the first write.
    #[must_use]
    pub fn dlwa(&self) -> Option<f64> {
        let media = self.host_pages + self.relocated_pages;
        (self.host_pages > 0).then(|| media as f64 / self.host_pages as f64)
    }
}

/// An entry of the drive's event log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Value of the model's clock: pages written by the host.
    pub at_host_pages: u64,
    /// What happened.
    pub kind: EventKind,
}

/// Kinds of events; the numbers are NVMe's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// 00h: a handle moved to a new unit before the old one was full.
    UnitNotFullyWritten {
        /// The handle.
        handle: u16,
        /// The old unit.
        unit: UnitId,
        /// Pages left unwritten.
        pages: u32,
    },
    /// 03h: a write named a placement that the drive does not have.
    InvalidPlacement {
        /// The handle that the write named.
        handle: u16,
    },
    /// 80h: collection moved live pages out of a unit.
    MediaReallocated {
        /// The unit.
        unit: UnitId,
        /// Pages moved.
        pages: u32,
    },
    /// 81h: a host write filled a unit and the drive chose another.
    UnitSwitched {
        /// The handle.
        handle: u16,
        /// The new unit.
        unit: UnitId,
    },
}

/// The most recent events. Unlike [`Stats`], it is not complete.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventLog {
    events: VecDeque<Event>,
}

impl EventLog {
    /// Event records kept, 24 bytes each.
    const KEPT: usize = 4096;

    pub(crate) fn add(&mut self, at_host_pages: u64, kind: EventKind) {
        if self.events.len() == Self::KEPT {
            self.events.pop_front();
        }
        self.events.push_back(Event { at_host_pages, kind });
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }
}

/// The stream that last wrote each page. A table is needed only from the second stream on.
///
/// It holds a byte for each *granule* of pages: one page on drives up to 256 GiB at 4 KiB pages, more on larger ones,
/// so that it never takes more than 64 MiB. All pages of a granule are counted for the stream that wrote to it last.
pub(crate) struct Origins {
    seen: Seen,
    granule_shift: u32,
    logical_pages: u32,
}

enum Seen {
    Nothing,
    One(u8),
    Several(Box<[u8]>),
}

const MAX_TABLE_BYTES: u32 = 64 << 20;

impl Origins {
    pub(crate) fn new(logical_pages: u32) -> Self {
        let granule_shift = (0..32).find(|&shift| logical_pages >> shift <= MAX_TABLE_BYTES);
        Self { seen: Seen::Nothing, granule_shift: granule_shift.unwrap_or(0), logical_pages }
    }

    #[inline]
    pub(crate) fn wrote(&mut self, first: LogicalPage, count: u32, stream: u8) {
        match &mut self.seen {
            Seen::One(only) if *only == stream => (),
            Seen::Several(table) => {
                let shift = self.granule_shift;
                let last = first.0 + count - 1;
                table[(first.0 >> shift) as usize..=(last >> shift) as usize].fill(stream);
            }
            Seen::Nothing => self.seen = Seen::One(stream),
            Seen::One(only) => {
                let granules = (self.logical_pages >> self.granule_shift) as usize + 1;
                self.seen = Seen::Several(vec![*only; granules].into());
                self.wrote(first, count, stream);
            }
        }
    }

    /// The only stream so far, or the table.
    #[inline]
    pub(crate) fn table(&self) -> Result<(&[u8], u32), u8> {
        match &self.seen {
            Seen::Several(table) => Ok((table, self.granule_shift)),
            Seen::One(only) => Err(*only),
            Seen::Nothing => Err(0),
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.table().map_or(0, |(table, _)| table.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_since_plus_earlier_stats_equal_the_later_stats() {
        let stats = |n: u64| Stats {
            host_bytes: 12 * n,
            host_pages: 11 * n,
            partial_pages: 10 * n,
            relocated_pages: 9 * n,
            levelled_pages: 8 * n,
            padded_pages: 7 * n,
            trimmed_pages: 6 * n,
            gc_events: 5 * n,
            erases: 4 * n,
            unit_switches: 3 * n,
            invalid_placements: 2 * n,
            group_overflows: n,
            streams: vec![StreamStats { host_pages: 2 * n, relocated_pages: n }; 2],
        };
        assert_eq!(stats(5).since(&stats(2)), stats(3));
    }
}
