//! How a run went over time: the counters of all instances together, at moments a fifth of a second or more apart, a
//! hundredth of a virtual one in a simulated run.

use std::time::Duration;

use super::tails::{Tails, Timings};
use crate::run::counts::Counts;
use crate::run::target::{FlashBytes, Settled};
use crate::run::{Observable, Watcher};

/// Moments kept; when they become twice as many, every second one goes.
const MOMENTS: usize = 300;

/// The counters of all instances, at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moment {
    /// Since the start of the run.
    pub seconds: f64,
    /// What was asked so far.
    pub counts: Counts,
    /// What was written so far; `None` without flash.
    pub flash: Option<FlashBytes>,
}

impl Moment {
    fn of(instances: &[&dyn Observable], elapsed: Duration) -> Self {
        let mut counts = Counts::default();
        instances.iter().for_each(|instance| counts.add(&instance.counts()));
        let flash = instances.iter().filter_map(|instance| instance.flash_bytes()).reduce(FlashBytes::plus);
        Self { seconds: elapsed.as_secs_f64(), counts, flash }
    }

    /// What happened since `earlier`. At the start of a run nothing was written.
    fn since(&self, earlier: &Self) -> Span {
        let nothing = FlashBytes {
            logical: Some(0),
            waiting: Some(0),
            host: Some(0),
            settled: Some(Settled::default()),
            media: Some(0),
            is_listed: false,
        };
        Span {
            until_seconds: self.seconds,
            seconds: self.seconds - earlier.seconds,
            counts: self.counts.since(&earlier.counts),
            flash: self.flash.map(|flash| flash.since(earlier.flash.unwrap_or(nothing))),
            tails: Tails::default(),
        }
    }
}

/// The counters at moments of a run, each since its start, and what was timed since the moment before.
#[derive(Debug, Clone, Default)]
pub struct Series {
    moments: Vec<(Moment, Tails)>,
    /// Timed since the last moment.
    untold: Tails,
    /// Looks between two moments, less one.
    skip: usize,
    skipped: usize,
}

/// What happened between two moments.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its end, seconds since the start.
    pub until_seconds: f64,
    /// Its length.
    pub seconds: f64,
    /// What was counted in it.
    pub counts: Counts,
    /// What was written in it; `None` without flash.
    pub flash: Option<FlashBytes>,
    /// What was timed in it.
    pub tails: Tails,
}

impl Series {
    /// Whether the next look is taken down.
    fn is_due(&self) -> bool {
        self.skipped >= self.skip
    }

    /// A look that is not taken down.
    fn pass(&mut self) {
        self.skipped += 1;
    }

    /// Takes a look down, if it is due, with what was timed since the look before.
    pub fn look(&mut self, moment: Moment, tails: &Tails) {
        self.untold.merge(tails);
        if !self.is_due() {
            return self.pass();
        }
        self.skipped = 0;
        self.moments.push((moment, std::mem::take(&mut self.untold)));
        if self.moments.len() >= 2 * MOMENTS {
            // Counters only grow: a moment less makes two spans one, and nothing is lost but detail.
            for pair in self.moments.chunks_exact_mut(2) {
                let [(_, first), (_, second)] = pair else { unreachable!("two each") };
                second.merge(first);
            }
            let mut number = 0;
            self.moments.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.skip = 2 * self.skip + 1;
        }
    }

    /// The end of the run, whenever the last look was. A rest too short to tell a rate by joins the span before.
    pub fn end(&mut self, moment: Moment) {
        let usual_span = moment.seconds / (self.moments.len() + 1) as f64;
        let is_rest = |(last, _): &mut (Moment, Tails)| moment.seconds - last.seconds < usual_span / 2.0;
        while let Some((_, tails)) = self.moments.pop_if(is_rest) {
            self.untold.merge(&tails);
        }
        self.moments.push((moment, std::mem::take(&mut self.untold)));
    }

    /// What happened between the moments, the first span beginning with the run.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let starts = std::iter::once(Moment::default()).chain(self.moments.iter().map(|(moment, _)| *moment));
        let spans = starts
            .zip(&self.moments)
            .map(|(before, (after, tails))| Span { tails: tails.clone(), ..after.since(&before) });
        spans.filter(|span| span.seconds > 0.0)
    }
}

/// What a drive under all instances counts by itself: both at one moment, for it counts a write when it comes and instances when it
/// has ended.
#[derive(Debug, Clone, Copy)]
pub struct DriveBytes {
    /// Bytes that hosts wrote.
    pub host: u64,
    /// Bytes that the medium wrote.
    pub media: u64,
}

impl DriveBytes {
    /// Puts them in the place of what the instances know.
    pub fn set(&self, flash: &mut FlashBytes) {
        (flash.host, flash.media) = (Some(self.host), Some(self.media));
    }
}

/// Takes a series down for somebody who watches too, and tells him each span as it ends.
pub struct Recorder<'a> {
    watcher: &'a mut dyn Watcher,
    /// What the drive under all instances counts, where it counts by itself.
    drive_bytes: &'a dyn Fn() -> Option<DriveBytes>,
    /// So far.
    pub series: Series,
    told: Moment,
    /// Seen and not told: the run may have ended before it.
    last: Option<(Moment, Tails)>,
    /// When somebody last looked.
    timed: Timings,
    when_warm: &'a dyn Fn(),
}

impl<'a> Recorder<'a> {
    /// A recorder in front of `watcher`, which calls `when_warm` where the figures begin.
    pub fn new(
        watcher: &'a mut dyn Watcher,
        drive_bytes: &'a dyn Fn() -> Option<DriveBytes>,
        when_warm: &'a dyn Fn(),
    ) -> Self {
        let (series, told, timed) = (Series::default(), Moment::default(), Timings::default());
        Self { watcher, drive_bytes, series, told, last: None, timed, when_warm }
    }

    /// The end of the run.
    pub fn end(&mut self, moment: Moment) {
        self.series.end(moment);
        let tails = match self.last.take() {
            Some((last, tails)) if last.seconds < moment.seconds => {
                self.tell(last, tails);
                Tails::default()
            }
            after_the_end => after_the_end.map(|(_, tails)| tails).unwrap_or_default(),
        };
        self.tell(moment, tails);
    }

    fn tell(&mut self, moment: Moment, tails: Tails) {
        if self.watcher.needs_intervals() {
            self.watcher.interval(&Span { tails, ..moment.since(&self.told) });
        }
        self.told = moment;
    }
}

impl Watcher for Recorder<'_> {
    fn refresh(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        self.watcher.refresh(instances, elapsed);
    }

    fn sample(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        // Drives need not be asked for what nobody keeps.
        if self.series.is_due() || self.watcher.needs_intervals() {
            let mut moment = Moment::of(instances, elapsed);
            if let Some(flash) = &mut moment.flash {
                (self.drive_bytes)().inspect(|drive| drive.set(flash));
            }
            let timed = Timings::of(instances);
            let tails = timed.since(&std::mem::replace(&mut self.timed, timed.clone()));
            self.series.look(moment, &tails);
            if let Some((last, tails)) = self.last.replace((moment, tails)) {
                self.tell(last, tails);
            }
        } else {
            self.series.pass();
        }
        self.watcher.sample(instances, elapsed);
    }

    fn warn(&mut self, words: &str) {
        self.watcher.warn(words);
    }

    fn warmed_up(&mut self) {
        self.watcher.warmed_up();
        (self.when_warm)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64, ops: u64) -> Moment {
        Moment { seconds, counts: Counts { ops, ..Counts::default() }, flash: None }
    }

    #[test]
    fn spans_add_up_to_the_run_however_long_it_is() {
        for looks in [1_u64, 2, 599, 600, 601, 5_000, 100_000] {
            let mut series = Series::default();
            (1..=looks).for_each(|look| series.look(at(look as f64 / 5.0, look * 10), &Tails::default()));
            let end_seconds = looks as f64 / 5.0 + 0.001;
            series.end(at(end_seconds, looks * 10 + 7));
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
        series.look(at(0.2, 100), &Tails::default());
        series.look(at(0.4, 200), &Tails::default());
        series.end(at(0.401, 200));
        assert_eq!(series.spans().map(|span| span.counts.ops).collect::<Vec<_>>(), [100, 100]);
    }

    #[test]
    fn the_last_glimpses_of_a_run_are_no_spans_of_their_own_however_many() {
        let mut series = Series::default();
        (1..=10_u32).for_each(|look| {
            series.look(at(f64::from(look) * 0.2, 100 * u64::from(look)), &Tails::default());
        });
        series.look(at(2.03, 1010), &Tails::default());
        series.look(at(2.05, 1015), &Tails::default());
        series.end(at(2.06, 1016));
        assert_eq!(series.spans().map(|span| span.counts.ops).collect::<Vec<_>>()[8..], [100, 116]);
    }

    #[derive(Default)]
    struct Listener(Vec<Span>);

    impl Watcher for Listener {
        fn needs_intervals(&self) -> bool {
            true
        }

        fn interval(&mut self, span: &Span) {
            self.0.push(span.clone());
        }
    }

    /// A simulated run is looked at when the hundredth of a second is over in which it ended.
    #[test]
    fn a_look_after_the_end_is_no_interval_behind_the_run() {
        let mut listener = Listener::default();
        let mut recorder = Recorder::new(&mut listener, &|| None, &|| ());
        for hundredths in 1..=3 {
            recorder.sample(&[], Duration::from_millis(10 * hundredths));
        }
        recorder.end(at(0.023, 100));
        let told: Vec<_> = listener.0.iter().map(|span| (span.until_seconds, span.counts.ops)).collect();
        assert_eq!(told, [(0.01, 0), (0.02, 0), (0.023, 100)]);
    }

    #[test]
    fn a_run_shorter_than_a_look_is_one_span() {
        let mut series = Series::default();
        series.end(at(0.1, 5));
        assert_eq!(series.spans().count(), 1);
        assert_eq!(Series::default().spans().count(), 0);
    }
}
