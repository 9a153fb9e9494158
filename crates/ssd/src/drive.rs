//! A drive in virtual time: takes the host's requests and returns when each completes.

use crate::card::Card;
use crate::controller::Pages;
use crate::ftl::{Ftl, Upkeep};
use crate::geometry::{LogicalPage, PhysicalPage, Shape, ShapeError};
use crate::placement::Placement;
use crate::timing::Timing;

/// The mapping and the medium's timing. Requests must be submitted in the order of time; they may complete out of
/// order.
pub struct Drive {
    ftl: Ftl,
    timing: Timing,
    page_bytes: u64,
}

impl Drive {
    /// An empty drive at rest at nanosecond 0, with the flash of `card` under `shape`.
    ///
    /// # Errors
    /// If the shape is invalid.
    pub fn new(card: &Card, shape: &Shape, upkeep: Upkeep) -> Result<Self, ShapeError> {
        let timing = Timing::new(card, shape);
        let page_bytes = u64::from(shape.page_bytes);
        Ok(Self { ftl: Ftl::new(shape.clone().layout()?, upkeep), timing, page_bytes })
    }

    /// Writes whole pages and returns when that is acknowledged.
    ///
    /// # Panics
    /// If the range reaches past the drive.
    #[inline]
    pub fn write(&mut self, now_ns: u64, first: LogicalPage, count: u32, placement: Placement) -> u64 {
        self.timing.arrive(now_ns);
        self.timing.receive(u64::from(count) * self.page_bytes);
        self.ftl.write(first, count, placement, &mut self.timing);
        self.timing.ends_ns()
    }

    /// Reads pages and returns when the host has them. Pages without data take no time on the flash.
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

    /// Trims pages and returns when that is acknowledged.
    ///
    /// # Panics
    /// If the range reaches past the drive.
    pub fn trim(&mut self, now_ns: u64, first: LogicalPage, count: u32) -> u64 {
        self.timing.arrive(now_ns);
        self.ftl.trim(first, count);
        self.timing.ends_ns()
    }

    /// Writes the buffer to the flash and returns when that is complete.
    pub fn flush(&mut self, now_ns: u64) -> u64 {
        self.timing.arrive(now_ns);
        let begun = begun_by_host(&self.ftl, &self.timing);
        self.timing.flush(begun);
        self.timing.ends_ns()
    }

    /// Writes a range of bytes and returns when that is acknowledged. A page that the range covers in part is read and written again.
    ///
    /// # Panics
    /// If the range reaches past the drive.
    pub fn write_bytes(&mut self, now_ns: u64, first_byte: u64, bytes: u64, placement: Placement) -> u64 {
        let (head, whole, tail) = self.pages().divide(first_byte, bytes);
        self.timing.arrive(now_ns);
        self.timing.receive(bytes);
        for (page, bytes) in head.into_iter().chain(tail) {
            self.ftl.write_part(page, bytes, placement, &mut self.timing);
        }
        self.ftl.write(LogicalPage(whole.start), whole.end - whole.start, placement, &mut self.timing);
        self.timing.ends_ns()
    }

    /// Reads a range of bytes and returns when the host has them.
    ///
    /// # Panics
    /// If the range reaches past the drive.
    pub fn read_bytes(&mut self, now_ns: u64, first_byte: u64, bytes: u64) -> u64 {
        let touched = self.pages().touched(first_byte, bytes);
        let Self { ftl, timing, .. } = self;
        timing.arrive(now_ns);
        let places = touched.filter_map(|page| ftl.locate(LogicalPage(page)));
        timing.read_for_host(bytes, places, |timing, place| is_begun(ftl, timing, place));
        timing.ends_ns()
    }

    /// Trims the pages that a range of bytes covers completely, and returns when that is acknowledged.
    ///
    /// # Panics
    /// If the range reaches past the drive.
    pub fn trim_bytes(&mut self, now_ns: u64, first_byte: u64, bytes: u64) -> u64 {
        let (_, whole, _) = self.pages().divide(first_byte, bytes);
        self.trim(now_ns, LogicalPage(whole.start), whole.end - whole.start)
    }

    fn pages(&self) -> Pages {
        Pages { page_bytes: self.page_bytes, first: 0 }
    }

    /// The mapping, for changes that take no time.
    pub(crate) fn ftl_mut(&mut self) -> &mut Ftl {
        &mut self.ftl
    }

    /// The mapping.
    #[must_use]
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// Sets the counters to zero; the drive's data stays.
    pub fn reset_stats(&mut self) {
        self.ftl.reset_stats();
    }
}

/// Whether the chunk of `place` is incomplete, so that its pages are still in the buffer.
pub(crate) fn is_begun(ftl: &Ftl, timing: &Timing, place: PhysicalPage) -> bool {
    let chunk = timing.chunk_of(place);
    ftl.open_pages().any(|next| next > place && timing.chunk_of(next) == chunk)
}

/// The next page of each incomplete chunk in the units that the host writes. A flush does not program chunks of
/// collection: the old copy of moved data is still valid.
pub(crate) fn begun_by_host(ftl: &Ftl, timing: &Timing) -> Vec<PhysicalPage> {
    let is_begun = |next: &PhysicalPage| {
        next.0 > 0 && timing.chunk_of(*next) == timing.chunk_of(PhysicalPage(next.0 - 1))
    };
    ftl.open_host_pages().filter(is_begun).collect()
}
