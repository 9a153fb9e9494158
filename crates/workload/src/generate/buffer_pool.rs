//! InnoDB's buffer pool, which filters the disk's requests: plain LRU order, without InnoDB's midpoint insertion.

use std::collections::VecDeque;

/// A buffer pool in LRU order.
pub(super) struct BufferPool {
    /// By page number: its neighbours in the LRU list, if it is in the pool.
    links: Vec<Link>,
    /// By page number.
    state: Vec<PageState>,
    newest: u32,
    oldest: u32,
    used: u32,
    frames: u32,
    /// Pages in the order in which they became dirty. Pages cleaned since remain until they are popped.
    dirty_since: VecDeque<u32>,
}

#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum PageState {
    Absent,
    Clean,
    Dirty,
}

/// The result of an access to a page.
pub(super) enum Access {
    Hit,
    /// The page was read; a dirty victim was written first.
    Miss {
        dirty_victim: Option<u32>,
    },
}

const NONE: u32 = u32::MAX;

impl BufferPool {
    pub(super) fn new(pages: u32, frames: u32) -> Self {
        Self {
            links: vec![Link { newer: NONE, older: NONE }; pages as usize],
            state: vec![PageState::Absent; pages as usize],
            newest: NONE,
            oldest: NONE,
            used: 0,
            frames: frames.max(1),
            dirty_since: VecDeque::new(),
        }
    }

    pub(super) fn pages(&self) -> u32 {
        self.state.len() as u32
    }

    pub(super) fn access(&mut self, page: u32, update: bool) -> Access {
        let used = self.state[page as usize] != PageState::Absent;
        let mut dirty_victim = None;
        if used {
            self.unlink(page);
        } else if self.used == self.frames {
            dirty_victim = self.evict();
        }
        self.link_newest(page);
        if !used {
            self.state[page as usize] = PageState::Clean;
        }
        if update && self.state[page as usize] == PageState::Clean {
            self.state[page as usize] = PageState::Dirty;
            self.dirty_since.push_back(page);
        }
        if used { Access::Hit } else { Access::Miss { dirty_victim } }
    }

    /// Evicts the oldest page; returns it if it is dirty.
    fn evict(&mut self) -> Option<u32> {
        let victim = self.oldest;
        self.unlink(victim);
        let state = std::mem::replace(&mut self.state[victim as usize], PageState::Absent);
        (state == PageState::Dirty).then_some(victim)
    }

    /// Cleans the page that has been dirty for longest and returns it.
    pub(super) fn clean_oldest(&mut self) -> Option<u32> {
        while let Some(page) = self.dirty_since.pop_front() {
            if self.state[page as usize] == PageState::Dirty {
                self.state[page as usize] = PageState::Clean;
                return Some(page);
            }
        }
        None
    }

    fn link_newest(&mut self, page: u32) {
        self.links[page as usize] = Link { newer: NONE, older: self.newest };
        match self.newest {
            NONE => self.oldest = page,
            newest => self.links[newest as usize].newer = page,
        }
        self.newest = page;
        self.used += 1;
    }

    fn unlink(&mut self, page: u32) {
        let Link { newer, older } = self.links[page as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        self.used -= 1;
    }
}
