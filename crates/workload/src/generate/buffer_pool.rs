//! InnoDB's buffer pool as the disk sees it: pages in order of last use, without InnoDB's own mid-point.

use std::collections::VecDeque;

/// A buffer pool in order of last use.
pub(super) struct BufferPool {
    /// By page: its neighbours in the order, if it is in the pool.
    links: Vec<Link>,
    /// By page.
    state: Vec<PageState>,
    newest: u32,
    oldest: u32,
    held: u32,
    frames: u32,
    /// Pages in the order in which they became dirty. Some have been written since.
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

/// How an access to a page ended.
pub(super) enum Access {
    Hit,
    /// It was read; before that the victim was written, if it had to be.
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
            held: 0,
            frames: frames.max(1),
            dirty_since: VecDeque::new(),
        }
    }

    pub(super) fn pages(&self) -> u32 {
        self.state.len() as u32
    }

    pub(super) fn access(&mut self, page: u32, update: bool) -> Access {
        let held = self.state[page as usize] != PageState::Absent;
        let mut dirty_victim = None;
        if held {
            self.unlink(page);
        } else if self.held == self.frames {
            dirty_victim = self.evict();
        }
        self.link_newest(page);
        if !held {
            self.state[page as usize] = PageState::Clean;
        }
        if update && self.state[page as usize] == PageState::Clean {
            self.state[page as usize] = PageState::Dirty;
            self.dirty_since.push_back(page);
        }
        if held { Access::Hit } else { Access::Miss { dirty_victim } }
    }

    /// The victim, if it must be written.
    fn evict(&mut self) -> Option<u32> {
        let victim = self.oldest;
        self.unlink(victim);
        let state = std::mem::replace(&mut self.state[victim as usize], PageState::Absent);
        (state == PageState::Dirty).then_some(victim)
    }

    /// The page that has been dirty for longest, to be written.
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
        self.held += 1;
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
        self.held -= 1;
    }
}
