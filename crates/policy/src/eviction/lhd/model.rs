//! Hit densities by class and age, from counts of hits and evictions.

/// Ages are below this, in units of `2^coarsening` requests.
pub(super) const MAX_AGE: usize = 20_000;
const CLASSES: usize = 16;
/// Requests after which the densities are computed again.
const PERIOD: u64 = 1 << 20;
/// A factor of the initial densities, in which the authors' simulator numbers the classes of all applications; libCacheSim has only the second.
const FIRST_CLASS: usize = 16;
/// Periods after which the unit of age is adapted.
const ADAPTING_PERIODS: [u32; 2] = [5, 25];
const FIRST_COARSENING: u32 = 10;
const COARSENING_ERROR: f32 = 0.01;
const DECAY: f32 = 0.9;

/// Counts by age, in single precision since they decay, and the densities from them.
struct Class {
    hits: Vec<f32>,
    evictions: Vec<f32>,
    densities: Vec<f32>,
}

/// The model and its clock.
pub(super) struct Model {
    classes: Vec<Class>,
    /// Requests so far.
    now: u64,
    /// Requests until the next period.
    left: u64,
    periods: u32,
    coarsening: u32,
    /// Decaying sum of the numbers of entries at the ends of periods, and of their weights.
    objects: f32,
    objects_mass: f32,
}

impl Model {
    /// Densities as of a policy like GDSF, until there are counts.
    pub(super) fn new() -> Self {
        let class = |number: usize| Class {
            hits: vec![0.0; MAX_AGE],
            evictions: vec![0.0; MAX_AGE],
            densities: (1..=MAX_AGE)
                .map(|age| ((FIRST_CLASS + number + 1) as f64 / age as f64) as f32)
                .collect(),
        };
        Self {
            classes: (0..CLASSES).map(class).collect(),
            now: 0,
            left: PERIOD,
            periods: 0,
            coarsening: FIRST_COARSENING,
            objects: 0.0,
            objects_mass: 0.0,
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Number of completed periods.
    pub(super) fn periods(&self) -> u32 {
        self.periods
    }

    /// The age of an entry whose last request was at `timestamp`.
    pub(super) fn age(&self, timestamp: u64) -> usize {
        (((self.now - timestamp) >> self.coarsening) as usize).min(MAX_AGE - 1)
    }

    /// Density of an entry whose last two ages at hits have this sum.
    pub(super) fn hit_density(&self, hit_ages: u64, age: usize) -> f32 {
        self.classes[class(hit_ages)].densities[age]
    }

    pub(super) fn count_hit(&mut self, hit_ages: u64, age: usize) {
        self.classes[class(hit_ages)].hits[age] += 1.0;
    }

    pub(super) fn count_eviction(&mut self, hit_ages: u64, age: usize) {
        self.classes[class(hit_ages)].evictions[age] += 1.0;
    }

    /// Counts a request. `objects` is the number of entries.
    pub(super) fn tick(&mut self, objects: usize) {
        self.now += 1;
        self.left -= 1;
        if self.left == 0 {
            self.reconfigure(objects);
            self.left = PERIOD;
            self.periods += 1;
        }
    }

    fn reconfigure(&mut self, objects: usize) {
        for class in &mut self.classes {
            class.hits.iter_mut().chain(&mut class.evictions).for_each(|count| *count *= DECAY);
        }
        self.adapt_coarsening(objects);
        self.classes.iter_mut().for_each(Class::model);
    }

    /// Adapts the unit of age to the number of entries, so that few ages exceed the maximum.
    fn adapt_coarsening(&mut self, objects: usize) {
        self.objects = self.objects * DECAY + objects as f32;
        self.objects_mass = self.objects_mass * DECAY + 1.0;
        if !ADAPTING_PERIODS.contains(&self.periods) {
            return;
        }
        let mean = self.objects / self.objects_mass;
        let optimal = (f64::from(mean) / f64::from(COARSENING_ERROR * MAX_AGE as f32)) as f32;
        let mut coarsening = 1;
        while ((1_u64 << coarsening) as f32) < optimal {
            coarsening += 1;
        }
        let before = std::mem::replace(&mut self.coarsening, coarsening);
        self.objects *= 8.0;
        self.objects_mass *= 8.0;
        for class in &mut self.classes {
            for counts in [&mut class.hits, &mut class.evictions] {
                match coarsening.checked_sub(before) {
                    Some(0) => {}
                    Some(delta) => compress(counts, delta),
                    None => stretch(counts, before - coarsening),
                }
            }
        }
    }
}

impl Class {
    /// Hits at this age and later, divided by the time that entries of this age have left until their hit or eviction.
    fn model(&mut self) {
        let mut hits = self.hits[MAX_AGE - 1];
        let mut events = hits + self.evictions[MAX_AGE - 1];
        let mut lifetime = events;
        for age in (0..MAX_AGE - 1).rev() {
            hits += self.hits[age];
            events += self.hits[age] + self.evictions[age];
            lifetime += events;
            self.densities[age] = if f64::from(events) > 1e-5 { hits / lifetime } else { 0.0 };
        }
    }
}

/// The class of an entry, from the sum of the ages at its last two hits: the binary logarithm of its distance from the maximum.
fn class(hit_ages: u64) -> usize {
    if hit_ages == 0 {
        return CLASSES - 1;
    }
    let (mut age, mut class) = (hit_ages, 0);
    while age < MAX_AGE as u64 && class < CLASSES - 1 {
        age <<= 1;
        class += 1;
    }
    class
}

/// Counts in units of age that are `2^delta` times as long.
fn compress(counts: &mut [f32], delta: u32) {
    let last = MAX_AGE - 1;
    let ages = MAX_AGE >> delta;
    for age in 0..ages {
        let first = age << delta;
        counts[age] =
            counts[first + 1..first + (1 << delta)].iter().fold(counts[first], |sum, count| sum + count);
    }
    counts[ages..last].fill(0.0);
}

/// Counts in units of age that are `2^delta` times as short.
fn stretch(counts: &mut [f32], delta: u32) {
    let last = MAX_AGE - 1;
    for age in MAX_AGE >> delta..last {
        counts[last] += counts[age];
    }
    for age in (0..last).rev() {
        counts[age] = counts[age >> delta] / (1_u32 << delta) as f32;
    }
}
