//! Verifying a volume without changing it.

use std::sync::Arc;

use device::Device;
use device::checksum::crc32c;
use device::timer::Timer;

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::recovery::verified;
use super::samples::{check_samples, is_same_on_disk};
use super::shared::Shared;
use super::superblock::{self, Copies};
use super::{OsIdentity, Recovery, Volume};
use crate::sets::Slot;

/// Problems that are described; further ones are only counted.
const MAX_DESCRIBED: usize = 100;

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What opening would recover, or the kind of error with which it would fail; the last problem has the message.
    pub found: std::result::Result<Recovery, VolumeErrorKind>,
    /// Blocks read: all in full mode, otherwise none.
    pub blocks_read: u64,
    /// Clean blocks among them, which were compared with the disk.
    pub blocks_compared: u64,
    /// Descriptions of the first hundred problems.
    pub problems: Vec<String>,
    /// Number of problems.
    pub problem_count: u64,
}

impl Check {
    fn new() -> Self {
        let found = Ok(Recovery::default());
        Self { found, blocks_read: 0, blocks_compared: 0, problems: Vec::new(), problem_count: 0 }
    }

    /// Whether no problem was found.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    /// Records that opening would fail. Damage is a finding; a failing device is an error.
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
        if self.problems.len() < MAX_DESCRIBED {
            self.problems.push(problem);
        }
    }
}

impl Volume {
    /// Reads superblocks, table and journal and compares some clean blocks with the disk, as opening does. Full mode reads every cached
    /// block, verifies its checksum if kept, and compares clean ones with the disk. Writes nothing. The volume must not be open.
    ///
    /// # Errors
    /// Errors that prevent the check: no volume, a newer format, a failing device. Damage is a finding.
    pub async fn check(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
        full: bool,
    ) -> Result<Check> {
        Self::check_of(flash, disk, timer, full, OsIdentity::default()).await
    }

    /// As [`check`](Self::check), given the operating system's identity of the disk.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn check_of(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
        full: bool,
        os_identity: OsIdentity,
    ) -> Result<Check> {
        let mut check = Check::new();
        // Copies of different age are normal after a crash, and opening repairs them.
        if superblock::copies(&*flash).await == Copies::Damaged {
            check.add("one of the two superblocks is damaged or cannot be read; the other is used".into());
        }
        let inner = match verified(flash, disk, timer, os_identity).await {
            Ok((inner, found, _)) => {
                check.found = Ok(found);
                if found.damaged_blocks > 0 {
                    check.add(format!(
                        "{} of the blocks that the last acknowledged flush covers are damaged on flash: reads of them fail \
                         until they are written again",
                        found.damaged_blocks
                    ));
                }
                inner
            }
            Err(error) => return check.refused(error),
        };
        if full {
            check_blocks(&inner.shared, &mut check).await?;
            return Ok(check);
        }
        match check_samples(&inner.shared).await {
            Ok(bad) => bad.into_iter().for_each(|problem| check.add(problem)),
            Err(error) => return check.refused(error),
        }
        Ok(check)
    }
}

async fn check_blocks(shared: &Shared, check: &mut Check) -> Result<()> {
    for slot in (0..shared.layout.slots()).map(Slot) {
        let word = shared.state.lock().sets.word(slot);
        let Some(block) = word.block() else { continue };
        check.blocks_read += 1;
        if let Some(problem) = page_problem(shared, slot).await {
            check.add(format!("block {block}: {problem}"));
        } else if !word.is_dirty() {
            check.blocks_compared += 1;
            if !is_same_on_disk(shared, slot, block).await? {
                check.add(format!("block {block} is clean on flash, but differs from the disk"));
            }
        }
    }
    Ok(())
}

async fn page_problem(shared: &Shared, slot: Slot) -> Option<String> {
    let copy = shared.state.lock().map.copy(slot)?;
    let offset = shared.layout.page_offset(copy.page);
    match shared.flash.read(offset, shared.layout.block_bytes as usize).await {
        Err(error) => Some(format!("page {} cannot be read: {error}", copy.page)),
        Ok(page) => {
            let crc = crc32c(&page);
            let is_wrong = copy.crc.is_some_and(|known| known != crc);
            is_wrong.then(|| format!("the checksum of page {} is wrong", copy.page))
        }
    }
}
