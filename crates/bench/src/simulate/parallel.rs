//! Runs many simulations over one stream of batches, on several threads.
//!
//! The caller's thread reads. Each worker owns some simulations and receives every batch by reference. Workers do not wait for
//! each other: a slow worker can fall behind by the length of its queue.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use policy::simulate::{Counts, Simulator};

use super::lifetimes::Lifetimes;
use super::series::Series;
use super::tenants::Tally;
use super::warmup::{Warmed, Warmup};
use super::{Batch, Batches, Named, Plan, Row, SimulateError};
use crate::run::stop::Stop;

/// Batches that can wait for a worker.
const QUEUE: usize = 2;

/// Work over all batches.
pub(crate) trait Work: Send {
    /// Relative cost of a request.
    fn cost(&self) -> u32;

    /// Processes the requests of a batch.
    fn run(&mut self, batch: &Batch);
}

/// A simulation and its warm-up and tally.
pub(super) struct Task {
    named: Named,
    size_bytes: u64,
    simulator: Box<dyn Simulator>,
    warmed: Warmed,
    lifetimes: Lifetimes,
    /// Counts by tenant, if tenants are distinguished.
    tally: Option<Tally>,
    /// Counts over time, if requested.
    series: Option<Series>,
}

impl Task {
    pub(super) fn new(named: &Named, size_bytes: u64, plan: &Plan) -> Self {
        let tally = match plan.warmup {
            Warmup::Accesses(accesses) if plan.tenants.is_some() => Some(Tally::new(accesses)),
            _ => None,
        };
        let series = plan.series.map(Series::new);
        Self {
            tally,
            series,
            ..Self::with(named.simulator(size_bytes, plan), named, size_bytes, plan.warmup)
        }
    }

    /// Like [`Task::new`], with a given simulator.
    pub(super) fn with(
        simulator: Box<dyn Simulator>,
        named: &Named,
        size_bytes: u64,
        warmup: Warmup,
    ) -> Self {
        Self::continued(simulator, named, size_bytes, Warmed::new(warmup))
    }

    /// Continues a simulation whose warm-up has begun.
    pub(super) fn continued(
        simulator: Box<dyn Simulator>,
        named: &Named,
        size_bytes: u64,
        warmed: Warmed,
    ) -> Self {
        Self {
            named: named.clone(),
            size_bytes,
            simulator,
            warmed,
            lifetimes: Lifetimes::default(),
            tally: None,
            series: None,
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
        let series = self.series.as_ref().map_or_else(Vec::new, |series| series.points(&self.total()));
        Row { series, ..Row::of(&self.named, self.size_bytes, counts) }
    }

    fn total(&self) -> Counts {
        self.simulator.counts()
    }
}

impl Work for Task {
    fn cost(&self) -> u32 {
        self.named.cost()
    }

    fn run(&mut self, batch: &Batch) {
        let mut expiring;
        let simulator: &mut dyn Simulator = if self.lifetimes.have_no_ttl(batch) {
            self.simulator.as_mut()
        } else {
            expiring = self.lifetimes.of(self.simulator.as_mut(), batch);
            &mut expiring
        };
        match (&mut self.tally, &mut self.series) {
            (Some(tally), _) => tally.run(simulator, &mut self.warmed, batch),
            (None, Some(series)) => series.run(simulator, &mut self.warmed, batch),
            (None, None) => self.warmed.run(simulator, batch),
        }
    }
}

/// Runs all tasks over all batches and returns them in their order.
pub(crate) fn run<W: Work>(
    source: &mut dyn Batches,
    tasks: Vec<W>,
    threads: usize,
    stop: &Stop,
    mut progress: impl FnMut(u64),
) -> Result<Vec<W>, SimulateError> {
    let shares = shares(tasks, threads);
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
        let mut tasks: Vec<(usize, W)> = Vec::new();
        for worker in workers {
            tasks.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        read?;
        tasks.sort_by_key(|(number, _)| *number);
        Ok(tasks.into_iter().map(|(_, task)| task).collect())
    })
}

/// Divides the tasks among threads: the most expensive first, each to the thread with the lowest total cost.
fn shares<W: Work>(tasks: Vec<W>, threads: usize) -> Vec<Vec<(usize, W)>> {
    let mut shares: Vec<(u32, Vec<(usize, W)>)> = Vec::new();
    shares.resize_with(threads.clamp(1, tasks.len().max(1)), Default::default);
    let mut tasks: Vec<(usize, W)> = tasks.into_iter().enumerate().collect();
    tasks.sort_by_key(|(_, task)| std::cmp::Reverse(task.cost()));
    for (number, task) in tasks {
        let (cost, share) = shares.iter_mut().min_by_key(|(cost, _)| *cost).expect("there is a thread");
        *cost += task.cost();
        share.push((number, task));
    }
    shares.into_iter().map(|(_, share)| share).collect()
}

fn work<W: Work>(mut tasks: Vec<(usize, W)>, batches: Receiver<Arc<Batch>>) -> Vec<(usize, W)> {
    for batch in batches {
        tasks.iter_mut().for_each(|(_, task)| task.run(&batch));
    }
    tasks
}

/// Reads batches and sends each to all workers. A batch that all workers have finished is reused.
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
        let filled = Arc::get_mut(&mut batch).expect("the batch has no other reference");
        if !source.next(filled)? {
            break;
        }
        done += batch.accesses.len() as u64;
        for queue in queues {
            if queue.send(Arc::clone(&batch)).is_err() {
                // A worker panicked; its panic is propagated by the join.
                return Ok(());
            }
        }
        used.push(batch);
        progress(done);
    }
    Ok(())
}
