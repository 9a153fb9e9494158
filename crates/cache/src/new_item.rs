//! Items under construction, and the options of an insert.

use crate::KeyHash;
use crate::dram::Draft;

/// Options of an insert.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InsertOptions {
    /// The pool of the item.
    pub pool: u8,
    /// Time to live in seconds. `None` never expires; 0 is never returned. The clock has a resolution of one second, so an item can expire
    /// up to one second early.
    pub ttl_seconds: Option<u32>,
}

/// Methods that take options take them by value or by reference.
impl From<&InsertOptions> for InsertOptions {
    fn from(options: &InsertOptions) -> Self {
        *options
    }
}

/// An item under construction: write its value, then insert it.
pub struct NewItem<'a> {
    pub(crate) draft: Draft<'a>,
}

impl NewItem<'_> {
    pub(crate) fn key(&self) -> &[u8] {
        self.draft.key()
    }

    pub(crate) fn hash(&self) -> KeyHash {
        self.draft.hash()
    }

    /// 0 means never.
    pub(crate) fn expiry_seconds(&self) -> u32 {
        self.draft.expiry_seconds()
    }
}

impl std::ops::Deref for NewItem<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.draft
    }
}

impl std::ops::DerefMut for NewItem<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.draft
    }
}
