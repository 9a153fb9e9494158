//! Bytes by host and media, from the best source that a drive has.
//!
//! Media bytes come from placement statistics (22h, to the byte, of the endurance group since placement was turned on),
//! from OCP SMART (C0h, to the byte, of the drive's life) or from endurance group information (09h, to 10^9 bytes). Each has
//! its own companion for the host's bytes: a ratio across sources would compare different spans.

use std::fmt;
use std::io;
use std::path::Path;

use super::readiness::endurance_group;
use super::{Drive, Location, Transport};

/// What a drive tells about its wear. `None` is unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wear {
    /// Bytes written.
    pub written: Option<Written>,
    /// Bytes of media erased, where placement statistics tell.
    pub media_erased_bytes: Option<u128>,
    /// Life used, of 100.
    pub life_used_percent: Option<u8>,
    /// Bytes that may be written in its life.
    pub endurance_estimate_bytes: Option<u128>,
    /// Temperature in degrees Celsius.
    pub temperature_celsius: Option<i32>,
    /// Hours powered on.
    pub power_on_hours: Option<u128>,
    /// What was not told, and why.
    pub untold: Vec<(&'static str, String)>,
}

/// Bytes written, by one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Who tells.
    pub source: Source,
    /// By hosts; none where the source leaves it out.
    pub host_bytes: Option<u128>,
    /// By the drive to its media; none where the source leaves it out.
    pub media_bytes: Option<u128>,
}

/// Who tells how much was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// FDP statistics, log page 22h.
    Placement,
    /// OCP SMART, log page C0h, and for the host's bytes SMART, log page 02h.
    Ocp,
    /// Endurance group information, log page 09h.
    EnduranceGroup,
    /// SMART, log page 02h: no media bytes.
    Smart,
}

impl Source {
    /// The step in which its counters move; the host's and the media's differ.
    #[must_use]
    pub fn resolution_bytes(self) -> (u64, u64) {
        match self {
            Self::Placement => (1, 1),
            Self::Ocp => (512_000, 1),
            Self::EnduranceGroup => (1_000_000_000, 1_000_000_000),
            Self::Smart => (512_000, 512_000),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Placement => "FDP statistics (22h)",
            Self::Ocp => "OCP SMART (C0h)",
            Self::EnduranceGroup => "endurance group (09h)",
            Self::Smart => "SMART (02h)",
        })
    }
}

impl Written {
    /// Media bytes by host bytes since `earlier`; none if the host wrote nothing in between, a counter is unknown or went
    /// back, or the source changed.
    #[must_use]
    pub fn write_amplification_since(&self, earlier: &Self) -> Option<f64> {
        let host = self.host_bytes?.checked_sub(earlier.host_bytes?)?;
        let media = self.media_bytes?.checked_sub(earlier.media_bytes?)?;
        (self.source == earlier.source && host > 0).then(|| media as f64 / host as f64)
    }

    /// Media bytes by host bytes over the source's whole span.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let nothing = Self { host_bytes: Some(0), media_bytes: Some(0), ..*self };
        self.write_amplification_since(&nothing)
    }
}

impl Wear {
    /// Asks `drive`; `group` is the namespace's endurance group, if it has one.
    #[must_use]
    pub fn read<T: Transport>(drive: &Drive<T>, group: Option<u16>) -> Self {
        let mut wear = Self::default();
        let smart = wear.told("SMART (02h)", drive.smart());
        let placement = group.and_then(|it| wear.told("FDP statistics (22h)", drive.fdp_statistics(it)));
        let ocp = wear.told("OCP SMART (C0h)", drive.ocp_smart()).flatten();
        let endurance = group.and_then(|it| wear.told("endurance group (09h)", drive.endurance_group(it)));
        let smart_host_bytes = smart.and_then(|it| it.host_written_bytes);
        let by_placement = placement.map(|it| Written {
            source: Source::Placement,
            host_bytes: Some(it.host_written_bytes),
            media_bytes: Some(it.media_written_bytes),
        });
        let by_ocp = ocp.map(|it| Written {
            source: Source::Ocp,
            host_bytes: smart_host_bytes,
            media_bytes: Some(it.media_written_bytes),
        });
        let by_group = endurance.filter(|it| it.media_written_bytes.is_some()).map(|it| Written {
            source: Source::EnduranceGroup,
            host_bytes: it.host_written_bytes,
            media_bytes: it.media_written_bytes,
        });
        let by_smart =
            smart.map(|_| Written { source: Source::Smart, host_bytes: smart_host_bytes, media_bytes: None });
        wear.written = by_placement.or(by_ocp).or(by_group).or(by_smart);
        wear.media_erased_bytes = placement.map(|it| it.media_erased_bytes);
        wear.life_used_percent = smart.map(|it| it.life_used_percent);
        wear.endurance_estimate_bytes = ocp
            .and_then(|it| it.endurance_estimate_bytes)
            .or(endurance.and_then(|it| it.endurance_estimate_bytes));
        wear.temperature_celsius = smart.and_then(|it| it.temperature_celsius);
        wear.power_on_hours = smart.map(|it| it.power_on_hours);
        wear
    }

    fn told<V>(&mut self, what: &'static str, answer: io::Result<V>) -> Option<V> {
        answer.map_err(|error| self.untold.push((what, error.to_string()))).ok()
    }
}

/// Media bytes since a device was opened.
#[derive(Debug)]
pub(crate) struct MediaCounter {
    source: Source,
    group: Option<u16>,
    start_bytes: u128,
}

impl MediaCounter {
    /// The best counter that `drive` has and shows us; none without.
    pub(crate) fn find<T: Transport>(drive: &Drive<T>, group: Option<u16>) -> Option<Self> {
        [Source::Placement, Source::Ocp, Source::EnduranceGroup].into_iter().find_map(|source| {
            let start_bytes = media_bytes(drive, source, group)?;
            Some(Self { source, group, start_bytes })
        })
    }

    /// Bytes since then; none if the drive does not tell any more.
    pub(crate) fn bytes<T: Transport>(&self, drive: &Drive<T>) -> Option<u64> {
        let now = media_bytes(drive, self.source, self.group)?;
        u64::try_from(now.checked_sub(self.start_bytes)?).ok()
    }
}

/// The way to the media bytes of a block device: of its drive, or of all that a RAID or a logical volume is made of.
#[derive(Debug)]
pub struct MediaProbe {
    drives: Vec<(Drive, MediaCounter)>,
}

impl MediaProbe {
    /// Begins to count at `path`, a namespace, a partition of one, or a block device made of them.
    ///
    /// # Errors
    /// The path is something else, may not be asked, or has a drive that does not tell.
    pub fn open(path: &Path) -> io::Result<Self> {
        // What keeps the path itself from being looked at is the better reason.
        std::fs::metadata(path)?;
        let namespaces = Location::beneath(path);
        if namespaces.is_empty() {
            return Err(io::Error::other("it is not an NVMe namespace or a device made of NVMe namespaces"));
        }
        Ok(Self { drives: namespaces.iter().map(|it| Self::count(it)).collect::<io::Result<_>>()? })
    }

    fn count(path: &Path) -> io::Result<(Drive, MediaCounter)> {
        let drive = Drive::open(path)?;
        let group = endurance_group(&drive.controller()?, &drive.namespace()?);
        let Some(counter) = MediaCounter::find(&drive, group) else {
            let wear = Wear::read(&drive, group);
            let why = wear.untold.first().map_or_else(String::new, |(what, why)| format!(": {what}: {why}"));
            return Err(io::Error::other(format!(
                "{} does not report the bytes its media wrote{why}",
                path.display()
            )));
        };
        Ok((drive, counter))
    }

    /// Bytes since then; none if a drive does not tell any more.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.drives.iter().map(|(drive, counter)| counter.bytes(drive)).sum()
    }
}

fn media_bytes<T: Transport>(drive: &Drive<T>, source: Source, group: Option<u16>) -> Option<u128> {
    match source {
        Source::Placement => drive.fdp_statistics(group?).ok().map(|it| it.media_written_bytes),
        Source::Ocp => drive.ocp_smart().ok()?.map(|it| it.media_written_bytes),
        Source::EnduranceGroup => drive.endurance_group(group?).ok()?.media_written_bytes,
        Source::Smart => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::fake::Fake;

    #[test]
    fn placement_statistics_come_before_all_others() {
        let fake = Fake::new();
        fake.state.lock().statistics = (100, 130);
        let drive = Drive::new(fake, 1);
        let wear = Wear::read(&drive, Some(1));
        let written = wear.written.unwrap();
        assert_eq!(written.source, Source::Placement);
        assert_eq!((written.host_bytes, written.write_amplification()), (Some(100), Some(1.3)));
        assert!(wear.untold.iter().any(|(what, _)| what.starts_with("OCP")), "{:?}", wear.untold);
    }

    #[test]
    fn a_drive_that_counts_only_for_the_host_has_unknown_media_bytes() {
        let fake = Fake::new();
        fake.state.lock().fdp_enabled = false;
        let drive = Drive::new(fake, 1);
        let written = Wear::read(&drive, Some(1)).written.unwrap();
        assert_eq!((written.source, written.media_bytes), (Source::Smart, None));
        assert_eq!(written.write_amplification(), None);
        assert!(MediaCounter::find(&drive, Some(1)).is_none());
    }

    #[test]
    fn without_privilege_everything_is_unknown_and_says_so() {
        let fake = Fake::new();
        fake.state.lock().privileged = false;
        let wear = Wear::read(&Drive::new(fake, 1), Some(1));
        assert_eq!((wear.written, wear.life_used_percent), (None, None));
        assert_eq!(wear.untold.len(), 4);
    }

    #[test]
    fn media_bytes_count_from_opening() {
        let fake = Fake::new();
        fake.state.lock().statistics = (100, 130);
        let drive = Drive::new(fake, 1);
        let counter = MediaCounter::find(&drive, Some(1)).unwrap();
        drive.transport().state.lock().statistics = (200, 300);
        assert_eq!(counter.bytes(&drive), Some(170));
    }
}
