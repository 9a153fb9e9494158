//! A drive's counters over time.

use std::path::Path;
use std::time::Duration;

use device::Clock;
use device::nvme::readiness::endurance_group;
use device::nvme::wear::Written;
use device::nvme::{Drive, Wear};
use device::timer::{SystemTimer, Timer};

use super::DriveError;
use crate::run::stop::Stop;

/// A drive whose counters are read repeatedly.
pub struct Watched {
    drive: Drive,
    group: Option<u16>,
    first: Option<Written>,
    last: Option<Written>,
}

/// The counters at one time.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Seconds since 1970.
    pub unix_seconds: u32,
    /// The drive's counters.
    pub wear: Wear,
    /// Media bytes divided by host bytes since the previous sample.
    pub amplification_since_last: Option<f64>,
    /// Media bytes divided by host bytes since the first sample.
    pub amplification_since_first: Option<f64>,
}

impl Watched {
    /// Opens the namespace at `path`.
    ///
    /// # Errors
    /// The path is not an NVMe namespace, or access is denied.
    pub fn open(path: &Path) -> Result<Self, DriveError> {
        let system = |source| DriveError::Path { path: path.into(), source };
        std::fs::metadata(path).map_err(system)?;
        if device::nvme::Location::of(path).is_none() {
            return Err(DriveError::NotNvme { path: path.into(), what: "has no wear counters" });
        }
        let drive = Drive::open(path).map_err(system)?;
        let group =
            endurance_group(&drive.controller().map_err(system)?, &drive.namespace().map_err(system)?);
        Ok(Self { drive, group, first: None, last: None })
    }

    /// Reads the counters `count` times at intervals of `every` and calls `report` with each sample. Ends early on
    /// `stop`, or if `report` returns false.
    pub fn watch(
        &mut self,
        every: Duration,
        count: u64,
        stop: &Stop,
        mut report: impl FnMut(Sample) -> bool,
    ) {
        let timer = SystemTimer::default();
        let every_ns = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
        let mut next_ns = timer.monotonic_ns();
        for number in 0..count {
            if number > 0 && !wait(&timer, next_ns, stop) {
                return;
            }
            next_ns = next_ns.saturating_add(every_ns);
            if !report(self.sample(timer.unix_seconds())) {
                return;
            }
        }
    }

    /// Reads the counters.
    pub fn sample(&mut self, unix_seconds: u32) -> Sample {
        let wear = Wear::read(&self.drive, self.group);
        let since = |earlier: Option<Written>| wear.written?.write_amplification_since(&earlier?);
        let (amplification_since_last, amplification_since_first) = (since(self.last), since(self.first));
        self.last = wear.written.or(self.last);
        self.first = self.first.or(wear.written);
        Sample { unix_seconds, wear, amplification_since_last, amplification_since_first }
    }
}

/// Waits in short steps, because a signal does not end a sleep. Returns false if `stop` was set.
fn wait(timer: &SystemTimer, until_ns: u64, stop: &Stop) -> bool {
    const STEP_NS: u64 = 100_000_000;
    while timer.monotonic_ns() < until_ns && !stop.is_set() {
        timer.wait_until(until_ns.min(timer.monotonic_ns() + STEP_NS));
    }
    !stop.is_set()
}

/// The header of a CSV of samples.
pub const CSV_HEADER: &str = "unix_seconds,source,host_written_bytes,media_written_bytes,media_erased_bytes,\
                              dlwa_since_last,dlwa_since_first,life_used_percent,temperature_celsius,power_on_hours";

impl Sample {
    /// The sample as a line of CSV; unknown values are empty fields.
    #[must_use]
    pub fn csv_line(&self) -> String {
        fn cell(value: Option<impl ToString>) -> String {
            value.map_or_else(String::new, |value| value.to_string())
        }
        let (wear, written) = (&self.wear, self.wear.written);
        [
            self.unix_seconds.to_string(),
            cell(written.map(|it| it.source)),
            cell(written.and_then(|it| it.host_bytes)),
            cell(written.and_then(|it| it.media_bytes)),
            cell(wear.media_erased_bytes),
            cell(self.amplification_since_last),
            cell(self.amplification_since_first),
            cell(wear.life_used_percent),
            cell(wear.temperature_celsius),
            cell(wear.power_on_hours),
        ]
        .join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::nvme::wear::Source;

    #[test]
    fn unknown_values_are_empty_fields() {
        let written = Written { source: Source::Smart, host_bytes: Some(5), media_bytes: None };
        let wear = Wear { written: Some(written), life_used_percent: Some(0), ..Wear::default() };
        let sample =
            Sample { unix_seconds: 7, wear, amplification_since_last: None, amplification_since_first: None };
        assert_eq!(sample.csv_line(), "7,SMART (02h),5,,,,,0,,");
        assert_eq!(sample.csv_line().split(',').count(), CSV_HEADER.split(',').count());
    }

    #[test]
    fn watch_refuses_paths_that_are_no_namespace() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(Watched::open(file.path()), Err(DriveError::NotNvme { .. })));
        assert!(matches!(Watched::open(Path::new("/nonexistent")), Err(DriveError::Path { .. })));
    }
}
