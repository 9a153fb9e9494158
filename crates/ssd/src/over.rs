//! A model drive over the bytes of another device: the writes, erases and relocations that such a drive would have made for the real
//! traffic, with its latencies. Where the underlying device is slower, its own time counts.
//!
//! The drive has the capacity of the underlying device: the number of reclaim units is that of its card, with smaller units, unless a
//! unit would have too few pages. Existing content is assumed to have been written once, sequentially; holes are unmapped. Counters and
//! wear begin at zero when the device is opened. There is no placement.

use std::ops::Range;
use std::sync::Arc;

use device::timer::Timer;
use device::{Completion, Counters, Device, Geometry, IoError, Outcome, PlacementHandle, Request};
use parking_lot::Mutex;

use crate::card::{Card, MIN_SCALED_PAGES};
use crate::controller::Controller;
use crate::ftl::{Ftl, Upkeep};
use crate::geometry::{LogicalPage, Shape, ShapeError, refuse};
use crate::medium::Untimed;
use crate::placement::{Isolation, Placement};
use crate::stats::Stats;
use crate::timing::Timing;

/// See the [module](self).
pub struct DriveOver {
    inner: Arc<dyn Device>,
    geometry: Geometry,
    controller: Mutex<Controller>,
    timer: Arc<dyn Timer>,
}

impl DriveOver {
    /// A drive like `card`'s with the bytes of `inner`.
    ///
    /// # Errors
    /// If `inner` is too small to be a drive of that kind.
    pub fn new(inner: Arc<dyn Device>, card: &Card, timer: Arc<dyn Timer>) -> Result<Self, ShapeError> {
        let shape = shape_over(inner.geometry(), card)?;
        let page_bytes = u64::from(shape.page_bytes);
        let timing = Timing::new(card, &shape);
        let layout = shape.layout()?;
        let capacity_bytes = layout.capacity_bytes();
        let mut ftl = Ftl::new(layout, Upkeep::default());
        fill(&mut ftl, &*inner, capacity_bytes, page_bytes);
        ftl.reset_stats();
        let geometry = Geometry {
            capacity_bytes,
            indirection_bytes: page_bytes as u32,
            placement_handles: 0,
            ..inner.geometry()
        };
        let controller = Mutex::new(Controller::new(ftl, Some(timing)));
        Ok(Self { inner, geometry, controller, timer })
    }

    /// Counters of the drive since it was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.controller.lock().ftl.stats().clone()
    }

    /// Calls `look` with the translation layer.
    pub fn inspect<T>(&self, look: impl FnOnce(&Ftl) -> T) -> T {
        look(&self.controller.lock().ftl)
    }

    /// Executes a valid request on the modelled drive and returns its completion time.
    fn perform(&self, request: &Request) -> u64 {
        if self.geometry.check(request).is_err() {
            return 0;
        }
        let mut controller = self.controller.lock();
        // The time is read under the lock, so that requests reach the drive in the order of time.
        controller.serve(self.timer.monotonic_ns(), 0, request, Placement::handle(0))
    }

    /// Refuses a request beyond the drive's pages, as the device does for one beyond its end.
    fn is_past_the_end(&self, request: &Request) -> Option<IoError> {
        self.geometry.check(request).err().filter(|_| self.inner.geometry().check(request).is_ok())
    }
}

/// The shape of a drive like `card`'s for these bytes.
fn shape_over(geometry: Geometry, card: &Card) -> Result<Shape, ShapeError> {
    let shape = card.shape(false);
    if geometry.block_bytes > shape.page_bytes {
        let (block, page) = (geometry.block_bytes, shape.page_bytes);
        return refuse(
            "page_bytes",
            format!("{page} is less than the {block}-byte block of the device under it"),
        );
    }
    let pages = geometry.capacity_bytes / u64::from(shape.page_bytes);
    let data_pages = pages as f64 * (1.0 + shape.op_ratio());
    let least = MIN_SCALED_PAGES as f64;
    let unit_pages = (data_pages / f64::from(shape.units)).round().max(least);
    let units = (data_pages / unit_pages).ceil();
    let (Ok(logical_pages), true) = (u32::try_from(pages), pages > 0) else {
        let capacity = geometry.capacity_bytes;
        return refuse("logical_pages", format!("a device of {capacity} bytes cannot be a model drive's"));
    };
    Ok(Shape {
        block_bytes: geometry.block_bytes,
        unit_pages: unit_pages as u32,
        units: (units as u32).next_multiple_of(u32::from(shape.groups)),
        reserve_units: 0,
        logical_pages,
        isolation: Isolation::CONVENTIONAL,
        ..shape
    })
}

/// Maps the pages that contain data on `device`.
fn fill(ftl: &mut Ftl, device: &dyn Device, until: u64, page_bytes: u64) {
    let mut write = |bytes: Range<u64>| {
        let pages = (bytes.start / page_bytes) as u32..bytes.end.div_ceil(page_bytes) as u32;
        ftl.write(LogicalPage(pages.start), pages.end - pages.start, Placement::handle(0), &mut Untimed);
    };
    let mut at = 0;
    while let Some(hole) = device.hole_in(at..until) {
        if hole.start > at {
            write(at..hole.start);
        }
        at = hole.end;
    }
    if at < until {
        write(at..until);
    }
}

impl Device for DriveOver {
    device::forward_device!(inner: hole_in, trims_to_zeros);

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, request: Request, completion: Completion) {
        if let Some(error) = self.is_past_the_end(&request) {
            return completion.complete(Err(error));
        }
        let end_ns = self.perform(&request);
        let timer = Arc::clone(&self.timer);
        let at_its_end = move |outcome| match end_ns <= timer.monotonic_ns() {
            true => completion.complete(outcome),
            false => timer.at(end_ns, Box::new(move || completion.complete(outcome))),
        };
        self.inner.submit(request, Completion::new(at_its_end));
    }

    fn execute(&self, request: Request) -> Outcome {
        if let Some(error) = self.is_past_the_end(&request) {
            return Err(error);
        }
        let end_ns = self.perform(&request);
        let outcome = self.inner.execute(request);
        self.timer.wait_until(end_ns);
        outcome
    }

    /// The underlying device's own counters, and the media writes of the modelled drive.
    fn counters(&self) -> Counters {
        let media_bytes = self.controller.lock().media_bytes();
        Counters { media_written_bytes: Some(media_bytes), ..self.inner.counters() }
    }

    fn allocate_handle(&self, _: &str) -> PlacementHandle {
        PlacementHandle::DEFAULT
    }
}

impl std::fmt::Debug for DriveOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DriveOver({} bytes)", self.geometry.capacity_bytes)
    }
}

#[cfg(test)]
mod tests {
    use device::wrap::{Mechanics, SpindleDevice};
    use device::{Clock, IoBuffer, MemoryDevice, Simulation};

    use super::*;

    const BYTES: u64 = 32 << 20;

    fn write(device: &dyn Device, offset: u64, len: usize) {
        let data = IoBuffer::zeroed(len);
        device.execute(Request::write(offset, data)).unwrap();
    }

    #[test]
    fn opened_drive_has_device_capacity_and_maps_existing_content() {
        for card in Card::built_in() {
            let memory = Arc::new(MemoryDevice::with_block_bytes(BYTES, 512));
            for offset in (0..BYTES).step_by(1 << 20) {
                write(&*memory, offset, 1 << 20);
            }
            memory.execute(Request::Trim { offset: 0, len: 8 << 20 }).unwrap();
            let drive = DriveOver::new(memory, &card, Arc::new(Simulation::new(0).world()))
                .unwrap_or_else(|error| panic!("{}: {error:?}", card.name));
            assert_eq!(drive.geometry().capacity_bytes, BYTES, "{}", card.name);
            let page_bytes = u64::from(drive.geometry().indirection_bytes);
            let pages = BYTES / page_bytes;
            let mapped = (0..pages as u32)
                .filter(|&page| drive.inspect(|ftl| ftl.locate(LogicalPage(page)).is_some()));
            assert_eq!(mapped.count() as u64, pages * 3 / 4, "{}", card.name);
            assert_eq!(drive.counters().media_written_bytes, Some(0), "counts begin now");
            // Random overwrites of a full drive move pages; sequential overwrites do not.
            for number in 0..3 * pages {
                write(&drive, number * 7919 % pages * page_bytes, page_bytes as usize);
            }
            assert!(drive.stats().relocated_pages > 0, "{}: {:?}", card.name, drive.stats());
        }
    }

    /// Catches a regression: requests complete when the underlying device completes, without the time of the modelled
    /// flash.
    #[test]
    fn request_takes_the_longer_time_of_model_and_device() {
        let card = Card::load("test").unwrap();
        let read_ns = |of_a_disk: bool| {
            let simulation = Simulation::new(0);
            let timer: Arc<dyn Timer> = Arc::new(simulation.world());
            let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(BYTES));
            write(&*memory, 0, BYTES as usize / 2);
            write(&*memory, BYTES / 2, BYTES as usize / 2);
            let inner = match of_a_disk {
                true => Arc::new(SpindleDevice::new(memory, Arc::clone(&timer), Mechanics::default())),
                false => memory,
            };
            let drive: &dyn Device = &DriveOver::new(inner, &card, timer).unwrap();
            let read = drive.read(8 << 20, 4096);
            simulation.run_until_idle();
            let by_submit_ns = simulation.clock().monotonic_ns();
            assert!(read.wait().is_ok());
            drop(drive.execute(Request::read(16 << 20, 4096)));
            [by_submit_ns, simulation.clock().monotonic_ns() - by_submit_ns]
        };
        let flash_ns = card.controller.command_ns + card.nand.read_ns;
        for took_ns in read_ns(false) {
            assert!((flash_ns..2 * flash_ns).contains(&took_ns), "{took_ns} ns, of flash {flash_ns}");
        }
        let seek_ns = Mechanics::default().seek_ns;
        assert!(read_ns(true).into_iter().all(|took_ns| (seek_ns..seek_ns + flash_ns).contains(&took_ns)));
    }

    #[test]
    fn too_small_device_is_refused() {
        let tiny = Arc::new(MemoryDevice::new(4096));
        let timer = Arc::new(Simulation::new(0).world());
        assert!(DriveOver::new(tiny, &Card::load("test").unwrap(), timer).is_err());
    }
}
