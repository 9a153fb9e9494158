//! The model drive as a [`Device`]: what an engine writes to, with the mapping, the collection and the wear behind it.
//!
//! Payload is a memory device beside the mapping, by logical address: where a page lies on the medium makes no
//! difference to what is in it. A study that only writes need not keep any ([`Payload::Discarded`]).

use std::ops::Range;
use std::sync::Arc;

use device::tally::Tally;
use device::{
    Completion, Counters, Device, Geometry, IoBuffer, MemoryDevice, Outcome, PlacementHandle, Request,
};
use parking_lot::Mutex;

use crate::ftl::{Ftl, Upkeep};
use crate::geometry::{Layout, LogicalPage, ShapeError, refuse};
use crate::medium::{Medium, Untimed};
use crate::placement::{Isolation, Placement};
use crate::stats::Stats;

/// What becomes of the bytes that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Payload {
    /// Kept in memory, and read back.
    #[default]
    Kept,
    /// Forgotten; reads give zeros. For studies that never look at what they read.
    Discarded,
}

/// A part of a drive that the host sees as a device of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Bytes; a multiple of the drive's page.
    pub bytes: u64,
    /// The handles of the drive that it may use, its default first. Namespaces may share handles.
    pub handles: Vec<u16>,
}

/// A consumer and the handle it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The name it asked by.
    pub consumer: String,
    /// What it got, as the host names it.
    pub handle: PlacementHandle,
    /// Whether it shares the default handle because there was no other left.
    pub is_shared: bool,
}

/// One namespace of a model drive. Requests take effect and end at once; only counting is slow here.
pub struct SsdDevice {
    drive: Arc<Drive>,
    geometry: Geometry,
    /// Its pages on the drive.
    pages: Range<u32>,
    handles: Vec<u16>,
    is_whole_drive: bool,
    content: Option<MemoryDevice>,
    assignments: Mutex<Vec<Assignment>>,
    tally: Tally,
}

struct Drive {
    ftl: Mutex<Ftl>,
    page_bytes: u64,
}

impl SsdDevice {
    /// A drive with one namespace that has all pages and all handles.
    #[must_use]
    pub fn new(layout: Layout, upkeep: Upkeep, payload: Payload) -> Self {
        let handles = (0..layout.handles().len() as u16).collect();
        let all = Namespace { bytes: layout.capacity_bytes(), handles };
        let devices = Self::namespaces(layout, upkeep, payload, &[all]);
        let device = devices.ok().and_then(|mut devices| devices.pop());
        device.expect("one namespace of the drive's own size and handles is sound")
    }

    /// A drive with several namespaces, one after the other.
    ///
    /// # Errors
    /// A namespace that does not fit, or that names a handle that the drive does not have.
    pub fn namespaces(
        layout: Layout,
        upkeep: Upkeep,
        payload: Payload,
        namespaces: &[Namespace],
    ) -> Result<Vec<Self>, ShapeError> {
        let page_bytes = u64::from(layout.shape().page_bytes);
        let ranges = check(namespaces, &layout, page_bytes)?;
        let block_bytes = layout.shape().block_bytes;
        let placement = matches!(layout.shape().isolation, Isolation::Handles(_));
        let drive = Arc::new(Drive { ftl: Mutex::new(Ftl::new(layout, upkeep)), page_bytes });
        let devices = namespaces.iter().zip(ranges).map(|(namespace, pages)| {
            let content = MemoryDevice::with_block_bytes(namespace.bytes, block_bytes);
            let others = namespace.handles.len() as u16 - 1;
            let geometry = Geometry {
                indirection_bytes: page_bytes as u32,
                placement_handles: if placement { others } else { 0 },
                ..content.geometry()
            };
            Self {
                drive: Arc::clone(&drive),
                geometry,
                pages,
                handles: namespace.handles.clone(),
                is_whole_drive: namespaces.len() == 1,
                content: (payload == Payload::Kept).then_some(content),
                assignments: Mutex::default(),
                tally: Tally::default(),
            }
        });
        Ok(devices.collect())
    }

    /// The whole drive's counts so far, other namespaces included.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.drive.ftl.lock().stats().clone()
    }

    /// Looks into the translation layer.
    pub fn inspect<T>(&self, look: impl FnOnce(&Ftl) -> T) -> T {
        look(&self.drive.ftl.lock())
    }

    /// Which consumer was given which handle, in the order they asked.
    #[must_use]
    pub fn assignments(&self) -> Vec<Assignment> {
        self.assignments.lock().clone()
    }

    fn perform(&self, request: Request) -> Outcome {
        self.geometry.check(&request)?;
        self.account(&request, &mut Untimed);
        self.transfer(request)
    }

    /// Does to the mapping what `request` does.
    fn account<M: Medium>(&self, request: &Request, medium: &mut M) {
        match request {
            Request::Read { .. } | Request::Flush => (),
            Request::Write { offset, data, placement } => {
                let placement = self.placement(*placement);
                let mut ftl = self.drive.ftl.lock();
                let (head, whole, tail) = self.divide(*offset, data.len() as u64);
                for (page, bytes) in head.into_iter().chain(tail) {
                    ftl.write_part(page, bytes, placement, medium);
                }
                ftl.write(LogicalPage(whole.start), whole.end - whole.start, placement, medium);
            }
            Request::Trim { offset, len } => {
                // A page that is trimmed in part still holds the rest.
                let (_, whole, _) = self.divide(*offset, *len);
                self.drive.ftl.lock().trim(LogicalPage(whole.start), whole.end - whole.start);
            }
        }
    }

    /// Moves the bytes of a checked request.
    fn transfer(&self, request: Request) -> Outcome {
        match &self.content {
            Some(content) => content.execute(request),
            None => Ok(match request {
                Request::Read { buffer, .. } => Some(IoBuffer::zeroed(buffer.len())),
                _ => None,
            }),
        }
    }

    fn placement(&self, handle: PlacementHandle) -> Placement {
        // A number that no drive has is refused, counted and logged by the translation layer.
        Placement::handle(self.handles.get(usize::from(handle.0)).copied().unwrap_or(u16::MAX))
    }

    /// `len` bytes at `offset` as a page written in part, whole pages, and a page written in part.
    fn divide(&self, offset: u64, len: u64) -> (Option<Part>, Range<u32>, Option<Part>) {
        let page_bytes = self.drive.page_bytes;
        let (end, first) = (offset + len, self.pages.start);
        let (from, until) = (offset.div_ceil(page_bytes), end / page_bytes);
        let page = |number: u64| LogicalPage(first + number as u32);
        if from > until {
            // Both ends in one page.
            return (Some((page(until), len as u32)), 0..0, None);
        }
        let head = (from * page_bytes - offset) as u32;
        let tail = (end - until * page_bytes) as u32;
        let head = (head > 0).then(|| (page(from - 1), head));
        let tail = (tail > 0).then(|| (page(until), tail));
        (head, page(from).0..page(until).0, tail)
    }
}

/// A page and how many of its bytes are written.
type Part = (LogicalPage, u32);

fn check(namespaces: &[Namespace], layout: &Layout, page_bytes: u64) -> Result<Vec<Range<u32>>, ShapeError> {
    let mut first = 0;
    let mut ranges = Vec::new();
    for (number, Namespace { bytes, handles }) in namespaces.iter().enumerate() {
        if *bytes == 0 || !bytes.is_multiple_of(page_bytes) {
            return refuse("namespaces", format!("{number}: {bytes} bytes are not in pages of {page_bytes}"));
        }
        let end = first + bytes / page_bytes;
        if end > u64::from(layout.shape().logical_pages) {
            let capacity = layout.capacity_bytes();
            return refuse("namespaces", format!("{number}: reaches past the drive's {capacity} bytes"));
        }
        let count = layout.handles().len();
        if handles.is_empty() || handles.iter().any(|&handle| usize::from(handle) >= count) {
            return refuse(
                "namespaces",
                format!("{number}: its handles are some of the drive's {count}, not {handles:?}"),
            );
        }
        ranges.push(first as u32..end as u32);
        first = end;
    }
    Ok(ranges)
}

impl Device for SsdDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, request: Request, completion: Completion) {
        completion.complete(self.execute(request));
    }

    fn execute(&self, request: Request) -> Outcome {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = self.perform(request);
        self.tally.count(kind, bytes, &outcome);
        outcome
    }

    /// What the medium wrote is known of the drive; of one namespace among several it is not.
    fn counters(&self) -> Counters {
        let media_bytes = || self.drive.ftl.lock().stats().media_pages() * self.drive.page_bytes;
        Counters { media_written_bytes: self.is_whole_drive.then(media_bytes), ..self.tally.counters() }
    }

    fn allocate_handle(&self, consumer: &str) -> PlacementHandle {
        let mut assignments = self.assignments.lock();
        let given = assignments.iter().filter(|assignment| !assignment.is_shared).count() as u16;
        let is_shared = given >= self.geometry.placement_handles;
        let handle = if is_shared { PlacementHandle::DEFAULT } else { PlacementHandle(given + 1) };
        assignments.push(Assignment { consumer: consumer.to_owned(), handle, is_shared });
        handle
    }
}

impl std::fmt::Debug for SsdDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SsdDevice({} bytes)", self.geometry.capacity_bytes)
    }
}
