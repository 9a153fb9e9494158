//! LRU at many sizes in one pass: see [`LruCurve`].

use policy::simulate::{Counts, LruCurve, SimulatedAdmission, SizeOnHit};

use super::parallel::{Task, Work};
use super::tenants::Tally;
use super::warmup::{Warmed, Warmup};
use super::{Batch, Named, Plan, Row};

/// Sizes from which one pass for all takes less CPU time than a simulation of each, even if it costs as much as several.
const FEWEST_SIZES: usize = 8;

/// The simulation of a policy at one size, or at all.
pub(super) enum Job {
    One(Box<Task>),
    All(Box<CurveTask>),
}

impl Job {
    /// Empty caches of all sizes for a policy.
    pub(super) fn of(named: &Named, sizes_bytes: &[u64], plan: &Plan) -> Vec<Self> {
        if sizes_bytes.len() >= FEWEST_SIZES && is_lru(named, plan) {
            return vec![Self::All(Box::new(CurveTask::new(named, sizes_bytes, plan.warmup)))];
        }
        let task = |&size_bytes| Self::One(Box::new(Task::new(named, size_bytes, plan)));
        sizes_bytes.iter().map(task).collect()
    }

    pub(super) fn warmup_requests(&self) -> u64 {
        match self {
            Self::One(task) => task.warmup_requests(),
            Self::All(task) => task.warmup_requests(),
        }
    }

    pub(super) fn into_rows_and_tallies(self) -> Vec<(Row, Option<Tally>)> {
        match self {
            Self::One(task) => vec![task.into_row_and_tally()],
            Self::All(task) => task.into_rows().into_iter().map(|row| (row, None)).collect(),
        }
    }
}

/// Whether the policy is exact LRU under the rules of the plan.
fn is_lru(named: &Named, plan: &Plan) -> bool {
    let settings = &plan.settings;
    named.is_lru(settings.refresh_seconds)
        && settings.size_on_hit == SizeOnHit::Ignore
        && settings.admission == SimulatedAdmission::Always
        && !settings.any_weight
        && plan.tenants.is_none()
        && plan.series.is_none()
}

impl Work for Job {
    fn cost(&self) -> u32 {
        match self {
            Self::One(task) => task.cost(),
            Self::All(task) => task.named.cost() * 2,
        }
    }

    fn run(&mut self, batch: &Batch) {
        match self {
            Self::One(task) => task.run(batch),
            Self::All(task) => task.run(batch),
        }
    }
}

/// LRU at all sizes.
pub(super) struct CurveTask {
    named: Named,
    sizes_bytes: Vec<u64>,
    caches: Caches,
    warmed: Warmed<Vec<Counts>>,
}

enum Caches {
    Curve(LruCurve),
    /// From the first batch with TTLs: an object expires in a cache by the time at which this cache stored it.
    Separate(Vec<Task>),
}

impl CurveTask {
    fn new(named: &Named, sizes_bytes: &[u64], warmup: Warmup) -> Self {
        Self {
            named: named.clone(),
            sizes_bytes: sizes_bytes.to_vec(),
            caches: Caches::Curve(LruCurve::new(sizes_bytes)),
            warmed: Warmed::from(warmup, vec![Counts::default(); sizes_bytes.len()]),
        }
    }

    fn run(&mut self, batch: &Batch) {
        if !batch.ttls.is_empty() {
            self.separate();
        }
        match &mut self.caches {
            Caches::Curve(curve) => self.warmed.run_parts(batch, |accesses, _, is_marked| {
                curve.run(accesses);
                is_marked.then(|| curve.counts())
            }),
            Caches::Separate(tasks) => tasks.iter_mut().for_each(|task| task.run(batch)),
        }
    }

    /// Continues as a simulation for each size.
    fn separate(&mut self) {
        if let Caches::Curve(curve) = &mut self.caches {
            let curve = std::mem::replace(curve, LruCurve::new(&[]));
            let simulations = curve.into_simulations().into_iter().zip(&self.sizes_bytes).enumerate();
            let task = |(place, (simulation, &size_bytes))| {
                Task::continued(Box::new(simulation), &self.named, size_bytes, self.warmed.of(place))
            };
            self.caches = Caches::Separate(simulations.map(task).collect());
        }
    }

    fn warmup_requests(&self) -> u64 {
        match &self.caches {
            Caches::Curve(curve) => self.warmed.warm(&curve.counts()).first().map_or(0, |it| it.requests),
            Caches::Separate(tasks) => tasks.first().map_or(0, Task::warmup_requests),
        }
    }

    fn into_rows(self) -> Vec<Row> {
        let Self { named, sizes_bytes, caches, warmed } = self;
        match caches {
            Caches::Curve(curve) => {
                let totals = curve.counts().into_iter().zip(sizes_bytes).enumerate();
                let row = |(place, (total, size_bytes))| {
                    Row::of(&named, size_bytes, warmed.of(place).counted(&total))
                };
                totals.map(row).collect()
            }
            Caches::Separate(tasks) => tasks.into_iter().map(Task::into_row).collect(),
        }
    }
}
