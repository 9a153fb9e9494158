//! Drive lifetime in years at the write rate of a stage, by the formula of [`ssd::model::lifetime`].

use ssd::model::lifetime::{Endurance, dwpd_bytes_per_second};

use crate::moment::Moment;
use crate::run::model_drive::ModelDrive;

/// Endurance of a drive and the required lifetime.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Life {
    /// Rated endurance, if known.
    pub endurance: Option<Endurance>,
    /// Required lifetime.
    pub min_years: f64,
    /// Capacity that the host sees, at full size.
    pub capacity_bytes: f64,
}

/// Lifetime of a drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Years {
    /// Lifetime in years.
    Known(f64),
    /// Upper bound: the drive does not report its media writes, so a device write amplification of 1 is assumed.
    AtMost(f64),
    /// The rated endurance is not known.
    Unknown,
}

/// Write rate and write amplification of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WriteRates {
    /// Host write rate in bytes per second. A scaled model writes at the same rate as the full-size drive.
    pub host_bytes_per_second: f64,
    /// Write amplification of the drive, if it reports media writes.
    pub dlwa: Option<f64>,
    /// Whether too little was written to measure a rate, so that the bytes per operation at full speed are used instead.
    pub is_carried_over: bool,
}

/// Minimum number of regions written for a rate: with fewer, the rate depends on when buffered regions happen to be flushed.
const MIN_REGIONS: f64 = 10.0;

impl WriteRates {
    /// Computes the rates from the counters of a part of a run.
    #[must_use]
    pub fn of(counted: &Moment, drive: Option<&ModelDrive>) -> Self {
        let host_bytes = counted.flash().device.written_bytes as f64;
        let by_model = drive.zip(counted.drive.as_ref());
        let media_bytes = counted.flash().device.media_written_bytes.filter(|_| host_bytes > 0.0);
        let dlwa = match by_model {
            Some((drive, stats)) => stats.dlwa(drive.card().space.page_bytes),
            None => media_bytes.map(|media_bytes| media_bytes as f64 / host_bytes),
        };
        let host_bytes_per_second = host_bytes / counted.at.as_secs_f64().max(1e-9);
        Self { host_bytes_per_second, dlwa, is_carried_over: false }
    }

    /// Computes the rates of a stage. If the stage wrote fewer than ten regions, its rate follows from the bytes per operation
    /// of `first`, the stage at full speed.
    #[must_use]
    pub fn of_stage(counted: &Moment, first: &Moment, region_bytes: f64, drive: Option<&ModelDrive>) -> Self {
        if counted.flash().device.written_bytes as f64 >= MIN_REGIONS * region_bytes {
            return Self::of(counted, drive);
        }
        let speed = |of: &Moment| of.counts.ops as f64 / of.at.as_secs_f64().max(1e-9);
        let at_full_speed = Self::of(first, drive);
        let share = speed(counted) / speed(first).max(1e-9);
        let host_bytes_per_second = at_full_speed.host_bytes_per_second * share;
        Self { host_bytes_per_second, is_carried_over: true, ..at_full_speed }
    }
}

impl Life {
    /// Lifetime of the drive at this write rate.
    #[must_use]
    pub fn years(&self, writes: &WriteRates) -> Years {
        let Some(endurance) = self.endurance else { return Years::Unknown };
        match writes.dlwa {
            Some(dlwa) => Years::Known(endurance.years(writes.host_bytes_per_second, dlwa)),
            None => Years::AtMost(endurance.years(writes.host_bytes_per_second, 1.0)),
        }
    }

    /// Drive writes per day (DWPD) of the host.
    #[must_use]
    pub fn drive_writes_per_day(&self, writes: &WriteRates) -> f64 {
        writes.host_bytes_per_second / dwpd_bytes_per_second(self.capacity_bytes, 1.0)
    }

    /// Operations per second at which the drive reaches the required lifetime, if each operation writes as many bytes as the
    /// counted ones did.
    #[must_use]
    pub fn rate(&self, counted: &Moment, drive: Option<&ModelDrive>) -> Option<f64> {
        let writes = WriteRates::of(counted, drive);
        let may_write = self.endurance?.host_bytes_per_second(self.min_years, writes.dlwa.unwrap_or(1.0));
        let ops_per_second = counted.counts.ops as f64 / counted.at.as_secs_f64().max(1e-9);
        let rate = ops_per_second * may_write / writes.host_bytes_per_second;
        rate.is_finite().then_some(rate)
    }
}

impl Years {
    /// The years, and whether they are an upper bound.
    #[must_use]
    pub fn figure(self) -> Option<(f64, bool)> {
        match self {
            Self::Known(years) => Some((years, false)),
            Self::AtMost(years) => Some((years, true)),
            Self::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_without_media_writes_are_an_upper_bound() {
        let endurance = Some(Endurance::from_dwpd(1e12, 1.0, 5.0, 1.0));
        let life = Life { endurance, min_years: 5.0, capacity_bytes: 1e12 };
        let writes =
            WriteRates { host_bytes_per_second: 1e12 / 86_400.0, dlwa: Some(2.0), is_carried_over: false };
        let close = |years: Years, expected: f64| (years.figure().unwrap().0 - expected).abs() < 1e-9;
        assert!(close(life.years(&writes), 2.5) && (life.drive_writes_per_day(&writes) - 1.0).abs() < 1e-9);
        let twice = Life { capacity_bytes: 2e12, ..life };
        assert!((twice.drive_writes_per_day(&writes) - 0.5).abs() < 1e-9);
        let unknown_dlwa = life.years(&WriteRates { dlwa: None, ..writes });
        assert!(matches!(unknown_dlwa, Years::AtMost(_)) && close(unknown_dlwa, 5.0));
        assert_eq!(Life { endurance: None, ..life }.years(&writes), Years::Unknown);
    }

    /// Counters of `ops` operations in `seconds`.
    fn counted(ops: u64, seconds: u64, host_bytes: u64, media_bytes: Option<u64>) -> Moment {
        let mut counted = Moment { at: std::time::Duration::from_secs(seconds), ..Moment::default() };
        counted.counts.ops = ops;
        let flash = counted.snapshot.stats.flash.get_or_insert_default();
        (flash.device.written_bytes, flash.device.media_written_bytes) = (host_bytes, media_bytes);
        counted
    }

    #[test]
    fn writes_of_interval_gives_rate_and_dlwa_if_reported() {
        for (host_bytes, media_bytes, dlwa) in [
            (20_000, Some(50_000), Some(2.5)),
            (20_000, None, None),
            // Media writes without host writes, from earlier buffered data, give no ratio.
            (0, Some(50_000), None),
        ] {
            let writes = WriteRates::of(&counted(1, 10, host_bytes, media_bytes), None);
            let host_bytes_per_second = host_bytes as f64 / 10.0;
            assert_eq!(writes, WriteRates { host_bytes_per_second, dlwa, is_carried_over: false });
        }
    }

    #[test]
    fn writes_of_nearly_idle_stage_are_derived_from_full_speed() {
        let first = counted(100_000, 10, 1_000_000_000, Some(3_000_000_000));
        let stage = |host_bytes| {
            WriteRates::of_stage(&counted(2000, 20, host_bytes, Some(host_bytes)), &first, 1e6, None)
        };
        // 100 operations per second of 10,000 bytes each, as at full speed: fewer than ten regions are not a sample.
        for host_bytes in [0, 5_000_000, 9_999_999] {
            let slow = stage(host_bytes);
            assert!(slow.is_carried_over && slow.dlwa == Some(3.0), "{slow:?}");
            assert!((slow.host_bytes_per_second - 1e6).abs() < 1.0, "{slow:?}");
        }
        for host_bytes in [10_000_000, 20_000_000] {
            let enough = stage(host_bytes);
            assert!(!enough.is_carried_over && enough.dlwa == Some(1.0), "{enough:?}");
            assert!((enough.host_bytes_per_second - host_bytes as f64 / 20.0).abs() < 1.0, "{enough:?}");
        }
    }

    #[test]
    fn rate_for_lifetime_scales_with_write_budget() {
        let endurance = Some(Endurance::from_dwpd(1e12, 1.0, 5.0, 1.0));
        let life = Life { endurance, min_years: 5.0, capacity_bytes: 1e12 };
        // Writes 4 capacities a day at 1000 operations per second; the drive is rated for 1 a day.
        let (ops, seconds) = (172_800_000, 172_800);
        let rate = |life: Life, media_bytes| {
            life.rate(&counted(ops, seconds, 8_000_000_000_000, media_bytes), None).map(f64::round)
        };
        assert_eq!(rate(life, None), Some(250.0));
        assert_eq!(
            rate(life, Some(16_000_000_000_000)),
            Some(125.0),
            "a write amplification of 2 halves the rate"
        );
        assert_eq!(rate(Life { min_years: 10.0, ..life }, None), Some(125.0));
        assert_eq!(rate(Life { endurance: None, ..life }, None), None);
        assert_eq!(
            life.rate(&counted(ops, seconds, 0, None), None),
            None,
            "without writes the rate is unlimited"
        );
    }
}
