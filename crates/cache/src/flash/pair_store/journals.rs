//! Recovery by the journals of the engines. All or none are used, because an item can move from one engine to the other.

use super::{Content, Found, NOT_CLOSED, PairSetup};
use crate::config::RecoverAfter;
use crate::error::CacheError;
use crate::flash::Waiting;
use crate::flash::journal::{self, Chain, ChainError, JournalOptions};
use crate::flash::region::{self, StoreId};
use crate::flash::superblock::Superblock;
use crate::flash::{log, soc};

const RESTARTED: &str = "it was not closed before a restart of the system: removals survive that only with recover_after power-loss";
const JOURNAL_DAMAGED: &str = "it was not closed, and one of its journals is damaged";

/// The journals of a pair's engines; `None` for an engine without one.
#[derive(Default)]
pub(super) struct Chains {
    pub(super) small_items: Option<Chain>,
    pub(super) regions: Option<Chain>,
}

impl PairSetup<'_> {
    pub(super) fn has_journals(&self) -> bool {
        self.config.recover_after != RecoverAfter::CleanClose
    }

    /// Determines the recoverable items of a cache that was not closed. `session` is the session of that cache.
    pub(super) async fn restore_from_journals(
        &self,
        open: Superblock,
        session: u64,
        waiting: Waiting,
    ) -> Result<Found, CacheError> {
        let found = |superblock, content, closed, loss| Found {
            superblock,
            content,
            closed,
            loss,
            is_foreign: false,
        };
        let loss = match self.read_journals(&open, waiting).await {
            Ok(chains) => {
                return Ok(found(open, Content::Journals(chains), Some(session), None));
            }
            Err(ChainError::Io(source)) => {
                return Err(CacheError::Device { context: "reading the journals of the cache", source });
            }
            Err(ChainError::Empty) => NOT_CLOSED,
            Err(ChainError::OtherBoot) => RESTARTED,
            Err(ChainError::Damaged) => JOURNAL_DAMAGED,
        };
        Ok(found(open.emptied(), Content::Nothing, None, Some(loss)))
    }

    async fn read_journals(&self, open: &Superblock, waiting: Waiting) -> Result<Chains, ChainError> {
        let mut chains = Chains::default();
        let (layout, device) = (&open.layout, &self.device);
        let (generation, hash_seed) = (open.journaled_mark(), open.hash_seed);
        if layout.soc_bytes > 0 {
            let chain = match self.log_config(layout.soc_offset, layout.soc_bytes, generation, hash_seed) {
                Some(config) => log::read_journal(device, &config, waiting).await?,
                None => {
                    let config = self.soc_config(layout.soc_offset, layout.soc_bytes, generation, hash_seed);
                    soc::read_journal(device, &config, waiting).await?
                }
            };
            chains.small_items = Some(chain);
        }
        if open.layout.regions > 0 {
            let (config, id) = (self.regions_config(&open.layout), StoreId(open.journaled_mark()));
            chains.regions = Some(region::read_journal(&self.device, &config, id, waiting).await?);
        }
        Ok(chains)
    }

    /// The journals' options, if there are journals.
    pub(super) fn journal_options(&self) -> Option<JournalOptions> {
        let flushes = match self.config.recover_after {
            RecoverAfter::CleanClose => return None,
            RecoverAfter::Kill => false,
            RecoverAfter::PowerLoss => true,
        };
        let block_bytes = self.device.geometry().block_bytes;
        Some(JournalOptions { flushes, boot: journal::boot_mark(), block_bytes })
    }
}
