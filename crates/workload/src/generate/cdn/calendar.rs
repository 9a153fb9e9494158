//! A priority queue of albums by the time of their next visit: a calendar queue of two levels.
//!
//! A heap of all albums would miss the processor's caches on every step. Here the near future is divided into slots, each with a list; only
//! the current slot is a small heap. Albums beyond the last slot wait in one list until the slots have passed.

use std::collections::BinaryHeap;

use super::object::{Album, AlbumGenerator};
use crate::generate::random::Stream;

/// Slots in an epoch, and epochs in a span.
const SLOTS: usize = 2048;
const EPOCHS: f64 = 8.0;
const SLOT_WIDTH: f64 = 1.0 / (EPOCHS * SLOTS as f64);

pub(super) struct Calendar {
    /// The epoch's slots; those before the current one are empty.
    slots: Vec<Vec<Album>>,
    current: usize,
    heap: BinaryHeap<Album>,
    later: Vec<Album>,
    epoch: u64,
}

impl Calendar {
    /// An empty queue.
    pub(super) fn new() -> Self {
        Self {
            slots: std::iter::repeat_with(Vec::new).take(SLOTS).collect(),
            current: 0,
            heap: BinaryHeap::new(),
            later: Vec::new(),
            epoch: 0,
        }
    }

    /// Inserts an album at the time of its next visit.
    #[inline]
    pub(super) fn insert(&mut self, album: Album) {
        let slot = (album.at / SLOT_WIDTH) as u64;
        let begin = self.epoch * SLOTS as u64;
        match slot.saturating_sub(begin) {
            slot if slot <= self.current as u64 => self.heap.push(album),
            slot if slot < SLOTS as u64 => self.slots[slot as usize].push(album),
            _ => self.later.push(album),
        }
    }

    /// All queued albums.
    #[cfg(test)]
    pub(super) fn into_albums(self) -> Vec<Album> {
        self.slots.into_iter().flatten().chain(self.heap).chain(self.later).collect()
    }

    /// The album with the next visit. New albums keep being created, so there always is one.
    #[inline]
    pub(super) fn next(&mut self, generator: &mut AlbumGenerator, random: &mut Stream) -> Album {
        while self.heap.is_empty() {
            self.next_slot(generator, random);
        }
        let album = self.heap.pop().expect("the heap was just peeked");
        if let Some(next) = generator.after(album, random) {
            self.insert(next);
        }
        album
    }

    /// Advances to the next slot or epoch and creates the albums that fall into it.
    #[cold]
    fn next_slot(&mut self, generator: &mut AlbumGenerator, random: &mut Stream) {
        self.current += 1;
        if self.current == SLOTS {
            self.current = 0;
            self.epoch += 1;
            for album in std::mem::take(&mut self.later) {
                self.insert(album);
            }
        }
        self.begin(generator, random);
    }

    /// Starts the current slot: creates the albums that fall into it.
    pub(super) fn begin(&mut self, generator: &mut AlbumGenerator, random: &mut Stream) {
        let slot = self.epoch * SLOTS as u64 + self.current as u64;
        generator.until((slot + 1) as f64 * SLOT_WIDTH, self, random);
        self.heap.extend(self.slots[self.current].drain(..));
    }
}
