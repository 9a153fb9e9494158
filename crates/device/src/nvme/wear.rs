//! Bytes written by host and media, from the best source of a drive.
//!
//! Media bytes come from placement statistics (22h, exact, of the endurance group since placement was enabled), from OCP SMART (C0h, exact,
//! over the drive's life) or from endurance group information (09h, to the nearest 10^9 bytes). Each is paired with its own host bytes: a
//! ratio across sources would compare different time spans.

use std::fmt;
use std::io;
use std::path::Path;

use super::readiness::endurance_group;
use super::{Drive, Location, Transport};

/// Wear information of a drive. `None` is unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wear {
    /// Bytes written.
    pub written: Option<Written>,
    /// Bytes of media erased, if placement statistics are available.
    pub media_erased_bytes: Option<u128>,
    /// Life used in percent.
    pub life_used_percent: Option<u8>,
    /// Bytes that can be written in total.
    pub endurance_estimate_bytes: Option<u128>,
    /// Temperature in degrees Celsius.
    pub temperature_celsius: Option<i32>,
    /// Hours powered on.
    pub power_on_hours: Option<u128>,
    /// Unavailable information, with the reason.
    pub unreported: Vec<(&'static str, String)>,
}

/// Bytes written, according to one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The source.
    pub source: Source,
    /// Bytes written by hosts; `None` if the source does not report them.
    pub host_bytes: Option<u128>,
    /// Bytes written to the media; `None` if the source does not report them.
    pub media_bytes: Option<u128>,
}

/// Sources of the written bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// FDP statistics, log page 22h.
    Placement,
    /// OCP SMART, log page C0h, with host bytes of SMART, log page 02h.
    Ocp,
    /// Endurance group information, log page 09h.
    EnduranceGroup,
    /// SMART, log page 02h: no media bytes.
    Smart,
}

impl Source {
    /// Resolution of its host and media counters.
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
    /// Media bytes / host bytes since `earlier`; `None` if the host wrote nothing in between, a counter is unknown or decreased, or the
    /// source changed.
    #[must_use]
    pub fn write_amplification_since(&self, earlier: &Self) -> Option<f64> {
        let host = self.host_bytes?.checked_sub(earlier.host_bytes?)?;
        let media = self.media_bytes?.checked_sub(earlier.media_bytes?)?;
        (self.source == earlier.source && host > 0).then(|| media as f64 / host as f64)
    }

    /// Media bytes / host bytes over the source's whole time span.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let nothing = Self { host_bytes: Some(0), media_bytes: Some(0), ..*self };
        self.write_amplification_since(&nothing)
    }
}

impl Wear {
    /// Queries `drive`; `group` is the namespace's endurance group, if it has one.
    #[must_use]
    pub fn read<T: Transport>(drive: &Drive<T>, group: Option<u16>) -> Self {
        let mut wear = Self::default();
        let smart = wear.known("SMART (02h)", drive.smart());
        let placement = group.and_then(|it| wear.known("FDP statistics (22h)", drive.fdp_statistics(it)));
        let ocp = wear.known("OCP SMART (C0h)", drive.ocp_smart()).flatten();
        let endurance = group.and_then(|it| wear.known("endurance group (09h)", drive.endurance_group(it)));
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

    fn known<V>(&mut self, what: &'static str, answer: io::Result<V>) -> Option<V> {
        answer.map_err(|error| self.unreported.push((what, error.to_string()))).ok()
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
    /// The best available counter of `drive`; `None` if there is none.
    pub(crate) fn find<T: Transport>(drive: &Drive<T>, group: Option<u16>) -> Option<Self> {
        [Source::Placement, Source::Ocp, Source::EnduranceGroup].into_iter().find_map(|source| {
            let start_bytes = media_bytes(drive, source, group)?;
            Some(Self { source, group, start_bytes })
        })
    }

    /// Bytes since then; `None` if the drive no longer reports them.
    pub(crate) fn bytes<T: Transport>(&self, drive: &Drive<T>) -> Option<u64> {
        let now = media_bytes(drive, self.source, self.group)?;
        u64::try_from(now.checked_sub(self.start_bytes)?).ok()
    }
}

/// Media counters of a block device: of its drive, or of all drives of a RAID or logical volume.
#[derive(Debug)]
pub struct MediaProbe {
    drives: Vec<(Drive, MediaCounter)>,
}

impl MediaProbe {
    /// Starts to count at `path`, a namespace, a partition of one, or a block device made of them.
    ///
    /// # Errors
    /// The path is another kind of file, is not accessible, or has a drive that does not report media bytes.
    pub fn open(path: &Path) -> io::Result<Self> {
        // An error in accessing the path itself is the better reason.
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
            let why =
                wear.unreported.first().map_or_else(String::new, |(what, why)| format!(": {what}: {why}"));
            return Err(io::Error::other(format!(
                "{} does not report the bytes its media wrote{why}",
                path.display()
            )));
        };
        Ok((drive, counter))
    }

    /// Bytes since then; `None` if a drive no longer reports them.
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
    fn placement_statistics_are_preferred_to_smart_and_ocp_logs() {
        let fake = Fake::new();
        fake.state.lock().statistics = (100, 130);
        let drive = Drive::new(fake, 1);
        let wear = Wear::read(&drive, Some(1));
        let written = wear.written.unwrap();
        assert_eq!(written.source, Source::Placement);
        assert_eq!((written.host_bytes, written.write_amplification()), (Some(100), Some(1.3)));
        assert!(wear.unreported.iter().any(|(what, _)| what.starts_with("OCP")), "{:?}", wear.unreported);
    }

    #[test]
    fn drive_with_host_counters_only_has_unknown_media_bytes() {
        let fake = Fake::new();
        fake.state.lock().fdp_enabled = false;
        let drive = Drive::new(fake, 1);
        let written = Wear::read(&drive, Some(1)).written.unwrap();
        assert_eq!((written.source, written.media_bytes), (Source::Smart, None));
        assert_eq!(written.write_amplification(), None);
        assert!(MediaCounter::find(&drive, Some(1)).is_none());
    }

    #[test]
    fn without_privilege_everything_is_unknown_with_reasons() {
        let fake = Fake::new();
        fake.state.lock().privileged = false;
        let wear = Wear::read(&Drive::new(fake, 1), Some(1));
        assert_eq!((wear.written, wear.life_used_percent), (None, None));
        assert_eq!(wear.unreported.len(), 4);
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
