//! A drive in virtual time: each request of the host, and when it ends.

use crate::card::Card;
use crate::ftl::{Ftl, Upkeep};
use crate::geometry::{LogicalPage, PhysicalPage, Shape, ShapeError};
use crate::placement::Placement;
use crate::timing::Timing;

/// The mapping and the medium's time. Requests come in the order of time; they may end in another.
pub struct Drive {
    ftl: Ftl,
    timing: Timing,
    page_bytes: u64,
}

impl Drive {
    /// An empty drive at rest at nanosecond 0, with the flash of `card` under `shape`.
    ///
    /// # Errors
    /// If the shape cannot be.
    pub fn new(card: &Card, shape: &Shape, upkeep: Upkeep) -> Result<Self, ShapeError> {
        let timing = Timing::new(card, shape);
        let page_bytes = u64::from(shape.page_bytes);
        Ok(Self { ftl: Ftl::new(shape.clone().layout()?, upkeep), timing, page_bytes })
    }

    /// Writes whole pages; when that is acknowledged.
    ///
    /// # Panics
    /// If the range reaches past the drive.
    #[inline]
    pub fn write(&mut self, now_ns: u64, first: LogicalPage, count: u32, placement: Placement) -> u64 {
        self.timing.arrive(now_ns);
        self.timing.take_in(u64::from(count) * self.page_bytes);
        self.ftl.write(first, count, placement, &mut self.timing);
        self.timing.ends_ns()
    }

    /// Reads pages; when they are there. Pages that hold nothing take no time on the flash.
    ///
    /// # Panics
    /// If the range reaches past the drive.
    pub fn read(&mut self, now_ns: u64, first: LogicalPage, count: u32) -> u64 {
        let Self { ftl, timing, page_bytes } = self;
        timing.arrive(now_ns);
        let places = (first.0..first.0 + count).filter_map(|page| ftl.locate(LogicalPage(page)));
        let bytes = u64::from(count) * *page_bytes;
        timing.read_for_host(bytes, places, |timing, place| is_begun(ftl, timing, place));
        timing.ends_ns()
    }

    /// Forgets pages; when that is done.
    ///
    /// # Panics
    /// If the range reaches past the drive.
    pub fn trim(&mut self, now_ns: u64, first: LogicalPage, count: u32) -> u64 {
        self.timing.arrive(now_ns);
        self.ftl.trim(first, count);
        self.timing.ends_ns()
    }

    /// Empties the write buffer; when that is done.
    pub fn flush(&mut self, now_ns: u64) -> u64 {
        self.timing.arrive(now_ns);
        let begun = begun_by_host(&self.ftl, &self.timing);
        self.timing.flush(begun);
        self.timing.ends_ns()
    }

    /// The mapping.
    #[must_use]
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// Begins counting anew; the drive stays as it is.
    pub fn reset_stats(&mut self) {
        self.ftl.reset_stats();
    }
}

/// Whether the chunk of `place` still waits for its last page, so that its pages are in the buffer.
pub(crate) fn is_begun(ftl: &Ftl, timing: &Timing, place: PhysicalPage) -> bool {
    let chunk = timing.chunk_of(place);
    ftl.open_pages().any(|next| next > place && timing.chunk_of(next) == chunk)
}

/// The next page of each chunk that waits for its last page in a unit that the host writes. What collection moves is still
/// where it was, and no flush is about that.
pub(crate) fn begun_by_host(ftl: &Ftl, timing: &Timing) -> Vec<PhysicalPage> {
    let is_begun = |next: &PhysicalPage| {
        next.0 > 0 && timing.chunk_of(*next) == timing.chunk_of(PhysicalPage(next.0 - 1))
    };
    ftl.open_host_pages().filter(is_begun).collect()
}
