//! Samples of a run over time: the counters of all instances together, every 200 ms or more, or every 10 ms of virtual time or more in
//! a simulated run.

use std::time::Duration;

use cache::stats::{CounterTable, FlashStats};

use super::tails::{Tails, Timings};
use crate::run::counts::Counts;
use crate::run::{Observable, Watcher};

/// Number of samples that are kept. When there are twice as many, every second one is dropped.
const MAX_SAMPLES: usize = 300;

/// The counters of all instances at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Moment {
    /// Since the start of the run.
    pub seconds: f64,
    /// Counters since the start of the run.
    pub counts: Counts,
    /// Counters of flash since the start of the run; `None` without flash.
    pub flash: Option<FlashStats>,
}

impl Moment {
    fn of(instances: &[&dyn Observable], elapsed: Duration) -> Self {
        let mut counts = Counts::default();
        instances.iter().for_each(|instance| counts.add(&instance.counts()));
        Self { seconds: elapsed.as_secs_f64(), counts, flash: flash_stats(instances) }
    }

    /// The difference to `earlier`. At the start of a run, all counters are 0.
    fn since(&self, earlier: &Self) -> Span {
        Span {
            until_seconds: self.seconds,
            seconds: self.seconds - earlier.seconds,
            counts: self.counts.since(&earlier.counts),
            flash: self.flash.since(&earlier.flash),
            tails: Tails::default(),
        }
    }
}

/// Counters of flash of all instances. If only some of them list drives, a drive may count twice: then the media writes are unknown.
pub(crate) fn flash_stats(instances: &[&dyn Observable]) -> Option<FlashStats> {
    let with_flash: Vec<_> =
        instances.iter().filter_map(|it| Some((it.flash_stats()?, it.lists_drives()))).collect();
    let lists = with_flash.iter().filter(|(_, lists_drives)| *lists_drives).count();
    let is_known = lists == 0 || lists == with_flash.len();
    let mut sum = with_flash.into_iter().map(|(flash, _)| flash).reduce(|sum, flash| sum.plus(&flash))?;
    sum.device.media_written_bytes = sum.device.media_written_bytes.filter(|_| is_known);
    Some(sum)
}

/// Samples of the counters, each since the start of the run, with the latencies since the previous sample.
#[derive(Debug, Clone, Default)]
pub struct Series {
    samples: Vec<(Moment, Tails)>,
    /// Latencies since the last kept sample.
    pending_tails: Tails,
    /// Samples that are dropped between two kept ones.
    skip: usize,
    skipped: usize,
}

/// Figures of the time between two samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// End of the span, in seconds since the start of the run.
    pub until_seconds: f64,
    /// Length of the span.
    pub seconds: f64,
    /// Counters of the span.
    pub counts: Counts,
    /// Counters of flash in the span; `None` without flash.
    pub flash: Option<FlashStats>,
    /// Latencies in the span.
    pub tails: Tails,
}

impl Series {
    /// Whether the next sample is kept.
    fn is_due(&self) -> bool {
        self.skipped >= self.skip
    }

    /// Counts a sample that is dropped.
    fn skip_sample(&mut self) {
        self.skipped += 1;
    }

    /// Adds a sample, if it is due. `tails` are the latencies since the previous call.
    pub fn add(&mut self, moment: Moment, tails: &Tails) {
        self.pending_tails.merge(tails);
        if !self.is_due() {
            return self.skip_sample();
        }
        self.skipped = 0;
        self.samples.push((moment, std::mem::take(&mut self.pending_tails)));
        if self.samples.len() >= 2 * MAX_SAMPLES {
            // Counters only grow, so dropping a sample joins two spans without changing their sum.
            for pair in self.samples.chunks_exact_mut(2) {
                let [(_, first), (_, second)] = pair else { unreachable!("two each") };
                second.merge(first);
            }
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.skip = 2 * self.skip + 1;
        }
    }

    /// Adds the end of the run. If the last span would be too short to compute a rate, it is joined with the span before.
    pub fn end(&mut self, moment: Moment) {
        let usual_span = moment.seconds / (self.samples.len() + 1) as f64;
        let is_too_close = |(last, _): &mut (Moment, Tails)| moment.seconds - last.seconds < usual_span / 2.0;
        while let Some((_, tails)) = self.samples.pop_if(is_too_close) {
            self.pending_tails.merge(&tails);
        }
        self.samples.push((moment, std::mem::take(&mut self.pending_tails)));
    }

    /// The spans between samples. The first one begins with the run.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let starts =
            std::iter::once(Moment::default()).chain(self.samples.iter().map(|(moment, _)| moment.clone()));
        let spans = starts
            .zip(&self.samples)
            .map(|(before, (after, tails))| Span { tails: tails.clone(), ..after.since(&before) });
        spans.filter(|span| span.seconds > 0.0)
    }
}

/// Byte counters of a model drive under all instances. Both are read at the same time. The drive counts a write when it is submitted, and
/// an instance when it completes.
#[derive(Debug, Clone, Copy)]
pub struct DriveBytes {
    /// Host writes.
    pub host: u64,
    /// Media writes.
    pub media: u64,
}

impl DriveBytes {
    /// Replaces the byte counters of the instances.
    pub fn set(&self, flash: &mut FlashStats) {
        (flash.device.written_bytes, flash.device.media_written_bytes) = (self.host, Some(self.media));
    }
}

/// Records a series in front of another watcher, and passes each interval to it.
pub struct Recorder<'a> {
    watcher: &'a mut dyn Watcher,
    /// Reads the counters of the model drive, if there is one.
    drive_bytes: &'a dyn Fn() -> Option<DriveBytes>,
    /// The series so far.
    pub series: Series,
    /// The end of the last interval that the watcher received.
    reported: Moment,
    /// The last sample. Its interval is not reported yet, as the run may have ended before it.
    last: Option<(Moment, Tails)>,
    /// Latency totals at the last sample.
    timed: Timings,
    on_warm: &'a dyn Fn(),
}

impl<'a> Recorder<'a> {
    /// Creates a recorder in front of `watcher`; `on_warm` is called when the warm-up ends.
    pub fn new(
        watcher: &'a mut dyn Watcher,
        drive_bytes: &'a dyn Fn() -> Option<DriveBytes>,
        on_warm: &'a dyn Fn(),
    ) -> Self {
        let (series, reported, timed) = (Series::default(), Moment::default(), Timings::default());
        Self { watcher, drive_bytes, series, reported, last: None, timed, on_warm }
    }

    /// Records the end of the run.
    pub fn end(&mut self, moment: Moment) {
        self.series.end(moment.clone());
        let tails = match self.last.take() {
            Some((last, tails)) if last.seconds < moment.seconds => {
                self.report_interval(last, tails);
                Tails::default()
            }
            after_the_end => after_the_end.map(|(_, tails)| tails).unwrap_or_default(),
        };
        self.report_interval(moment, tails);
    }

    fn report_interval(&mut self, moment: Moment, tails: Tails) {
        if self.watcher.needs_intervals() {
            self.watcher.interval(&Span { tails, ..moment.since(&self.reported) });
        }
        self.reported = moment;
    }
}

impl Watcher for Recorder<'_> {
    fn refresh(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        self.watcher.refresh(instances, elapsed);
    }

    fn sample(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        // Reading the drives is skipped for samples that are not kept.
        if self.series.is_due() || self.watcher.needs_intervals() {
            let mut moment = Moment::of(instances, elapsed);
            if let Some(flash) = &mut moment.flash {
                (self.drive_bytes)().inspect(|drive| drive.set(flash));
            }
            let timed = Timings::of(instances);
            let tails = timed.since(&std::mem::replace(&mut self.timed, timed.clone()));
            self.series.add(moment.clone(), &tails);
            if let Some((last, tails)) = self.last.replace((moment, tails)) {
                self.report_interval(last, tails);
            }
        } else {
            self.series.skip_sample();
        }
        self.watcher.sample(instances, elapsed);
    }

    fn warn(&mut self, text: &str) {
        self.watcher.warn(text);
    }

    fn warmed_up(&mut self) {
        self.watcher.warmed_up();
        (self.on_warm)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64, ops: u64) -> Moment {
        Moment { seconds, counts: Counts { ops, ..Counts::default() }, flash: None }
    }

    #[test]
    fn spans_add_up_to_the_run_of_any_length() {
        for samples in [1_u64, 2, 599, 600, 601, 5_000, 100_000] {
            let mut series = Series::default();
            (1..=samples).for_each(|n| series.add(at(n as f64 / 5.0, n * 10), &Tails::default()));
            let end_seconds = samples as f64 / 5.0 + 0.001;
            series.end(at(end_seconds, samples * 10 + 7));
            let spans: Vec<_> = series.spans().collect();
            assert!(spans.len() <= 2 * MAX_SAMPLES, "{samples} samples became {} spans", spans.len());
            assert_eq!(spans.iter().map(|span| span.counts.ops).sum::<u64>(), samples * 10 + 7);
            let seconds: f64 = spans.iter().map(|span| span.seconds).sum();
            assert!((seconds - end_seconds).abs() < 1e-6, "{seconds} of {end_seconds}");
        }
    }

    #[test]
    fn sample_just_before_the_end_is_joined_with_the_last_span() {
        let mut series = Series::default();
        series.add(at(0.2, 100), &Tails::default());
        series.add(at(0.4, 200), &Tails::default());
        series.end(at(0.401, 200));
        assert_eq!(series.spans().map(|span| span.counts.ops).collect::<Vec<_>>(), [100, 100]);
    }

    #[test]
    fn several_samples_just_before_the_end_are_joined_with_the_last_span() {
        let mut series = Series::default();
        (1..=10_u32).for_each(|number| {
            series.add(at(f64::from(number) * 0.2, 100 * u64::from(number)), &Tails::default());
        });
        series.add(at(2.03, 1010), &Tails::default());
        series.add(at(2.05, 1015), &Tails::default());
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

    /// A simulated run is sampled every 10 ms, so the last sample can be later than its end.
    #[test]
    fn sample_after_the_end_is_no_interval() {
        let mut listener = Listener::default();
        let mut recorder = Recorder::new(&mut listener, &|| None, &|| ());
        for hundredths in 1..=3 {
            recorder.sample(&[], Duration::from_millis(10 * hundredths));
        }
        recorder.end(at(0.023, 100));
        let intervals: Vec<_> = listener.0.iter().map(|span| (span.until_seconds, span.counts.ops)).collect();
        assert_eq!(intervals, [(0.01, 0), (0.02, 0), (0.023, 100)]);
    }

    #[test]
    fn run_shorter_than_a_sampling_interval_is_one_span() {
        let mut series = Series::default();
        series.end(at(0.1, 5));
        assert_eq!(series.spans().count(), 1);
        assert_eq!(Series::default().spans().count(), 0);
    }
}
