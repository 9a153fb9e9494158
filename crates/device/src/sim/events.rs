//! Scheduled actions.

use std::collections::BTreeMap;

use crate::timer::Action;

/// Actions in order of due time; those of equal time in random order.
#[derive(Default)]
pub(super) struct Events {
    due: BTreeMap<Key, Action>,
    added: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    at_ns: u64,
    draw: u64,
    /// Makes keys unique.
    number: u64,
}

pub(super) struct Due {
    pub(super) at_ns: u64,
    pub(super) action: Action,
}

impl Events {
    pub(super) fn add(&mut self, at_ns: u64, draw: u64, action: Action) {
        self.added += 1;
        self.due.insert(Key { at_ns, draw, number: self.added }, action);
    }

    /// The next action, if it is due by `until_ns`.
    pub(super) fn take_due(&mut self, until_ns: u64) -> Option<Due> {
        let next = self.due.first_entry().filter(|entry| entry.key().at_ns <= until_ns)?;
        let (Key { at_ns, .. }, action) = next.remove_entry();
        Some(Due { at_ns, action })
    }
}
