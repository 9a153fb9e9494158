//! Who gets a row: by its key, by turns, or whoever has room.
//!
//! Each worker has a *lane*: a queue of full batches, and the batch that is being filled for it.

use std::sync::mpsc::{Receiver, SendError, Sender, SyncSender, TrySendError};

use xxhash_rust::xxh3::xxh3_64;

use super::{BATCH_ROWS, Batch, Order, Queued, ReplayConfig};
use crate::Part;

/// Nobody left to read for, or the file cannot be read.
pub(super) struct Ended;

/// Deals rows to the workers.
pub(super) struct Dealer {
    lanes: Vec<Lane>,
    returned: Receiver<Batch>,
    demands: Option<Demands>,
    order: Order,
    timed: bool,
    /// Lanes whose worker still listens.
    open: usize,
    /// Requests of the rows so far, including those whose worker has ended.
    requests: u64,
    /// In any order: the lane being filled; in turns: the next.
    turn: usize,
}

/// Where one thread asks for all workers: a word for each batch that is wanted, and one for each that was queued.
pub(super) struct Demands {
    pub(super) demanded: Receiver<()>,
    pub(super) produced: Sender<()>,
}

/// The parser's end of a queue.
pub(super) enum Outlet {
    Bounded(SyncSender<Batch>),
    Unbounded(Sender<Batch>),
}

impl Outlet {
    /// Waits for room, if there is a bound.
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
    /// `None` once the worker has gone.
    sender: Option<Outlet>,
    filling: Batch,
    /// Whether it was given a row in this pass.
    was_dealt: bool,
}

impl Dealer {
    /// A lane for each outlet. Batches that workers are done with come back by `returned`.
    pub(super) fn new(
        outlets: Vec<Outlet>,
        returned: Receiver<Batch>,
        demands: Option<Demands>,
        config: &ReplayConfig,
    ) -> Self {
        let lane = |outlet| Lane { sender: Some(outlet), filling: Batch::default(), was_dealt: false };
        let lanes: Vec<Lane> = outlets.into_iter().map(lane).collect();
        let (open, order, timed) = (lanes.len(), config.order, config.timed);
        Self { lanes, returned, demands, order, timed, open, requests: 0, turn: 0 }
    }

    /// Whether another pass would give anybody anything, after one of which nothing was left out. A worker to whom none of its keys
    /// belongs would wait for ever, and ends.
    pub(super) fn another_pass(&mut self) -> bool {
        let mut any = false;
        for lane in 0..self.lanes.len() {
            let was_dealt = std::mem::take(&mut self.lanes[lane].was_dealt);
            if !was_dealt && self.order == Order::Strict {
                self.close(lane);
            }
            any |= was_dealt;
        }
        any
    }

    #[inline]
    pub(super) fn deal(&mut self, mut queued: Queued, key: &[u8]) -> Result<(), Ended> {
        queued.key_id = xxh3_64(key);
        let lane = self.lane_for(queued.key_id);
        self.queue(lane, queued, key, None)
    }

    /// The lane for what is called so, which may have gone.
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

    /// Whether the only worker who is given what is called so has gone.
    #[inline]
    pub(super) fn is_done_with(&self, key_id: u64) -> bool {
        self.order == Order::Strict && self.lanes[self.lane_of(key_id)].sender.is_none()
    }

    /// Puts a row into a lane that [`Self::lane_for`] chose, of items of one request for all of them. Inlined for the sake of
    /// rows that are no parts, which are dealt by the million.
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
        let Lane { sender, filling: batch, was_dealt } = &mut self.lanes[lane];
        if sender.is_none() {
            // The worker that these keys belong to, or whose turn it is, has made all its requests.
            return Ok(());
        }
        *was_dealt = true;
        queued.key_start = batch.keys.len() as u32;
        batch.keys.extend_from_slice(key);
        queued.key_end = batch.keys.len() as u32;
        batch.rows.push(queued);
        let mut may_end = true;
        if let Some(part) = part {
            batch.parts.push(part);
            // Who takes a batch of any order takes the rest of a request with it.
            may_end = part.is_last || self.order != Order::Any;
        }
        if batch.rows.len() >= BATCH_ROWS && may_end {
            self.hand_over(lane);
        }
        Ok(())
    }

    /// Caches pick shards and buckets by the plain bits of this same hash. Scrambling it first keeps workers
    /// from each having shards of their own, which would hide contention.
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

    /// Says that a batch is queued, and goes on when another is wanted.
    fn await_demand(&mut self) {
        let Some(Demands { demanded, produced }) = &self.demands else { return };
        if produced.send(()).is_err() || demanded.recv().is_err() {
            // Nobody asks any more.
            (0..self.lanes.len()).for_each(|lane| self.close(lane));
        }
    }

    /// Waits for room in the lane. Gives the batch back if its worker has gone.
    fn send(&mut self, lane: usize, batch: Batch) -> Option<Batch> {
        let alone = !self.timed || self.order == Order::Any;
        let batch = if alone { batch } else { self.send_timed(lane, batch)? };
        let sender = self.lanes[lane].sender.as_ref()?;
        let refused = sender.send(batch).err()?;
        self.close(lane);
        Some(refused.0)
    }

    /// A lane whose rows are not due yet is full for as long as that. The others get what was read for them, which may be due
    /// before. Gives the batch back if there was no room for it.
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
                Ok(()) => return self.turn_to(lane + 1),
                Err(TrySendError::Full(refused)) => batch = refused,
                Err(TrySendError::Disconnected(refused)) => {
                    batch = refused;
                    self.close(lane);
                }
            }
        }
        // All are full: wait for the one whose turn it is.
        while self.open > 0 {
            self.turn_to(self.turn);
            let Some(refused) = self.send(self.turn, batch) else { return self.turn_to(self.turn + 1) };
            batch = refused;
        }
    }

    /// The next lane from `lane` on whose worker still listens.
    fn turn_to(&mut self, lane: usize) {
        let lanes = self.lanes.len();
        let filled = self.turn;
        let listening =
            (lane..lane + lanes).map(|lane| lane % lanes).find(|lane| self.lanes[*lane].sender.is_some());
        self.turn = listening.unwrap_or(filled);
        if self.turn != filled {
            // The empty batch that was just fetched moves along.
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
