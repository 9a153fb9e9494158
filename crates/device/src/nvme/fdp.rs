//! Flexible Data Placement: its four log pages (20h to 23h), its feature (1Dh) and reclaim unit handle status.
//!
//! Source: NVMe Base specification 2.1 (earlier TP4146). A *reclaim unit* is erased by the drive as a whole; a *reclaim unit handle* is a
//! write position in one; a *placement identifier* names a handle of the namespace in a reclaim group.

use super::bytes::{Malformed, Page, reported};

/// Log page 20h: the configurations that the drive supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configurations {
    /// Bytes of the whole page; the buffer can contain only its beginning.
    pub page_bytes: u32,
    /// Configurations by index, without those beyond the bytes read.
    pub each: Vec<Configuration>,
}

/// A configuration of placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// Whether it is valid for use.
    pub valid: bool,
    /// Reclaim groups.
    pub reclaim_groups: u32,
    /// Placement identifiers that a namespace can have.
    pub max_placement_ids: u32,
    /// Largest number of namespaces.
    pub max_namespaces: u32,
    /// Bytes of a reclaim unit; `None` if not reported.
    pub reclaim_unit_bytes: Option<u64>,
    /// Seconds that a reclaim unit can stay open; `None` without a limit.
    pub time_limit_seconds: Option<u32>,
    /// Isolation of each reclaim unit handle.
    pub handles: Vec<Isolation>,
}

/// Isolation of data of different handles in garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Isolated when written; garbage collection can mix relocated data of different handles.
    Initially,
    /// Persistently isolated: the drive never mixes the data of different handles.
    Persistently,
    /// A type of a later specification.
    Other(u8),
}

impl Configurations {
    /// The header's length, which includes [`page_bytes`](Self::page_bytes).
    pub const HEADER_BYTES: usize = 16;

    /// Decodes log page 20h, or the beginning of it.
    ///
    /// # Errors
    /// [`Malformed`] if the header is incomplete.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let page = Page::of("FDP configurations log page (20h)", bytes, Self::HEADER_BYTES)?;
        let count = usize::from(page.u16(0)) + 1;
        let mut rest = page.rest(Self::HEADER_BYTES);
        let mut each = Vec::new();
        while each.len() < count {
            let Some((configuration, after)) = Configuration::decode(rest) else { break };
            each.push(configuration);
            rest = after;
        }
        Ok(Self { page_bytes: page.u32(4), each })
    }
}

impl Configuration {
    const FIXED_BYTES: usize = 64;

    /// A descriptor and the following bytes; `None` if it is incomplete or its length is invalid.
    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let page = Page::of("FDP configuration descriptor", bytes, Self::FIXED_BYTES).ok()?;
        let (size, handles) = (usize::from(page.u16(0)), usize::from(page.u16(8)));
        if size < Self::FIXED_BYTES + 4 * handles || size > bytes.len() {
            return None;
        }
        let configuration = Self {
            valid: page.u8(2) & (1 << 7) != 0,
            reclaim_groups: page.u32(4),
            max_placement_ids: u32::from(page.u16(10)) + 1,
            max_namespaces: page.u32(12),
            reclaim_unit_bytes: reported(page.u64(16)),
            time_limit_seconds: reported(page.u32(24)),
            handles: (0..handles)
                .map(|handle| Isolation::of(page.u8(Self::FIXED_BYTES + 4 * handle)))
                .collect(),
        };
        Some((configuration, &bytes[size..]))
    }
}

impl Isolation {
    fn of(byte: u8) -> Self {
        match byte {
            1 => Self::Initially,
            2 => Self::Persistently,
            other => Self::Other(other),
        }
    }
}

/// Log page 21h: the usage of each reclaim unit handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandleUse {
    /// Not used.
    Unused,
    /// Requested by a host for a namespace.
    Host,
    /// Selected by the controller for a namespace.
    Controller,
    /// An attribute of a later specification.
    Other(u8),
}

/// Decodes log page 21h by handle, without entries beyond the bytes read.
///
/// # Errors
/// [`Malformed`] if the header is incomplete.
pub fn decode_handle_use(bytes: &[u8]) -> Result<Vec<HandleUse>, Malformed> {
    let page = Page::of("reclaim unit handle usage log page (21h)", bytes, 8)?;
    let used = |descriptor: &[u8; 8]| match descriptor[0] {
        0 => HandleUse::Unused,
        1 => HandleUse::Host,
        2 => HandleUse::Controller,
        other => HandleUse::Other(other),
    };
    let (descriptors, _) = page.rest(8).as_chunks();
    Ok(descriptors.iter().take(page.u16(0).into()).map(used).collect())
}

/// Log page 22h: bytes since the endurance group was set to FDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes written by hosts (HBMW).
    pub host_written_bytes: u128,
    /// Bytes written to the media (MBMW).
    pub media_written_bytes: u128,
    /// Bytes of media erased (MBE).
    pub media_erased_bytes: u128,
}

impl Statistics {
    /// Bytes of the page.
    pub const BYTES: usize = 64;

    /// Decodes log page 22h.
    ///
    /// # Errors
    /// [`Malformed`] if it is too short.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let page = Page::of("FDP statistics log page (22h)", bytes, 48)?;
        Ok(Self {
            host_written_bytes: page.u128(0),
            media_written_bytes: page.u128(16),
            media_erased_bytes: page.u128(32),
        })
    }

    /// Device-level write amplification between `earlier` and now: media bytes / host bytes. `None` if the host wrote nothing in between,
    /// or a counter decreased.
    #[must_use]
    pub fn write_amplification_since(&self, earlier: &Self) -> Option<f64> {
        let host = self.host_written_bytes.checked_sub(earlier.host_written_bytes)?;
        let media = self.media_written_bytes.checked_sub(earlier.media_written_bytes)?;
        (host > 0).then(|| media as f64 / host as f64)
    }
}

/// An event of log page 23h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The type of the event.
    pub kind: EventKind,
    /// The placement identifier, if the event has one.
    pub placement_id: Option<u16>,
    /// The namespace, if the event has one.
    pub namespace: Option<u32>,
    /// Reclaim group and reclaim unit handle, if the event has them.
    pub place: Option<(u16, u8)>,
    /// The drive's timestamp: milliseconds in the low 48 bits, its origin above.
    pub timestamp: u64,
}

/// Types of placement events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A host switched to another reclaim unit before the current one was full.
    UnitNotFullyWritten,
    /// A reclaim unit was open for too long.
    TimeLimitExceeded,
    /// A controller reset changed reclaim units.
    ResetChangedUnits,
    /// A write had an invalid placement identifier.
    InvalidPlacementId,
    /// The controller moved data.
    MediaReallocated,
    /// The controller changed a handle's reclaim unit.
    UnitChangedByController,
    /// A type of a later specification.
    Other(u8),
}

impl Event {
    /// Bytes of the page's header, and of each event.
    pub const BYTES: usize = 64;

    /// Decodes log page 23h, without events beyond the bytes read.
    ///
    /// # Errors
    /// [`Malformed`] if the header is incomplete.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, Malformed> {
        let page = Page::of("FDP events log page (23h)", bytes, Self::BYTES)?;
        let (events, _) = page.rest(Self::BYTES).as_chunks();
        Ok(events.iter().take(page.u32(0) as usize).map(Self::decode).collect())
    }

    fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let page = Page::of("FDP event", bytes, Self::BYTES).expect("the chunk has that length");
        let flags = page.u8(1);
        Self {
            kind: EventKind::of(page.u8(0)),
            placement_id: (flags & 1 != 0).then(|| page.u16(2)),
            namespace: (flags & 2 != 0).then(|| page.u32(12)),
            place: (flags & 4 != 0).then(|| (page.u16(32), page.u8(34))),
            timestamp: page.u64(4),
        }
    }
}

impl EventKind {
    fn of(byte: u8) -> Self {
        match byte {
            0x00 => Self::UnitNotFullyWritten,
            0x01 => Self::TimeLimitExceeded,
            0x02 => Self::ResetChangedUnits,
            0x03 => Self::InvalidPlacementId,
            0x80 => Self::MediaReallocated,
            0x81 => Self::UnitChangedByController,
            other => Self::Other(other),
        }
    }
}

/// Feature 1Dh of an endurance group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Whether placement is enabled.
    pub enabled: bool,
    /// Index of the selected configuration in log page 20h.
    pub configuration: u8,
}

impl Feature {
    /// Decodes the completion's double word 0.
    #[must_use]
    pub fn decode(result: u32) -> Self {
        Self { enabled: result & 1 != 0, configuration: (result >> 8) as u8 }
    }
}

/// A placement identifier of a namespace, and its reclaim unit (I/O Management Receive, operation 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacementStatus {
    /// The identifier in a write's directive. Its upper bits are the reclaim group; their number depends on the configuration, so
    /// identifiers must come from here.
    pub placement_id: u16,
    /// The reclaim unit handle.
    pub handle: u16,
    /// Seconds left before the drive may close the reclaim unit; none without a limit.
    pub time_left_seconds: Option<u32>,
    /// Logical blocks that still fit into the reclaim unit.
    pub blocks_left: u64,
}

impl PlacementStatus {
    /// Bytes of the reply's header, which includes the count.
    pub const HEADER_BYTES: usize = 16;

    /// Bytes of each entry.
    pub const BYTES: usize = 32;

    /// Number of entries, from the reply's header.
    ///
    /// # Errors
    /// [`Malformed`] if it is too short.
    pub fn count(bytes: &[u8]) -> Result<u16, Malformed> {
        Ok(Page::of("reclaim unit handle status", bytes, Self::HEADER_BYTES)?.u16(14))
    }

    /// Decodes the reply, without entries beyond the bytes read.
    ///
    /// # Errors
    /// [`Malformed`] if the header is incomplete.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, Malformed> {
        let count = Self::count(bytes)?;
        let (descriptors, _) = bytes[Self::HEADER_BYTES..].as_chunks();
        Ok(descriptors.iter().take(count.into()).map(Self::decode).collect())
    }

    fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let page = Page::of("placement status", bytes, Self::BYTES).expect("the chunk has that length");
        Self {
            placement_id: page.u16(0),
            handle: page.u16(2),
            time_left_seconds: reported(page.u32(4)),
            blocks_left: page.u64(8),
        }
    }
}

#[cfg(test)]
mod tests;
