//! Verifying a volume, changing nothing.

use std::sync::Arc;

use device::timer::Timer;
use device::{Device, IoBuffer, Request};

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::read::crc32c;
use super::recovery::verified;
use super::superblock::{self, Copies};
use super::{Recovery, Shared, Traces, Volume};
use crate::sets::Slot;

/// Problems that are told by name; the rest are only counted.
const MOST_TOLD: usize = 100;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What opening the volume would find; or as what it would be refused, of which the last of the problems has the words.
    pub found: std::result::Result<Recovery, VolumeErrorKind>,
    /// Blocks whose bytes were read: all of them in full mode, none otherwise.
    pub blocks_read: u64,
    /// Of those, clean ones, which were compared with the disk.
    pub blocks_compared: u64,
    /// What is wrong, the first hundred in words.
    pub problems: Vec<String>,
    /// How much is wrong.
    pub problem_count: u64,
}

impl Check {
    fn new() -> Self {
        let found = Ok(Recovery::default());
        Self { found, blocks_read: 0, blocks_compared: 0, problems: Vec::new(), problem_count: 0 }
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    /// The volume would not be opened: a finding, unless it is the devices that keep it from being read.
    fn refused(mut self, error: VolumeError) -> Result<Self> {
        if !matches!(error.kind(), VolumeErrorKind::Damaged | VolumeErrorKind::WrongDisk) {
            return Err(error);
        }
        self.found = Err(error.kind());
        self.add(error.to_string());
        Ok(self)
    }

    fn add(&mut self, problem: String) {
        self.problem_count += 1;
        if self.problems.len() < MOST_TOLD {
            self.problems.push(problem);
        }
    }
}

impl Volume {
    /// Reads superblocks, table and journal and compares some clean blocks with the disk, as opening would; in full mode
    /// every cached block: its checksum, if they are kept, and whether the disk has the same of those that are clean.
    /// Nothing is written. The volume must not be open.
    ///
    /// # Errors
    /// What keeps it from being read at all: no volume, a newer format, a device that fails. Damage is a finding.
    pub async fn check(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
        full: bool,
    ) -> Result<Check> {
        Self::check_of(flash, disk, timer, full, Traces::default()).await
    }

    /// The same, of a disk of which the system knows something.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn check_of(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
        full: bool,
        traces: Traces,
    ) -> Result<Check> {
        let mut check = Check::new();
        // Half written is what a crash leaves, and opening mends.
        if superblock::copies(&*flash).await == Copies::Damaged {
            check.add("one of the two superblocks is damaged or cannot be read; the other is used".into());
        }
        let shared = match verified(flash, disk, timer, traces).await {
            Ok((shared, found, _)) => {
                check.found = Ok(found);
                if found.damaged_blocks > 0 {
                    check.add(format!(
                        "{} of the blocks that the last acknowledged flush covers are damaged on flash: reads of them fail \
                         until they are written again",
                        found.damaged_blocks
                    ));
                }
                shared
            }
            Err(error) => return check.refused(error),
        };
        if full {
            shared.check_blocks(&mut check).await?;
            return Ok(check);
        }
        match shared.check_samples().await {
            Ok(bad) => bad.into_iter().for_each(|problem| check.add(problem)),
            Err(error) => return check.refused(error),
        }
        Ok(check)
    }
}

impl Shared {
    async fn check_blocks(&self, check: &mut Check) -> Result<()> {
        for slot in (0..self.layout.slots()).map(Slot) {
            let word = self.state.lock().sets.word(slot);
            let Some(block) = word.block() else { continue };
            check.blocks_read += 1;
            if let Some(problem) = self.page_problem(slot).await {
                check.add(format!("block {block}: {problem}"));
            } else if !word.is_dirty() {
                check.blocks_compared += 1;
                if !self.is_same_on_disk(slot, block).await? {
                    check.add(format!("block {block} is clean on flash, but differs from the disk"));
                }
            }
        }
        Ok(())
    }

    async fn page_problem(&self, slot: Slot) -> Option<String> {
        let copy = self.state.lock().copy(slot)?;
        let buffer = IoBuffer::zeroed(self.layout.block_bytes as usize);
        let offset = self.layout.page_offset(copy.page);
        match self.flash.start(Request::Read { offset, buffer }).await {
            Err(error) => Some(format!("page {} cannot be read: {error}", copy.page)),
            Ok(page) => {
                let crc = crc32c(&page.expect("a read gives its buffer back"));
                let is_wrong = copy.crc.is_some_and(|known| known != crc);
                is_wrong.then(|| format!("the checksum of page {} is wrong", copy.page))
            }
        }
    }
}
