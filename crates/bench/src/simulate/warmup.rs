//! Warm-up: the requests at the start, when the cache is not full, are not counted.

use policy::simulate::{Access, Counts, Simulator};

use super::Batch;

/// Length of the warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Warmup {
    /// A number of accesses.
    Accesses(u64),
    /// A share of all accesses, from 0 to 1, rounded down to a step of at most 1/512 of them or one access. The total may be
    /// unknown until the end.
    Share(f64),
    /// The accesses before this time in seconds, counted from the first access.
    Seconds(u32),
}

impl Warmup {
    pub(super) fn is_share(self) -> bool {
        matches!(self, Self::Share(_))
    }

    /// Converts a share to a number of accesses, for a trace of known length.
    pub(super) fn of(self, accesses: u64) -> Self {
        let Self::Share(share) = self else { return self };
        let mut step = FIRST_STEP;
        while accesses / step >= MAX_MARKS as u64 {
            step *= 2;
        }
        let place = (share * accesses as f64 / step as f64) as u64;
        Self::Accesses(place.min(accesses / step) * step)
    }
}

/// Maximum number of marks; beyond it every other one is dropped and the step doubles.
const MAX_MARKS: usize = 1024;
const FIRST_STEP: u64 = 1;

/// Runs a simulation, or several, and records the counts at the end of the warm-up.
pub(super) struct Warmed<C = Counts> {
    warmup: Warmup,
    seen: u64,
    /// If the warm-up is a share of the trace: the counts after 0, 1, 2... steps. If it is a number of accesses: the counts at its start
    /// and at its end.
    marks: Vec<C>,
    step: u64,
}

impl Warmed {
    pub(super) fn new(warmup: Warmup) -> Self {
        Self::from(warmup, Counts::default())
    }

    /// Runs the requests of a batch.
    pub(super) fn run(&mut self, simulator: &mut dyn Simulator, batch: &Batch) {
        self.run_parts(batch, |accesses, next_uses, is_marked| {
            simulator.run(accesses, next_uses);
            is_marked.then(|| simulator.counts())
        });
    }

    /// Requests of the warm-up.
    pub(super) fn warmup_requests(&self, total: &Counts) -> u64 {
        self.warm(total).requests
    }

    /// Counts since the end of the warm-up.
    pub(super) fn counted(&self, total: &Counts) -> Counts {
        total.since(&self.warm(total))
    }
}

impl Warmed<Vec<Counts>> {
    /// The warm-up of one of the simulations.
    pub(super) fn of(&self, place: usize) -> Warmed {
        let &Self { warmup, seen, step, .. } = self;
        Warmed { warmup, seen, step, marks: self.marks.iter().map(|counts| counts[place]).collect() }
    }
}

impl<C: Clone> Warmed<C> {
    /// Starts with these counts, of no request.
    pub(super) fn from(warmup: Warmup, counts: C) -> Self {
        let step = match warmup {
            Warmup::Accesses(accesses) => accesses,
            Warmup::Share(_) => FIRST_STEP,
            Warmup::Seconds(_) => 0,
        };
        Self { warmup, seen: 0, marks: vec![counts], step }
    }

    /// Calls `run` for the requests of a batch, in parts, with their next uses. If the last argument is true, it must return the counts after
    /// the part.
    pub(super) fn run_parts(
        &mut self,
        batch: &Batch,
        mut run: impl FnMut(&[Access], &[u64], bool) -> Option<C>,
    ) {
        self.find_end(&batch.accesses);
        let (mut accesses, mut next_uses) = (&batch.accesses[..], &batch.next_uses[..]);
        while !accesses.is_empty() {
            let until_mark = (self.next_mark() - self.seen).min(accesses.len() as u64) as usize;
            let (now, later) = accesses.split_at(until_mark);
            let (now_uses, later_uses) = next_uses.split_at(until_mark.min(next_uses.len()));
            (accesses, next_uses) = (later, later_uses);
            self.seen += now.len() as u64;
            if let Some(counts) = run(now, now_uses, self.seen == self.next_mark()) {
                self.mark(counts);
            }
        }
    }

    /// Turns a warm-up by time into one by accesses when it ends in this batch.
    fn find_end(&mut self, accesses: &[Access]) {
        let Warmup::Seconds(seconds) = self.warmup else { return };
        if let Some(place) = accesses.iter().position(|access| access.now_seconds >= seconds) {
            self.step = self.seen + place as u64;
            self.warmup = Warmup::Accesses(self.step);
        }
    }

    /// Number of accesses at which counts are recorded next.
    fn next_mark(&self) -> u64 {
        match self.warmup {
            Warmup::Accesses(_) if self.marks.len() > 1 || self.step == 0 => u64::MAX,
            Warmup::Seconds(_) => u64::MAX,
            _ => self.marks.len() as u64 * self.step,
        }
    }

    fn mark(&mut self, counts: C) {
        self.marks.push(counts);
        if self.marks.len() > MAX_MARKS {
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.step *= 2;
        }
    }

    /// Counts at the end of the warm-up; the total if it has not ended.
    pub(super) fn warm(&self, total: &C) -> C {
        match self.warmup {
            Warmup::Accesses(0) => self.marks[0].clone(),
            Warmup::Accesses(_) => self.marks.get(1).unwrap_or(total).clone(),
            Warmup::Seconds(_) => total.clone(),
            Warmup::Share(share) => {
                let place = (share * self.seen as f64 / self.step as f64) as usize;
                self.marks[place.min(self.marks.len() - 1)].clone()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::eviction::Lru;
    use policy::simulate::Simulation;

    use super::*;

    #[test]
    fn warmup_share_of_known_length_equals_share() {
        for accesses in (0..70).chain([1022, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 65_536, 200_000])
        {
            for share in [0.0, 0.2, 0.5, 0.999, 1.0] {
                let known = Warmup::Share(share).of(u64::from(accesses));
                assert_eq!(
                    counted(known, accesses, 999),
                    counted(Warmup::Share(share), accesses, 999),
                    "{share} of {accesses}"
                );
            }
        }
    }

    fn counted(warmup: Warmup, accesses: u32, in_batches_of: usize) -> (u64, u64) {
        let all: Vec<Access> = (0..accesses)
            .map(|object| Access { object, weight: 1, now_seconds: 0, is_removal: false, is_set: false })
            .collect();
        let mut simulation = Simulation::new(Lru::exact(), 10);
        let mut warmed = Warmed::new(warmup);
        for batch in all.chunks(in_batches_of) {
            warmed.run(&mut simulation, &Batch { accesses: batch.to_vec(), ..Batch::default() });
        }
        let total = simulation.counts();
        (warmed.warmup_requests(&total), warmed.counted(&total).requests)
    }

    /// Times are 0, 0, 1, 1, 2, 2 and so on.
    #[test]
    fn warmup_by_time_excludes_accesses_before_that_second() {
        let all: Vec<Access> = (0..1000)
            .map(|object| Access {
                object,
                weight: 1,
                now_seconds: object / 2,
                is_removal: false,
                is_set: false,
            })
            .collect();
        for (seconds, batch, expected) in
            [(0, 7, 0), (1, 1, 2), (100, 7, 200), (499, 1000, 998), (500, 7, 1000)]
        {
            let mut simulation = Simulation::new(Lru::exact(), 10);
            let mut warmed = Warmed::new(Warmup::Seconds(seconds));
            for batch in all.chunks(batch) {
                warmed.run(&mut simulation, &Batch { accesses: batch.to_vec(), ..Batch::default() });
            }
            let total = simulation.counts();
            assert_eq!(warmed.warmup_requests(&total), expected, "{seconds} s");
            assert_eq!(warmed.counted(&total).requests, 1000 - expected, "{seconds} s");
        }
    }

    #[test]
    fn warmup_excludes_exact_number_of_accesses() {
        for batch in [1, 7, 1000] {
            assert_eq!(counted(Warmup::Accesses(0), 1000, batch), (0, 1000));
            assert_eq!(counted(Warmup::Accesses(333), 1000, batch), (333, 667));
            assert_eq!(counted(Warmup::Accesses(1000), 1000, batch), (1000, 0));
            assert_eq!(counted(Warmup::Accesses(5000), 1000, batch), (1000, 0));
        }
    }

    #[test]
    fn warmup_share_is_exact_to_a_512th() {
        for accesses in [0, 1, 5, 64, 1000, 65_535, 65_536, 65_537, 200_000] {
            for batch in [999, 32_768] {
                let (left_out, counted) = counted(Warmup::Share(0.2), accesses, batch);
                assert_eq!(left_out + counted, u64::from(accesses));
                let wanted = f64::from(accesses) * 0.2;
                assert!(left_out as f64 <= wanted, "{left_out} of {accesses}");
                let step = (f64::from(accesses) / 512.0).max(1.0);
                assert!(left_out as f64 > wanted - step - 1.0, "{left_out} of {accesses}");
            }
        }
    }

    #[test]
    fn warmup_share_of_short_trace_is_not_rounded_to_0() {
        for (share, accesses, left_out) in [(0.2, 50, 10), (1.0, 50, 50), (0.5, 3, 1)] {
            assert_eq!(
                counted(Warmup::Share(share), accesses, 999),
                (left_out, u64::from(accesses) - left_out)
            );
        }
    }
}
