//! Distributes rows to workers: by key, in turn, or to any worker with a free queue slot.
//!
//! Each worker has a *lane*: a queue of full batches, and the batch being filled for it.

use std::sync::mpsc::{Receiver, SendError, Sender, SyncSender, TrySendError};

use xxhash_rust::xxh3::xxh3_64;

use super::{BATCH_ROWS, Batch, Order, Queued, ReplayConfig};
use crate::Part;

/// Reading has ended: no worker is left, or the file cannot be read.
pub(super) struct Ended;

/// Distributes rows to the workers.
pub(super) struct Distributor {
    lanes: Vec<Lane>,
    returned: Receiver<Batch>,
    demands: Option<Demands>,
    order: Order,
    timed: bool,
    /// Lanes whose worker is still receiving.
    open: usize,
    /// Requests of the rows so far, including those whose worker has ended.
    requests: u64,
    /// In order `Any` the lane being filled; in order `Turns` the next lane.
    turn: usize,
}

/// Channels for one thread that runs all workers: a message per requested batch, and one per queued batch.
pub(super) struct Demands {
    pub(super) demanded: Receiver<()>,
    pub(super) produced: Sender<()>,
}

/// The sending end of a worker's queue.
pub(super) enum BatchSender {
    Bounded(SyncSender<Batch>),
    Unbounded(Sender<Batch>),
}

impl BatchSender {
    /// Waits for a free slot in a bounded queue.
    fn send(&self, batch: Batch) -> Result<(), SendError<Batch>> {
        match self {
            Self::Bounded(sender) => sender.send(batch),
            Self::Unbounded(sender) => sender.send(batch),
        }
    }

    fn try_send(&self, batch: Batch) -> Result<(), TrySendError<Batch>> {
        match self {
            Self::Bounded(sender) => sender.try_send(batch),
            Self::Unbounded(sender) => {
                sender.send(batch).map_err(|SendError(batch)| TrySendError::Disconnected(batch))
            }
        }
    }
}

struct Lane {
    /// `None` after the worker has ended.
    sender: Option<BatchSender>,
    filling: Batch,
    /// Whether it received a row in this pass.
    has_row: bool,
}

impl Distributor {
    /// Creates a lane for each of `senders`. Workers return used batches through `returned`.
    pub(super) fn new(
        senders: Vec<BatchSender>,
        returned: Receiver<Batch>,
        demands: Option<Demands>,
        config: &ReplayConfig,
    ) -> Self {
        let lane = |sender| Lane { sender: Some(sender), filling: Batch::default(), has_row: false };
        let lanes: Vec<Lane> = senders.into_iter().map(lane).collect();
        let (open, order, timed) = (lanes.len(), config.order, config.timed);
        Self { lanes, returned, demands, order, timed, open, requests: 0, turn: 0 }
    }

    /// Whether another complete pass can give rows to any worker. A worker that owns none of the trace's keys would wait forever, so its
    /// lane is closed.
    pub(super) fn another_pass(&mut self) -> bool {
        let mut any = false;
        for lane in 0..self.lanes.len() {
            let has_row = std::mem::take(&mut self.lanes[lane].has_row);
            if !has_row && self.order == Order::Strict {
                self.close(lane);
            }
            any |= has_row;
        }
        any
    }

    #[inline]
    pub(super) fn distribute(&mut self, mut queued: Queued, key: &[u8]) -> Result<(), Ended> {
        queued.key_id = xxh3_64(key);
        let lane = self.lane_for(queued.key_id);
        self.queue(lane, queued, key, None)
    }

    /// The lane for the key, whose worker may have ended.
    #[inline]
    pub(super) fn lane_for(&mut self, key_id: u64) -> usize {
        match self.order {
            Order::Strict => self.lane_of(key_id),
            Order::Any => self.turn,
            Order::Turns => {
                let next = (self.turn + 1) % self.lanes.len();
                std::mem::replace(&mut self.turn, next)
            }
        }
    }

    /// Requests of the rows so far, including those whose worker has ended.
    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// Counts requests that are not queued because their worker has ended.
    pub(super) fn skip(&mut self, requests: u64) {
        self.requests = self.requests.saturating_add(requests);
    }

    /// Whether the key's only worker has ended.
    #[inline]
    pub(super) fn is_closed_for(&self, key_id: u64) -> bool {
        self.order == Order::Strict && self.lanes[self.lane_of(key_id)].sender.is_none()
    }

    /// Appends a row to a lane chosen by [`Self::lane_for`]; `part` is set for the items of a divided request. Inlined because millions of
    /// undivided rows pass here.
    #[inline(always)]
    pub(super) fn queue(
        &mut self,
        lane: usize,
        mut queued: Queued,
        key: &[u8],
        part: Option<Part>,
    ) -> Result<(), Ended> {
        if self.open == 0 {
            return Err(Ended);
        }
        self.skip(u64::from(queued.repeat));
        queued.requests = self.requests;
        let Lane { sender, filling: batch, has_row } = &mut self.lanes[lane];
        if sender.is_none() {
            // The worker that owns the key or has the turn has made all its requests.
            return Ok(());
        }
        *has_row = true;
        queued.key_start = batch.keys.len() as u32;
        batch.keys.extend_from_slice(key);
        queued.key_end = batch.keys.len() as u32;
        batch.rows.push(queued);
        let mut may_end = true;
        if let Some(part) = part {
            batch.parts.push(part);
            // In order `Any` a batch contains all items of a request.
            may_end = part.is_last || self.order != Order::Any;
        }
        if batch.rows.len() >= BATCH_ROWS && may_end {
            self.hand_over(lane);
        }
        Ok(())
    }

    /// Caches select shards and buckets by bits of the same hash. Scrambling it first keeps each worker from having its own shards, which
    /// would hide contention.
    #[inline]
    fn lane_of(&self, key_id: u64) -> usize {
        let mixed = (key_id ^ (key_id >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mixed) * self.lanes.len() as u128) >> 64) as usize
    }

    fn hand_over(&mut self, lane: usize) {
        let empty = match self.returned.try_recv() {
            Ok(mut batch) => {
                batch.clear();
                batch
            }
            Err(_) => Batch::default(),
        };
        let full = std::mem::replace(&mut self.lanes[lane].filling, empty);
        match self.order {
            Order::Strict | Order::Turns => drop(self.send(lane, full)),
            Order::Any => self.send_anywhere(full),
        }
        self.await_demand();
    }

    /// Reports a queued batch and waits until another is requested.
    fn await_demand(&mut self) {
        let Some(Demands { demanded, produced }) = &self.demands else { return };
        if produced.send(()).is_err() || demanded.recv().is_err() {
            // No worker requests batches any more.
            (0..self.lanes.len()).for_each(|lane| self.close(lane));
        }
    }

    /// Waits for a free slot in the lane. Returns the batch if its worker has ended.
    fn send(&mut self, lane: usize, batch: Batch) -> Option<Batch> {
        let alone = !self.timed || self.order == Order::Any;
        let batch = if alone { batch } else { self.send_timed(lane, batch)? };
        let sender = self.lanes[lane].sender.as_ref()?;
        let refused = sender.send(batch).err()?;
        self.close(lane);
        Some(refused.0)
    }

    /// The queue of a lane whose rows are not due yet can stay full for long. Other lanes meanwhile receive their partial batches, which
    /// can be due earlier. Returns the batch if there was no free slot.
    fn send_timed(&mut self, lane: usize, batch: Batch) -> Option<Batch> {
        let refused = match self.lanes[lane].sender.as_ref()?.try_send(batch) {
            Ok(()) => return None,
            Err(TrySendError::Disconnected(_)) => {
                self.close(lane);
                return None;
            }
            Err(TrySendError::Full(refused)) => refused,
        };
        for other in &mut self.lanes {
            let Some(sender) = other.sender.as_ref().filter(|_| !other.filling.rows.is_empty()) else {
                continue;
            };
            if let Err(TrySendError::Full(kept)) = sender.try_send(std::mem::take(&mut other.filling)) {
                other.filling = kept;
            }
        }
        Some(refused)
    }

    fn send_anywhere(&mut self, mut batch: Batch) {
        let lanes = self.lanes.len();
        for step in 0..lanes {
            let lane = (self.turn + step) % lanes;
            let Some(sender) = &self.lanes[lane].sender else { continue };
            match sender.try_send(batch) {
                Ok(()) => return self.advance_to(lane + 1),
                Err(TrySendError::Full(refused)) => batch = refused,
                Err(TrySendError::Disconnected(refused)) => {
                    batch = refused;
                    self.close(lane);
                }
            }
        }
        // All queues are full: waits for the next lane in turn.
        while self.open > 0 {
            self.advance_to(self.turn);
            let Some(refused) = self.send(self.turn, batch) else { return self.advance_to(self.turn + 1) };
            batch = refused;
        }
    }

    /// Advances to the next lane, from `lane` on, whose worker is still receiving.
    fn advance_to(&mut self, lane: usize) {
        let lanes = self.lanes.len();
        let filled = self.turn;
        let listening =
            (lane..lane + lanes).map(|lane| lane % lanes).find(|lane| self.lanes[*lane].sender.is_some());
        self.turn = listening.unwrap_or(filled);
        if self.turn != filled {
            // The empty batch just fetched moves to that lane.
            self.lanes[self.turn].filling = std::mem::take(&mut self.lanes[filled].filling);
        }
    }

    fn close(&mut self, lane: usize) {
        if self.lanes[lane].sender.take().is_some() {
            self.open -= 1;
        }
    }

    pub(super) fn flush(&mut self) {
        for lane in 0..self.lanes.len() {
            if !self.lanes[lane].filling.rows.is_empty() {
                self.hand_over(lane);
            }
        }
    }
}
