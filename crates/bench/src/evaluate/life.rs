//! Years of life at what a stage wrote, by the closed form of [`ssd::model::lifetime`].

use ssd::model::lifetime::{Endurance, dwpd_bytes_per_second};

use crate::moment::Moment;
use crate::run::model_drive::ModelDrive;

/// What a drive stands, and what is asked of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Life {
    /// What it is rated for, where anybody knows.
    pub endurance: Option<Endurance>,
    /// Years that it is to last.
    pub min_years: f64,
    /// Bytes that the host sees, at full size.
    pub capacity_bytes: f64,
}

/// How long it lasts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Years {
    /// So long.
    Known(f64),
    /// The drive does not tell what its medium wrote: no longer than this, which takes that for what the host wrote.
    AtMost(f64),
    /// Nobody says what it is rated for.
    Unknown,
}

/// What was written while something was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wearing {
    /// Bytes a second of the host. A scaled drive is as fast as a whole one: this is of both.
    pub host_bytes_per_second: f64,
    /// Write amplification of the drive, where it tells.
    pub dlwa: Option<f64>,
    /// Whether too little was written to tell, so that each operation is taken to write what it did at full speed.
    pub is_carried_over: bool,
}

/// Regions that must have been written: fewer are a matter of chance, and what waits in memory costs no life yet.
const LEAST_REGIONS: f64 = 10.0;

impl Wearing {
    /// Of a part of a run.
    #[must_use]
    pub fn of(counted: &Moment, drive: Option<&ModelDrive>) -> Self {
        let host_bytes = counted.flash.host_bytes.unwrap_or(0) as f64;
        let by_model = drive.zip(counted.drive.as_ref());
        let told = counted.flash.media_bytes.filter(|_| host_bytes > 0.0);
        let dlwa = match by_model {
            Some((drive, stats)) => stats.dlwa(drive.card().space.page_bytes),
            None => told.map(|media_bytes| media_bytes as f64 / host_bytes),
        };
        let host_bytes_per_second = host_bytes / counted.at.as_secs_f64().max(1e-9);
        Self { host_bytes_per_second, dlwa, is_carried_over: false }
    }

    /// Of a part of a run whose beginning, at full speed, wrote as `first` did. A part in which next to nothing was written
    /// would seem to cost nothing.
    #[must_use]
    pub fn of_stage(counted: &Moment, first: &Moment, region_bytes: f64, drive: Option<&ModelDrive>) -> Self {
        if counted.flash.host_bytes.unwrap_or(0) as f64 >= LEAST_REGIONS * region_bytes {
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
    /// How long the drive lasts.
    #[must_use]
    pub fn years(&self, wearing: &Wearing) -> Years {
        let Some(endurance) = self.endurance else { return Years::Unknown };
        match wearing.dlwa {
            Some(dlwa) => Years::Known(endurance.years(wearing.host_bytes_per_second, dlwa)),
            None => Years::AtMost(endurance.years(wearing.host_bytes_per_second, 1.0)),
        }
    }

    /// Capacities of the drive that the host writes in a day.
    #[must_use]
    pub fn drive_writes_a_day(&self, wearing: &Wearing) -> f64 {
        wearing.host_bytes_per_second / dwpd_bytes_per_second(self.capacity_bytes, 1.0)
    }

    /// Operations a second at which the drive lasts as long as is asked for, if each writes as much as those that were counted.
    #[must_use]
    pub fn rate(&self, counted: &Moment, drive: Option<&ModelDrive>) -> Option<f64> {
        let wearing = Wearing::of(counted, drive);
        let may_write = self.endurance?.host_bytes_per_second(self.min_years, wearing.dlwa.unwrap_or(1.0));
        let ops_per_second = counted.counts.ops as f64 / counted.at.as_secs_f64().max(1e-9);
        let rate = ops_per_second * may_write / wearing.host_bytes_per_second;
        rate.is_finite().then_some(rate)
    }
}

impl Years {
    /// The figure, and whether it is only a bound.
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
    fn a_drive_that_does_not_tell_lasts_no_longer_than_one_that_writes_what_it_is_told() {
        let endurance = Some(Endurance::from_dwpd(1e12, 1.0, 5.0, 1.0));
        let life = Life { endurance, min_years: 5.0, capacity_bytes: 1e12 };
        let wearing =
            Wearing { host_bytes_per_second: 1e12 / 86_400.0, dlwa: Some(2.0), is_carried_over: false };
        let close = |years: Years, expected: f64| (years.figure().unwrap().0 - expected).abs() < 1e-9;
        assert!(close(life.years(&wearing), 2.5) && (life.drive_writes_a_day(&wearing) - 1.0).abs() < 1e-9);
        let twice = Life { capacity_bytes: 2e12, ..life };
        assert!((twice.drive_writes_a_day(&wearing) - 0.5).abs() < 1e-9);
        let untold = life.years(&Wearing { dlwa: None, ..wearing });
        assert!(matches!(untold, Years::AtMost(_)) && close(untold, 5.0));
        assert_eq!(Life { endurance: None, ..life }.years(&wearing), Years::Unknown);
    }

    /// So many operations in so many seconds.
    fn counted(ops: u64, seconds: u64, host_bytes: u64, media_bytes: Option<u64>) -> Moment {
        let mut counted = Moment { at: std::time::Duration::from_secs(seconds), ..Moment::default() };
        counted.counts.ops = ops;
        (counted.flash.host_bytes, counted.flash.media_bytes) = (Some(host_bytes), media_bytes);
        counted
    }

    #[test]
    fn what_was_written_is_told_by_the_second_and_amplified_where_the_drive_tells() {
        for (host_bytes, media_bytes, dlwa) in [
            (20_000, Some(50_000), Some(2.5)),
            (20_000, None, None),
            // What was written before comes to the medium, and nothing is no ratio of nothing.
            (0, Some(50_000), None),
        ] {
            let wearing = Wearing::of(&counted(1, 10, host_bytes, media_bytes), None);
            let host_bytes_per_second = host_bytes as f64 / 10.0;
            assert_eq!(wearing, Wearing { host_bytes_per_second, dlwa, is_carried_over: false });
        }
    }

    #[test]
    fn a_stage_that_wrote_next_to_nothing_does_not_seem_to_cost_nothing() {
        let first = counted(100_000, 10, 1_000_000_000, Some(3_000_000_000));
        let stage = |host_bytes| {
            Wearing::of_stage(&counted(2000, 20, host_bytes, Some(host_bytes)), &first, 1e6, None)
        };
        // A hundred operations a second, of ten thousand bytes each as at first; what less than ten regions say is chance.
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
    fn a_rate_is_as_much_lower_as_more_is_written_than_the_drive_lasts_for() {
        let endurance = Some(Endurance::from_dwpd(1e12, 1.0, 5.0, 1.0));
        let life = Life { endurance, min_years: 5.0, capacity_bytes: 1e12 };
        // Eight capacities in two days at 1000 operations a second, where one a day is what it lasts for.
        let (ops, seconds) = (172_800_000, 172_800);
        let rate = |life: Life, media_bytes| {
            life.rate(&counted(ops, seconds, 8_000_000_000_000, media_bytes), None).map(f64::round)
        };
        assert_eq!(rate(life, None), Some(250.0));
        assert_eq!(rate(life, Some(16_000_000_000_000)), Some(125.0), "the medium writes twice as much");
        assert_eq!(rate(Life { min_years: 10.0, ..life }, None), Some(125.0));
        assert_eq!(rate(Life { endurance: None, ..life }, None), None);
        assert_eq!(
            life.rate(&counted(ops, seconds, 0, None), None),
            None,
            "who writes nothing lasts for ever"
        );
    }
}
