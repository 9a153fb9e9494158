//! The items that a get returns.

use std::ops::{Deref, Range};

use crate::dram::{Handle, PoolId};
use crate::flash::FlashValue;
use crate::flash::tag::pool_of;

/// The tier in which an item was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layer {
    /// In DRAM, read in place.
    Dram,
    /// On flash, or waiting to be written to it.
    Flash,
}

/// A found item; derefs to its value. While it lives, its bytes are not moved or freed: an item in DRAM is pinned, and one from flash
/// owns its buffer.
pub struct Item<'a> {
    held: Held<'a>,
    layer: Layer,
}

pub(crate) enum Held<'a> {
    Dram(Handle<'a>),
    /// Boxed to keep the type small, as every DRAM hit returns it.
    Flash(Box<OnFlash>),
}

/// An item read from flash and not copied to DRAM. A plain value has one piece.
pub(crate) struct OnFlash {
    pub(crate) value: FlashValue,
    pub(crate) pieces: Vec<Range<usize>>,
}

impl OnFlash {
    pub(crate) fn pool(&self) -> PoolId {
        PoolId(pool_of(self.value.tag))
    }

    /// The items chained to this one, newest first.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().skip(1).map(|piece| &self.value[piece.clone()])
    }
}

impl Deref for OnFlash {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self.pieces.first() {
            Some(parent) => &self.value[parent.clone()],
            None => &self.value,
        }
    }
}

impl<'a> Item<'a> {
    #[inline]
    pub(crate) fn in_dram(handle: Handle<'a>, layer: Layer) -> Self {
        Self { held: Held::Dram(handle), layer }
    }

    pub(crate) fn from_flash(value: FlashValue, pieces: Vec<Range<usize>>) -> Self {
        Self::of_flash(Box::new(OnFlash { value, pieces }))
    }

    pub(crate) fn of_flash(flash: Box<OnFlash>) -> Self {
        Self { held: Held::Flash(flash), layer: Layer::Flash }
    }

    /// The value read from flash and its pieces, if the item was not copied to DRAM.
    pub(crate) fn on_flash_alone(&self) -> Option<(&FlashValue, &[Range<usize>])> {
        match &self.held {
            Held::Dram(_) => None,
            Held::Flash(flash) => Some((&flash.value, &flash.pieces)),
        }
    }

    pub(crate) fn into_held(self) -> Held<'a> {
        self.held
    }

    /// Where the item was found.
    #[must_use]
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// The pool of the item.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        match &self.held {
            Held::Dram(handle) => handle.pool(),
            Held::Flash(flash) => flash.pool(),
        }
    }

    /// Unix second at which the item expires; `None` means never.
    #[must_use]
    pub fn expiry_seconds(&self) -> Option<u32> {
        let seconds = match &self.held {
            Held::Dram(handle) => handle.expiry_seconds(),
            Held::Flash(flash) => flash.value.expiry_seconds,
        };
        (seconds != 0).then_some(seconds)
    }

    /// The items chained to this one, newest first.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        let (dram, flash) = match &self.held {
            Held::Dram(handle) => (Some(handle.chain()), None),
            Held::Flash(flash) => (None, Some(flash.chain())),
        };
        dram.into_iter().flatten().chain(flash.into_iter().flatten())
    }
}

impl Deref for Item<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.held {
            Held::Dram(handle) => handle,
            Held::Flash(flash) => flash,
        }
    }
}

impl std::fmt::Debug for Item<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Item({} bytes, {:?})", self.len(), self.layer)
    }
}
