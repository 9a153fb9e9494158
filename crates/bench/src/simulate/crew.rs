//! Many simulations over one stream of batches, on several threads.
//!
//! The caller's thread reads; each worker owns some simulations and gets every batch, by reference. Nobody waits for another
//! worker: a slow one falls behind by as many batches as its queue holds.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use policy::simulate::{Counts, Simulator};

use super::lifetimes::Lifetimes;
use super::tenants::Tally;
use super::warmup::{Warmed, Warmup};
use super::{Batch, Batches, Named, Plan, Row, SimulateError};
use crate::run::stop::Stop;

/// Batches that may wait for a worker.
const QUEUE: usize = 2;

/// Something that goes over the batches.
pub(crate) trait Work: Send {
    /// What a request costs it, roughly and compared with others.
    fn cost(&self) -> u32;

    /// Makes the batch's requests.
    fn run(&mut self, batch: &Batch);
}

/// A simulation in the crew.
pub(super) struct Seat {
    policy: String,
    asked: String,
    size_bytes: u64,
    is_flash: bool,
    /// What a request costs, roughly: see [`Named::cost`].
    cost: u32,
    simulator: Box<dyn Simulator>,
    warmed: Warmed,
    lifetimes: Lifetimes,
    /// Where tenants are told apart.
    tally: Option<Tally>,
}

impl Seat {
    pub(super) fn new(named: &Named, size_bytes: u64, plan: &Plan) -> Self {
        let tally = match plan.warmup {
            Warmup::Accesses(accesses) if plan.tenants.is_some() => Some(Tally::new(accesses)),
            _ => None,
        };
        Self { tally, ..Self::with(named.simulator(size_bytes, plan), named, size_bytes, plan.warmup) }
    }

    /// The same with a simulator that somebody made otherwise.
    pub(super) fn with(
        simulator: Box<dyn Simulator>,
        named: &Named,
        size_bytes: u64,
        warmup: Warmup,
    ) -> Self {
        Self {
            policy: named.to_string(),
            asked: named.asked().to_owned(),
            size_bytes,
            is_flash: named.is_flash(),
            cost: named.cost(),
            simulator,
            warmed: Warmed::new(warmup),
            lifetimes: Lifetimes::default(),
            tally: None,
        }
    }

    pub(super) fn warmup_requests(&self) -> u64 {
        self.warmed.warmup_requests(&self.total())
    }

    pub(super) fn into_row_and_tally(mut self) -> (Row, Option<Tally>) {
        let tally = self.tally.take();
        (self.into_row(), tally)
    }

    pub(super) fn into_row(self) -> Row {
        let counts = self.warmed.counted(&self.total());
        Row {
            policy: self.policy,
            asked: self.asked,
            size_bytes: self.size_bytes,
            counts,
            is_flash: self.is_flash,
            interval: None,
            doubt: None,
        }
    }

    fn total(&self) -> Counts {
        self.simulator.counts()
    }
}

impl Work for Seat {
    fn cost(&self) -> u32 {
        self.cost
    }

    fn run(&mut self, batch: &Batch) {
        let mut mortal;
        let simulator: &mut dyn Simulator = if self.lifetimes.are_endless(batch) {
            self.simulator.as_mut()
        } else {
            mortal = self.lifetimes.of(self.simulator.as_mut(), batch);
            &mut mortal
        };
        match &mut self.tally {
            None => self.warmed.run(simulator, batch),
            Some(tally) => tally.run(simulator, &mut self.warmed, batch),
        }
    }
}

/// Runs all seats over all batches. They come back in their order.
pub(crate) fn run<W: Work>(
    source: &mut dyn Batches,
    seats: Vec<W>,
    threads: usize,
    stop: &Stop,
    mut progress: impl FnMut(u64),
) -> Result<Vec<W>, SimulateError> {
    let shares = shares(seats, threads);
    std::thread::scope(|scope| {
        let (mut queues, mut workers) = (Vec::new(), Vec::new());
        for share in shares {
            let (queue, batches) = sync_channel(QUEUE);
            let worker = std::thread::Builder::new().name("simulate".to_owned());
            workers.push(worker.spawn_scoped(scope, || work(share, batches)).map_err(SimulateError::Thread)?);
            queues.push(queue);
        }
        let read = feed(source, &queues, stop, &mut progress);
        drop(queues);
        let mut seats: Vec<(usize, W)> = Vec::new();
        for worker in workers {
            seats.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        read?;
        seats.sort_by_key(|(number, _)| *number);
        Ok(seats.into_iter().map(|(_, seat)| seat).collect())
    })
}

/// Divides the seats among threads, the most costly first, each to whoever has least to do so far.
fn shares<W: Work>(seats: Vec<W>, threads: usize) -> Vec<Vec<(usize, W)>> {
    let mut shares: Vec<(u32, Vec<(usize, W)>)> = Vec::new();
    shares.resize_with(threads.clamp(1, seats.len().max(1)), Default::default);
    let mut seats: Vec<(usize, W)> = seats.into_iter().enumerate().collect();
    seats.sort_by_key(|(_, seat)| std::cmp::Reverse(seat.cost()));
    for (number, seat) in seats {
        let (cost, share) = shares.iter_mut().min_by_key(|(cost, _)| *cost).expect("there is a thread");
        *cost += seat.cost();
        share.push((number, seat));
    }
    shares.into_iter().map(|(_, share)| share).collect()
}

fn work<W: Work>(mut seats: Vec<(usize, W)>, batches: Receiver<Arc<Batch>>) -> Vec<(usize, W)> {
    for batch in batches {
        seats.iter_mut().for_each(|(_, seat)| seat.run(&batch));
    }
    seats
}

/// Reads batches and hands each to all workers. Batches that all are done with are filled again.
fn feed(
    source: &mut dyn Batches,
    queues: &[SyncSender<Arc<Batch>>],
    stop: &Stop,
    progress: &mut impl FnMut(u64),
) -> Result<(), SimulateError> {
    let mut used: Vec<Arc<Batch>> = Vec::new();
    let mut done = 0;
    while !stop.is_set() {
        let free = used.iter().position(|batch| Arc::strong_count(batch) == 1);
        let mut batch = free.map_or_else(Arc::default, |place| used.swap_remove(place));
        let filled = Arc::get_mut(&mut batch).expect("nobody else holds it");
        if !source.next(filled)? {
            break;
        }
        done += batch.accesses.len() as u64;
        for queue in queues {
            if queue.send(Arc::clone(&batch)).is_err() {
                // A worker panicked; joining it tells.
                return Ok(());
            }
        }
        used.push(batch);
        progress(done);
    }
    Ok(())
}
