//! Queries and management commands of a drive.

use std::fs::File;
use std::io;
use std::path::Path;

use super::bytes::Malformed;
use super::command::{Command, deallocated_range};
use super::fdp::{Configurations, Event, Feature, HandleUse, PlacementStatus, Statistics, decode_handle_use};
use super::identify::{Controller, IDENTIFY_BYTES, Namespace};
use super::ioctl::{Data, Queue, Transport, namespace_number};
use super::log_pages::{EnduranceGroup, LOG_PAGE_BYTES, OcpSmart, Smart};
use crate::IoBuffer;

/// Bytes of a log page per command, a length that every drive transfers.
const LOG_CHUNK_BYTES: usize = 4096;

/// The longest log page that is read: a drive's length is not trusted to fit in memory.
const MAX_LOG_BYTES: usize = 1 << 20;

/// A namespace of a drive, and the controller behind it.
#[derive(Debug)]
pub struct Drive<T = File> {
    transport: T,
    namespace: u32,
}

impl Drive<File> {
    /// Opens the namespace at `path`, a generic (`/dev/ng0n1`) or block device, for queries.
    ///
    /// # Errors
    /// No such path, no permission, or no NVMe namespace.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::open(path)?;
        let namespace = namespace_number(&file)?;
        Ok(Self { transport: file, namespace })
    }
}

impl<T: Transport> Drive<T> {
    /// The namespace with this number behind `transport`.
    pub fn new(transport: T, namespace: u32) -> Self {
        Self { transport, namespace }
    }

    /// The namespace's number.
    #[must_use]
    pub fn namespace_id(&self) -> u32 {
        self.namespace
    }

    /// The transport to the drive.
    #[must_use]
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Identifies the controller.
    ///
    /// # Errors
    /// The error status of the drive, an error of the system, or an invalid data structure.
    pub fn controller(&self) -> io::Result<Controller> {
        let page = self.receive(Queue::Admin, &Command::identify_controller(), IDENTIFY_BYTES)?;
        Controller::decode(&page).map_err(invalid)
    }

    /// Identifies the namespace.
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    pub fn namespace(&self) -> io::Result<Namespace> {
        let command = Command::identify_namespace(self.namespace);
        Namespace::decode(&self.receive(Queue::Admin, &command, IDENTIFY_BYTES)?).map_err(invalid)
    }

    /// SMART (log page 02h). Needs `CAP_SYS_ADMIN`, as do all log pages.
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    pub fn smart(&self) -> io::Result<Smart> {
        Smart::decode(&self.log(0x02, 0, 0, LOG_PAGE_BYTES)?).map_err(invalid)
    }

    /// Endurance group information (log page 09h).
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    pub fn endurance_group(&self, group: u16) -> io::Result<EnduranceGroup> {
        EnduranceGroup::decode(&self.log(0x09, 0, group, LOG_PAGE_BYTES)?).map_err(invalid)
    }

    /// OCP extended SMART (log page C0h); `None` if the page belongs to another vendor.
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    pub fn ocp_smart(&self) -> io::Result<Option<OcpSmart>> {
        OcpSmart::decode(&self.log(0xC0, 0, 0, LOG_PAGE_BYTES)?).map_err(invalid)
    }

    /// Whether placement is enabled in `group`, and its configuration (feature 1Dh). Needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    pub fn fdp_feature(&self, group: u16) -> io::Result<Feature> {
        let result = self.transport.run(Queue::Admin, &Command::get_fdp_feature(group), Data::None)?;
        Ok(Feature::decode(result as u32))
    }

    /// The supported placement configurations of `group` (log page 20h), whether enabled or not.
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    pub fn fdp_configurations(&self, group: u16) -> io::Result<Configurations> {
        let header = self.log(0x20, 0, group, Configurations::HEADER_BYTES)?;
        let whole = Configurations::decode(&header).map_err(invalid)?.page_bytes as usize;
        Configurations::decode(&self.log(0x20, 0, group, whole)?).map_err(invalid)
    }

    /// The usage of each reclaim unit handle of `group` (log page 21h).
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    pub fn fdp_handle_use(&self, group: u16) -> io::Result<Vec<HandleUse>> {
        let header = self.log(0x21, 0, group, 8)?;
        let count = usize::from(u16::from_le_bytes([header[0], header[1]]));
        decode_handle_use(&self.log(0x21, 0, group, 8 + 8 * count)?).map_err(invalid)
    }

    /// Host and media bytes of `group` (log page 22h).
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    pub fn fdp_statistics(&self, group: u16) -> io::Result<Statistics> {
        Statistics::decode(&self.log(0x22, 0, group, Statistics::BYTES)?).map_err(invalid)
    }

    /// Placement events of `group` caused by hosts (`by_host`) or by the controller (log page 23h).
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    pub fn fdp_events(&self, group: u16, by_host: bool) -> io::Result<Vec<Event>> {
        let source = u8::from(by_host);
        let header = self.log(0x23, source, group, Event::BYTES)?;
        let count = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let len = Event::BYTES.saturating_mul(count.saturating_add(1));
        Event::decode_all(&self.log(0x23, source, group, len)?).map_err(invalid)
    }

    /// The namespace's placement identifiers; the first is the default. Takes two commands, because the length of the reply must be known
    /// exactly before the whole is requested.
    ///
    /// # Errors
    /// As [`controller`](Self::controller); [`Status::FDP_DISABLED`](super::Status::FDP_DISABLED) where placement is off.
    pub fn placement_status(&self) -> io::Result<Vec<PlacementStatus>> {
        let ask = |len| self.receive(Queue::Io, &Command::placement_status(self.namespace, len), len);
        let header = ask(PlacementStatus::HEADER_BYTES)?;
        let count = usize::from(PlacementStatus::count(&header).map_err(invalid)?);
        let whole = ask(PlacementStatus::HEADER_BYTES + PlacementStatus::BYTES * count)?;
        PlacementStatus::decode_all(&whole).map_err(invalid)
    }

    /// Switches the placement identifiers to new reclaim units; the rest of the current units is padded. Needs the namespace open for
    /// writing.
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    pub fn update_placement(&self, placement_ids: &[u16]) -> io::Result<()> {
        let Ok(count) = u16::try_from(placement_ids.len()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if count == 0 {
            return Ok(());
        }
        let bytes: Vec<u8> = placement_ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let command = Command::placement_update(self.namespace, count);
        self.transport.run(Queue::Io, &command, Data::To(&IoBuffer::copy_of(&bytes)))?;
        Ok(())
    }

    /// Deallocates `blocks` from `first` on, in ranges of at most `longest` blocks.
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    pub fn deallocate(&self, first: u64, blocks: u64, longest: u32) -> io::Result<()> {
        let (mut first, end) = (first, first + blocks);
        while first < end {
            let part = u32::try_from(end - first).unwrap_or(u32::MAX).min(longest.max(1));
            let range = IoBuffer::copy_of(&deallocated_range(first, part));
            self.transport.run(Queue::Io, &Command::deallocate(self.namespace, 1), Data::To(&range))?;
            first += u64::from(part);
        }
        Ok(())
    }

    /// The first `len` bytes of a log page.
    fn log(&self, log: u8, specific: u8, group: u16, len: usize) -> io::Result<Vec<u8>> {
        let len = len.next_multiple_of(4).min(MAX_LOG_BYTES);
        let mut page = Vec::with_capacity(len);
        while page.len() < len {
            let part = (len - page.len()).min(LOG_CHUNK_BYTES);
            let command = Command::get_log(log, specific, group, page.len() as u64, part);
            page.extend_from_slice(&self.receive(Queue::Admin, &command, part)?);
        }
        Ok(page)
    }

    fn receive(&self, queue: Queue, command: &Command, len: usize) -> io::Result<IoBuffer> {
        let mut buffer = IoBuffer::zeroed(len);
        self.transport.run(queue, command, Data::From(&mut buffer))?;
        Ok(buffer)
    }
}

fn invalid(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}
