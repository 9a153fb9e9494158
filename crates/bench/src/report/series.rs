//! How a run went over time: the counters of all instances together, at moments a fifth of a second or more apart, a
//! hundredth of a virtual one in a simulated run.

use std::time::Duration;

use crate::run::counts::Counts;
use crate::run::{Observable, Watcher};

/// Moments kept; when they become twice as many, every second one goes.
const MOMENTS: usize = 300;

/// The counters at moments of a run, each since its start.
#[derive(Debug, Clone, Default)]
pub struct Series {
    moments: Vec<(f64, Counts)>,
    /// Looks between two moments, less one.
    skip: usize,
    skipped: usize,
}

/// What happened between two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Its end, seconds since the start.
    pub until_seconds: f64,
    /// Its length.
    pub seconds: f64,
    /// What was counted in it.
    pub counts: Counts,
}

impl Series {
    /// Takes a look down.
    pub fn look(&mut self, seconds: f64, counts: Counts) {
        if self.skipped < self.skip {
            self.skipped += 1;
            return;
        }
        self.skipped = 0;
        self.moments.push((seconds, counts));
        if self.moments.len() >= 2 * MOMENTS {
            // Counters only grow: a moment less makes two spans one, and nothing is lost but detail.
            let mut number = 0;
            self.moments.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.skip = 2 * self.skip + 1;
        }
    }

    /// The end of the run, whenever the last look was. A rest too short to tell a rate by joins the span before.
    pub fn end(&mut self, seconds: f64, counts: Counts) {
        let usual_span = seconds / (self.moments.len() + 1) as f64;
        while self.moments.last().is_some_and(|(last, _)| seconds - last < usual_span / 2.0) {
            self.moments.pop();
        }
        self.moments.push((seconds, counts));
    }

    /// What happened between the moments, the first span beginning with the run.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let starts = std::iter::once((0.0, Counts::default())).chain(self.moments.iter().copied());
        let spans = starts.zip(&self.moments).map(|((from, before), (until_seconds, after))| Span {
            until_seconds: *until_seconds,
            seconds: until_seconds - from,
            counts: after.since(&before),
        });
        spans.filter(|span| span.seconds > 0.0)
    }
}

/// Takes a series down for somebody who watches too.
pub struct Recorder<'a> {
    watcher: &'a mut dyn Watcher,
    /// So far.
    pub series: Series,
    when_warm: Box<dyn FnMut() + 'a>,
}

impl<'a> Recorder<'a> {
    /// A recorder in front of `watcher`, which calls `when_warm` where the figures begin.
    pub fn new(watcher: &'a mut dyn Watcher, when_warm: impl FnMut() + 'a) -> Self {
        Self { watcher, series: Series::default(), when_warm: Box::new(when_warm) }
    }
}

impl Watcher for Recorder<'_> {
    fn look(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        self.watcher.look(instances, elapsed);
    }

    fn moment(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        let mut sum = Counts::default();
        instances.iter().for_each(|instance| sum.add(&instance.counts()));
        self.series.look(elapsed.as_secs_f64(), sum);
        self.watcher.moment(instances, elapsed);
    }

    fn warmed_up(&mut self) {
        self.watcher.warmed_up();
        (self.when_warm)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(ops: u64) -> Counts {
        Counts { ops, ..Counts::default() }
    }

    #[test]
    fn spans_add_up_to_the_run_however_long_it_is() {
        for looks in [1_u64, 2, 599, 600, 601, 5_000, 100_000] {
            let mut series = Series::default();
            (1..=looks).for_each(|look| series.look(look as f64 / 5.0, ops(look * 10)));
            let end_seconds = looks as f64 / 5.0 + 0.001;
            series.end(end_seconds, ops(looks * 10 + 7));
            let spans: Vec<_> = series.spans().collect();
            assert!(spans.len() <= 2 * MOMENTS, "{looks} looks became {} spans", spans.len());
            assert_eq!(spans.iter().map(|span| span.counts.ops).sum::<u64>(), looks * 10 + 7);
            let seconds: f64 = spans.iter().map(|span| span.seconds).sum();
            assert!((seconds - end_seconds).abs() < 1e-6, "{seconds} of {end_seconds}");
        }
    }

    #[test]
    fn the_last_glimpse_of_a_run_is_no_span_of_its_own() {
        let mut series = Series::default();
        series.look(0.2, ops(100));
        series.look(0.4, ops(200));
        series.end(0.401, ops(200));
        assert_eq!(series.spans().map(|span| span.counts.ops).collect::<Vec<_>>(), [100, 100]);
    }

    #[test]
    fn the_last_glimpses_of_a_run_are_no_spans_of_their_own_however_many() {
        let mut series = Series::default();
        (1..=10_u32).for_each(|look| series.look(f64::from(look) * 0.2, ops(100 * u64::from(look))));
        series.look(2.03, ops(1010));
        series.look(2.05, ops(1015));
        series.end(2.06, ops(1016));
        assert_eq!(series.spans().map(|span| span.counts.ops).collect::<Vec<_>>()[8..], [100, 116]);
    }

    #[test]
    fn a_run_shorter_than_a_look_is_one_span() {
        let mut series = Series::default();
        series.end(0.1, ops(5));
        assert_eq!(series.spans().count(), 1);
        assert_eq!(Series::default().spans().count(), 0);
    }
}
