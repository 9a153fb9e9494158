//! The model drive as a [`Device`] that an engine writes to: mapping, garbage collection and wear are simulated behind it.
//!
//! Payload is stored by logical address (`content.rs`), because its physical location does not affect its content. A study that only
//! writes can discard it ([`Payload::Discarded`]).
//!
//! Without a simulation, requests complete immediately and only the counters matter. In a [`Simulation`](device::Simulation)
//! ([`SsdDevice::in_world`]) they complete when the drive's [`timing`](crate::timing) model says so: the mapping changes on
//! submission, and the bytes of a read are available on completion.

use std::ops::Range;
use std::sync::Arc;

use device::check::MAX_IO_BYTES;
use device::sim::World;
use device::tally::Tally;
use device::timer::Timer;
use device::{
    Clock, Completion, Counters, Device, Geometry, IoBuffer, Outcome, PlacementHandle, Request, RequestKind,
};
use parking_lot::Mutex;

use crate::card::Card;
use crate::content::Content;
use crate::controller::Controller;
use crate::ftl::{Ftl, Upkeep};
use crate::geometry::{Layout, Shape, ShapeError, refuse};
use crate::placement::{Isolation, Placement};
use crate::stats::Stats;
use crate::timing::Timing;

/// How written bytes are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Payload {
    /// Kept in memory, and read back.
    #[default]
    Kept,
    /// Discarded; reads return zeros. For studies that do not use the data read.
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

/// A consumer and its assigned handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The name of the consumer.
    pub consumer: String,
    /// The handle assigned, by the host's number.
    pub handle: PlacementHandle,
    /// The number of the handle on the drive: each namespace numbers its own handles from 0.
    pub drive_handle: u16,
    /// Whether it is the default handle, because no other handle was free.
    pub is_shared: bool,
}

/// One namespace of a model drive.
pub struct SsdDevice {
    drive: Arc<Shared>,
    geometry: Geometry,
    /// Its pages on the drive.
    pages: Range<u32>,
    handles: Vec<u16>,
    is_whole_drive: bool,
    content: Option<Arc<Content>>,
    assignments: Mutex<Vec<Assignment>>,
    tally: Arc<Tally>,
}

/// State shared by the namespaces of a drive.
struct Shared {
    controller: Mutex<Controller>,
    world: Option<World>,
}

impl SsdDevice {
    /// A drive with one namespace that has all pages and all handles. Requests complete immediately.
    #[must_use]
    pub fn new(layout: Layout, upkeep: Upkeep, payload: Payload) -> Self {
        let all = Namespace::whole(&layout);
        let devices = Self::namespaces(layout, upkeep, payload, &[all]);
        let device = devices.ok().and_then(|mut devices| devices.pop());
        device.expect("one namespace with all pages and handles is valid")
    }

    /// As [`new`](Self::new), in a simulation: requests complete when a drive with the flash of `card` would complete
    /// them.
    ///
    /// # Errors
    /// If the shape is invalid.
    pub fn in_world(
        world: World,
        card: &Card,
        shape: &Shape,
        upkeep: Upkeep,
        payload: Payload,
    ) -> Result<Self, ShapeError> {
        let all = Namespace::whole(&shape.clone().layout()?);
        let mut devices = Self::namespaces_in_world(world, card, shape, upkeep, payload, &[all])?;
        Ok(devices.pop().expect("a device for the namespace"))
    }

    /// A drive with several namespaces, laid out one after the other. Requests complete immediately.
    ///
    /// # Errors
    /// A namespace that does not fit, or that names a handle that the drive does not have.
    pub fn namespaces(
        layout: Layout,
        upkeep: Upkeep,
        payload: Payload,
        namespaces: &[Namespace],
    ) -> Result<Vec<Self>, ShapeError> {
        Self::build(layout, upkeep, payload, namespaces, None)
    }

    /// A drive with several namespaces in a simulation.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces), or if the shape is invalid.
    pub fn namespaces_in_world(
        world: World,
        card: &Card,
        shape: &Shape,
        upkeep: Upkeep,
        payload: Payload,
        namespaces: &[Namespace],
    ) -> Result<Vec<Self>, ShapeError> {
        let timing = Timing::new(card, shape);
        Self::build(shape.clone().layout()?, upkeep, payload, namespaces, Some((world, timing)))
    }

    fn build(
        layout: Layout,
        upkeep: Upkeep,
        payload: Payload,
        namespaces: &[Namespace],
        world: Option<(World, Timing)>,
    ) -> Result<Vec<Self>, ShapeError> {
        let ranges = check(namespaces, &layout)?;
        let (page_bytes, block_bytes) = (layout.shape().page_bytes, layout.shape().block_bytes);
        let has_placement = matches!(layout.shape().isolation, Isolation::Handles(_));
        let (world, timing) = world.unzip();
        let controller = Mutex::new(Controller::new(Ftl::new(layout, upkeep), timing));
        let drive = Arc::new(Shared { controller, world });
        let devices = namespaces.iter().zip(ranges).map(|(namespace, pages)| {
            let others = namespace.handles.len() as u16 - 1;
            let geometry = Geometry {
                capacity_bytes: namespace.bytes,
                block_bytes,
                max_io_bytes: MAX_IO_BYTES,
                indirection_bytes: page_bytes,
                placement_handles: if has_placement { others } else { 0 },
                buffered: false,
            };
            Self {
                drive: Arc::clone(&drive),
                geometry,
                pages,
                handles: namespace.handles.clone(),
                is_whole_drive: namespaces.len() == 1,
                content: (payload == Payload::Kept).then(|| Arc::new(Content::new())),
                assignments: Mutex::default(),
                tally: Arc::default(),
            }
        });
        Ok(devices.collect())
    }

    /// The whole drive's counts so far, other namespaces included.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.drive.controller.lock().ftl.stats().clone()
    }

    /// Calls `look` with the translation layer.
    pub fn inspect<T>(&self, look: impl FnOnce(&Ftl) -> T) -> T {
        look(&self.drive.controller.lock().ftl)
    }

    /// The handles assigned to consumers, in the order of assignment.
    #[must_use]
    pub fn assignments(&self) -> Vec<Assignment> {
        self.assignments.lock().clone()
    }

    /// Executes a checked request on the drive and returns its completion time: 0 without a simulation.
    fn perform(&self, request: &Request) -> u64 {
        let mut controller = self.drive.controller.lock();
        let placement = match request {
            Request::Write { placement, .. } => self.placement(*placement, &mut controller.ftl),
            _ => Placement::handle(self.handles[0]),
        };
        // The time is read under the lock, so that requests reach the drive in the order of time.
        let now_ns = self.drive.world.as_ref().map_or(0, World::monotonic_ns);
        controller.serve(now_ns, self.pages.start, request, placement)
    }

    /// Whether a read returns the bytes at its submission or those at its completion: random, because an engine must be
    /// correct with both.
    fn is_read_early(&self, request: &Request) -> bool {
        let world = self.drive.world.as_ref();
        request.kind() == RequestKind::Read && world.is_some_and(|world| world.random().is_multiple_of(2))
    }

    /// The drive's handle for a handle of the namespace. An unknown handle is counted and logged, and the namespace's
    /// default is used.
    fn placement(&self, handle: PlacementHandle, ftl: &mut Ftl) -> Placement {
        let known = self.handles.get(usize::from(handle.0)).copied();
        Placement::handle(known.unwrap_or_else(|| {
            ftl.log_invalid_placement(handle.0);
            self.handles[0]
        }))
    }
}

/// Moves the bytes of a checked request.
fn transfer(content: Option<&Content>, request: Request) -> Outcome {
    match (request, content) {
        (Request::Read { offset, mut buffer }, Some(content)) => {
            content.read(offset, &mut buffer);
            return Ok(buffer);
        }
        (Request::Read { buffer, .. }, None) => return Ok(IoBuffer::zeroed(buffer.len())),
        (Request::Write { offset, data, .. }, Some(content)) => content.write(offset, &data),
        (Request::Trim { offset, len }, Some(content)) => content.trim(offset, len),
        (Request::Write { .. } | Request::Trim { .. }, None) | (Request::Flush, _) => (),
    }
    Ok(IoBuffer::empty())
}

impl Namespace {
    /// A namespace with all pages and handles of a drive.
    fn whole(layout: &Layout) -> Self {
        let handles = (0..layout.handles().len() as u16).collect();
        Self { bytes: layout.capacity_bytes(), handles }
    }
}

fn check(namespaces: &[Namespace], layout: &Layout) -> Result<Vec<Range<u32>>, ShapeError> {
    let page_bytes = u64::from(layout.shape().page_bytes);
    let mut first = 0;
    let mut ranges = Vec::new();
    for (number, Namespace { bytes, handles }) in namespaces.iter().enumerate() {
        if *bytes == 0 || !bytes.is_multiple_of(page_bytes) {
            return refuse(
                "namespaces",
                format!("{number}: {bytes} bytes is not a non-zero multiple of the {page_bytes}-byte page"),
            );
        }
        let end = first + bytes / page_bytes;
        if end > u64::from(layout.shape().logical_pages) {
            let capacity = layout.capacity_bytes();
            return refuse("namespaces", format!("{number}: ends past the drive's {capacity} bytes"));
        }
        let count = layout.handles().len();
        if handles.is_empty() || handles.iter().any(|&handle| usize::from(handle) >= count) {
            return refuse(
                "namespaces",
                format!("{number}: needs one or more of the drive's {count} handles, not {handles:?}"),
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
        let Some(world) = &self.drive.world else {
            return completion.complete(self.execute(request));
        };
        let completion = self.tally.counting(&request, completion);
        if let Err(error) = self.geometry.check(&request) {
            return completion.complete(Err(error));
        }
        let end_ns = self.perform(&request);
        if self.is_read_early(&request) {
            let outcome = transfer(self.content.as_deref(), request);
            return world.schedule(end_ns, move || completion.complete(outcome));
        }
        let content = self.content.clone();
        world.schedule(end_ns, move || completion.complete(transfer(content.as_deref(), request)));
    }

    /// Advances the whole simulation to the completion time.
    fn execute(&self, request: Request) -> Outcome {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = self.geometry.check(&request).and_then(|()| {
            let end_ns = self.perform(&request);
            if let Some(world) = &self.drive.world {
                world.wait_until(end_ns);
            }
            transfer(self.content.as_deref(), request)
        });
        self.tally.count(kind, bytes, &outcome);
        outcome
    }

    /// Media writes are known for a whole drive only, not for one of several namespaces.
    fn counters(&self) -> Counters {
        let media_bytes = || self.drive.controller.lock().media_bytes();
        Counters { media_written_bytes: self.is_whole_drive.then(media_bytes), ..self.tally.counters() }
    }

    fn allocate_handle(&self, consumer: &str) -> PlacementHandle {
        let mut assignments = self.assignments.lock();
        let given = assignments.iter().filter(|assignment| !assignment.is_shared).count() as u16;
        let is_shared = given >= self.geometry.placement_handles;
        let handle = if is_shared { PlacementHandle::DEFAULT } else { PlacementHandle(given + 1) };
        let drive_handle = self.handles[usize::from(handle.0)];
        assignments.push(Assignment { consumer: consumer.to_owned(), handle, drive_handle, is_shared });
        handle
    }
}

impl std::fmt::Debug for SsdDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SsdDevice({} bytes)", self.geometry.capacity_bytes)
    }
}
