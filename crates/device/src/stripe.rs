//! Several devices as one, striped (RAID 0).

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::join::Join;
use crate::tally::Tally;
use crate::{
    Completion, Counters, Device, Engine, ErrorKind, Geometry, IoBuffer, IoError, IoSlice, Outcome,
    PlacementHandle, Request,
};

/// Striped devices: stripe 0 is on the first, stripe 1 on the second, and so on cyclically.
///
/// A request inside one stripe is passed unchanged. One that crosses stripes is split; if stripes are as large as a cache's regions, that
/// never happens.
pub struct StripeDevice {
    devices: Vec<Arc<dyn Device>>,
    unit_bytes: u64,
    geometry: Geometry,
    tally: Arc<Tally>,
    /// The device handles of each of the stripe's handles, which are numbered from 1.
    handles: RwLock<Vec<Vec<PlacementHandle>>>,
}

impl StripeDevice {
    /// A stripe over `devices` in units of `unit_bytes`. Each device contributes as many whole units as the smallest one has.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] without devices, with a unit that is not a multiple of every device's block, or with a device smaller than a
    /// unit.
    pub fn new(devices: Vec<Arc<dyn Device>>, unit_bytes: u64) -> Result<Self, IoError> {
        let geometries: Vec<Geometry> = devices.iter().map(|device| device.geometry()).collect();
        let geometry = joint_geometry(&geometries, unit_bytes)?;
        Ok(Self { devices, unit_bytes, geometry, tally: Arc::default(), handles: RwLock::default() })
    }

    /// Position of byte `offset`: the device, and the offset on it.
    fn place(&self, offset: u64) -> (usize, u64) {
        let (stripe, within) = (offset / self.unit_bytes, offset % self.unit_bytes);
        let count = self.devices.len() as u64;
        ((stripe % count) as usize, stripe / count * self.unit_bytes + within)
    }

    /// Number of bytes of `device` before `offset`. Consecutive stripes of one device are adjacent on it, so a range of the stripe is one
    /// range on each device, with these ends.
    fn share(&self, device: usize, offset: u64) -> u64 {
        let (at, within) = self.place(offset);
        let round_start = within - offset % self.unit_bytes;
        match device.cmp(&at) {
            Ordering::Less => round_start + self.unit_bytes,
            Ordering::Equal => within,
            Ordering::Greater => round_start,
        }
    }

    /// The requests to the devices.
    fn plan(&self, request: Request) -> Plan {
        if let Err(error) = self.geometry.check(&request) {
            return Plan::Ended(Err(error));
        }
        match request {
            Request::Flush => Plan::Parts(
                IoBuffer::empty(),
                (0..self.devices.len()).map(|device| Part::new(device, Request::Flush)).collect(),
            ),
            Request::Trim { offset, len } => self.plan_trim(offset, len),
            Request::Read { offset, buffer } => self.plan_read(offset, buffer),
            Request::Write { offset, data, placement } => self.plan_write(offset, &data, placement),
        }
    }

    fn plan_trim(&self, offset: u64, len: u64) -> Plan {
        let part = |device| {
            let (start, end) = (self.share(device, offset), self.share(device, offset + len));
            (start < end).then(|| Part::new(device, Request::Trim { offset: start, len: end - start }))
        };
        Plan::of(IoBuffer::empty(), (0..self.devices.len()).filter_map(part).collect())
    }

    fn plan_read(&self, offset: u64, buffer: IoBuffer) -> Plan {
        let pieces = self.pieces(offset, buffer.len());
        if let [piece] = &pieces[..] {
            let read = Request::Read { offset: piece.offset, buffer };
            return Plan::Whole(Part::new(piece.device, read));
        }
        let read = |piece: Piece| Part {
            device: piece.device,
            request: Request::read(piece.offset, piece.range.len()),
            range: piece.range,
        };
        Plan::of(buffer, pieces.into_iter().map(read).collect())
    }

    fn plan_write(&self, offset: u64, data: &IoSlice, placement: PlacementHandle) -> Plan {
        let write = |piece: Piece| {
            let placement = self.handle_on(piece.device, placement);
            let write = Request::Write { offset: piece.offset, data: data.part(piece.range), placement };
            Part::new(piece.device, write)
        };
        Plan::of(IoBuffer::empty(), self.pieces(offset, data.len()).into_iter().map(write).collect())
    }

    fn pieces(&self, offset: u64, len: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < len {
            let (device, offset) = self.place(offset + done as u64);
            let left_in_stripe = self.unit_bytes - offset % self.unit_bytes;
            let end = done + left_in_stripe.min((len - done) as u64) as usize;
            pieces.push(Piece { device, offset, range: done..end });
            done = end;
        }
        pieces
    }

    fn handle_on(&self, device: usize, ours: PlacementHandle) -> PlacementHandle {
        let Some(index) = usize::from(ours.0).checked_sub(1) else { return PlacementHandle::DEFAULT };
        self.handles.read().get(index).map_or(PlacementHandle::DEFAULT, |theirs| theirs[device])
    }

    fn perform(&self, part: Part) -> Outcome {
        self.devices[part.device].execute(part.request)
    }

    fn start(&self, part: Part, completion: Completion) {
        self.devices[part.device].submit(part.request, completion);
    }
}

/// The part of a transfer in one stripe.
struct Piece {
    device: usize,
    offset: u64,
    range: Range<usize>,
}

/// A request to one of the devices.
struct Part {
    device: usize,
    request: Request,
    /// Position of this part's data in the buffer of the whole request.
    range: Range<usize>,
}

impl Part {
    fn new(device: usize, request: Request) -> Self {
        Self { device, request, range: 0..0 }
    }
}

enum Plan {
    /// No request is necessary.
    Ended(Outcome),
    /// One device serves the request, in the caller's buffer.
    Whole(Part),
    /// Several requests, and the buffer that combines a read; it is empty for others.
    Parts(IoBuffer, Vec<Part>),
}

impl Plan {
    fn of(buffer: IoBuffer, mut parts: Vec<Part>) -> Self {
        match parts.len() {
            0 => Self::Ended(Ok(buffer)),
            1 if buffer.is_empty() => Self::Whole(parts.remove(0)),
            _ => Self::Parts(buffer, parts),
        }
    }
}

impl Device for StripeDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, request: Request, completion: Completion) {
        let completion = self.tally.counting(&request, completion);
        match self.plan(request) {
            Plan::Ended(outcome) => completion.complete(outcome),
            Plan::Whole(part) => self.start(part, completion),
            Plan::Parts(buffer, parts) => {
                let join = Join::new(parts.len(), buffer, completion);
                for part in parts {
                    let completion = join.part(part.range.clone());
                    self.start(part, completion);
                }
            }
        }
    }

    fn engine(&self) -> Option<Engine> {
        self.devices.iter().filter_map(|device| device.engine()).max()
    }

    /// A request that crosses stripes is executed piece by piece on the calling thread.
    fn execute(&self, request: Request) -> Outcome {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = match self.plan(request) {
            Plan::Ended(outcome) => outcome,
            Plan::Whole(part) => self.perform(part),
            Plan::Parts(buffer, parts) => parts.into_iter().try_fold(buffer, |mut buffer, part| {
                let range = part.range.clone();
                buffer[range].copy_from_slice(&self.perform(part)?);
                Ok(buffer)
            }),
        };
        self.tally.count(kind, bytes, &outcome);
        outcome
    }

    fn hole_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        let mut at = range.start;
        let mut found: Option<Range<u64>> = None;
        while at < range.end {
            let (device, offset) = self.place(at);
            let len = (self.unit_bytes - offset % self.unit_bytes).min(range.end - at);
            let hole = self.devices[device].hole_in(offset..offset + len);
            let hole = hole.map(|hole| at + (hole.start - offset)..at + (hole.end - offset));
            match (&mut found, hole) {
                (None, None) => {}
                (None, Some(hole)) => found = Some(hole),
                (Some(found), Some(hole)) if hole.start == found.end => found.end = hole.end,
                (Some(_), _) => break,
            }
            at += len;
        }
        found
    }

    fn trims_to_zeros(&self) -> bool {
        self.devices.iter().all(|device| device.trims_to_zeros())
    }

    /// Requests to the stripe; media bytes of all devices, unknown if one does not report them.
    fn counters(&self) -> Counters {
        let media = self.devices.iter().map(|device| device.counters().media_written_bytes);
        Counters { media_written_bytes: media.sum(), ..self.tally.counters() }
    }

    /// Allocates a handle on every device; the default one if some device has none left.
    fn allocate_handle(&self, consumer: &str) -> PlacementHandle {
        let mut handles = self.handles.write();
        let theirs: Vec<_> = self.devices.iter().map(|device| device.allocate_handle(consumer)).collect();
        if theirs.contains(&PlacementHandle::DEFAULT) {
            return PlacementHandle::DEFAULT;
        }
        handles.push(theirs);
        PlacementHandle(u16::try_from(handles.len()).expect("no device has more handles than a u16 counts"))
    }
}

fn joint_geometry(each: &[Geometry], unit_bytes: u64) -> Result<Geometry, IoError> {
    let invalid = |why: String| IoError::new(ErrorKind::Invalid, format!("cannot stripe: {why}"));
    let joint = each.iter().copied().reduce(|a, b| Geometry {
        capacity_bytes: a.capacity_bytes.min(b.capacity_bytes),
        block_bytes: a.block_bytes.max(b.block_bytes),
        max_io_bytes: a.max_io_bytes.min(b.max_io_bytes),
        indirection_bytes: a.indirection_bytes.max(b.indirection_bytes),
        placement_handles: a.placement_handles.min(b.placement_handles),
        buffered: a.buffered || b.buffered,
    });
    let joint = joint.ok_or_else(|| invalid("no devices".into()))?;
    let block = joint.block_bytes;
    if unit_bytes == 0 || !unit_bytes.is_multiple_of(u64::from(block)) {
        return Err(invalid(format!(
            "a unit of {unit_bytes} bytes is not a non-zero multiple of the {block}-byte block"
        )));
    }
    let smallest = joint.capacity_bytes;
    let share = smallest - smallest % unit_bytes;
    if share == 0 {
        return Err(invalid(format!("a device of {smallest} bytes is smaller than a unit of {unit_bytes}")));
    }
    let max_io_bytes = joint.max_io_bytes - joint.max_io_bytes % block;
    Ok(Geometry { capacity_bytes: share * each.len() as u64, max_io_bytes, ..joint })
}

impl std::fmt::Debug for StripeDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StripeDevice({} devices in units of {} bytes)", self.devices.len(), self.unit_bytes)
    }
}

#[cfg(test)]
mod tests;
