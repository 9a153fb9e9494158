//! Executes host requests: the mapping changes on submission, and the medium returns the completion time.

use std::ops::Range;

use device::Request;

use crate::drive::{begun_by_host, is_begun};
use crate::ftl::Ftl;
use crate::geometry::LogicalPage;
use crate::medium::{Medium, Untimed};
use crate::placement::Placement;
use crate::timing::Timing;

/// The mapping, and the medium's timing if it is simulated.
pub(crate) struct Controller {
    pub(crate) ftl: Ftl,
    timing: Option<Timing>,
    page_bytes: u64,
}

impl Controller {
    pub(crate) fn new(ftl: Ftl, timing: Option<Timing>) -> Self {
        let page_bytes = u64::from(ftl.layout().shape().page_bytes);
        Self { ftl, timing, page_bytes }
    }

    /// Bytes written to the medium.
    pub(crate) fn media_bytes(&self) -> u64 {
        self.ftl.stats().media_pages() * self.page_bytes
    }

    /// Executes a checked request that arrives at `now_ns` and whose offset 0 is at page `first`, and returns its completion time: 0
    /// without timing. Requests must arrive in the order of time.
    pub(crate) fn serve(&mut self, now_ns: u64, first: u32, request: &Request, placement: Placement) -> u64 {
        let Self { ftl, timing, page_bytes } = self;
        let pages = Pages { page_bytes: *page_bytes, first };
        let Some(timing) = timing else {
            change(ftl, pages, request, placement, &mut Untimed);
            return 0;
        };
        timing.arrive(now_ns);
        match request {
            Request::Read { offset, buffer } => {
                let bytes = buffer.len() as u64;
                let places = pages.touched(*offset, bytes).filter_map(|page| ftl.locate(LogicalPage(page)));
                timing.read_for_host(bytes, places, |timing, place| is_begun(ftl, timing, place));
            }
            Request::Flush => timing.flush(begun_by_host(ftl, timing)),
            Request::Write { data, .. } => {
                timing.receive(data.len() as u64);
                change(ftl, pages, request, placement, timing);
            }
            Request::Trim { .. } => change(ftl, pages, request, placement, timing),
        }
        timing.ends_ns()
    }
}

/// Applies `request` to the mapping.
fn change<M: Medium>(ftl: &mut Ftl, pages: Pages, request: &Request, placement: Placement, medium: &mut M) {
    match request {
        Request::Read { .. } | Request::Flush => (),
        Request::Write { offset, data, .. } => {
            let (head, whole, tail) = pages.divide(*offset, data.len() as u64);
            for (page, bytes) in head.into_iter().chain(tail) {
                ftl.write_part(page, bytes, placement, medium);
            }
            ftl.write(LogicalPage(whole.start), whole.end - whole.start, placement, medium);
        }
        Request::Trim { offset, len } => {
            // A page that is trimmed in part keeps its data.
            let (_, whole, _) = pages.divide(*offset, *len);
            ftl.trim(LogicalPage(whole.start), whole.end - whole.start);
        }
    }
}

/// A page and the number of its bytes that are written.
type Part = (LogicalPage, u32);

/// Converts byte ranges of a namespace to pages; `first` is the page of its offset 0.
#[derive(Clone, Copy)]
pub(crate) struct Pages {
    pub(crate) page_bytes: u64,
    pub(crate) first: u32,
}

impl Pages {
    /// All pages that a range covers, completely or in part.
    pub(crate) fn touched(self, offset: u64, len: u64) -> Range<u32> {
        let Self { page_bytes, first } = self;
        let (from, until) = (offset / page_bytes, (offset + len).div_ceil(page_bytes));
        if len == 0 { first..first } else { first + from as u32..first + until as u32 }
    }

    /// A range as a page written in part, whole pages, and a page written in part.
    pub(crate) fn divide(self, offset: u64, len: u64) -> (Option<Part>, Range<u32>, Option<Part>) {
        let Self { page_bytes, first } = self;
        let end = offset + len;
        let (from, until) = (offset.div_ceil(page_bytes), end / page_bytes);
        let page = |number: u64| LogicalPage(first + number as u32);
        if from > until {
            // The range is inside one page.
            return (Some((page(until), len as u32)), 0..0, None);
        }
        let head = (from * page_bytes - offset) as u32;
        let tail = (end - until * page_bytes) as u32;
        let head = (head > 0).then(|| (page(from - 1), head));
        let tail = (tail > 0).then(|| (page(until), tail));
        (head, page(from).0..page(until).0, tail)
    }
}
