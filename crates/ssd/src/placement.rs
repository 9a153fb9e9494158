//! Separation of data on the medium: reclaim-unit handles, and the open units that they refer to.
//!
//! A *frontier* is an open reclaim unit and the next page in it. The host has one per handle (and one more per handle
//! and reclaim group, for writes that name a group). Collection has its own, by the rule of the handle type (paper
//! §3.2.1; NVMe 2.1 §3.2.4): data written through **initially isolated** handles may be mixed when it is moved, so
//! these handles share one collection frontier per group; data written through a **persistently isolated** handle stays
//! separate, so each such handle has its own. A conventional drive has one frontier for all host writes.

use crate::geometry::{ShapeError, refuse};

/// How collection may mix the data of a reclaim-unit handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandleKind {
    /// Host writes are separate; moved data of all such handles may be mixed.
    InitiallyIsolated,
    /// Collection never mixes the data of this handle with that of others.
    PersistentlyIsolated,
}

/// Separation of data on a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Isolation {
    /// No separation: all host writes go to one frontier, as on a drive with placement disabled.
    Conventional {
        /// Whether moved data has a separate frontier, as on most drives, or shares the frontier of host writes.
        collection_apart: bool,
    },
    /// Flexible Data Placement with these handles; the first is the default.
    Handles(Vec<HandleKind>),
}

/// The target of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Placement {
    /// The handle. An unknown handle is replaced by the default one and causes an event (NVMe event type 3). A
    /// conventional drive ignores it, except to count the stream.
    pub handle: u16,
    /// The reclaim group; `None` leaves it to the drive, which takes the group with the most free units.
    pub group: Option<u16>,
}

impl Placement {
    /// The placement of writes that name no handle.
    pub const DEFAULT: Self = Self { handle: 0, group: None };

    /// `handle`, in any group.
    #[must_use]
    pub fn handle(handle: u16) -> Self {
        Self { handle, group: None }
    }
}

/// Most handles of a drive: the table of streams has one byte per entry.
pub const MAX_HANDLES: usize = 128;

impl Isolation {
    /// A drive with placement disabled and a separate frontier for collection, as most drives are built.
    pub const CONVENTIONAL: Self = Self::Conventional { collection_apart: true };

    /// `handles` initially isolated handles.
    #[must_use]
    pub fn initially_isolated(handles: usize) -> Self {
        Self::Handles(vec![HandleKind::InitiallyIsolated; handles])
    }

    /// `handles` persistently isolated handles.
    #[must_use]
    pub fn persistently_isolated(handles: usize) -> Self {
        Self::Handles(vec![HandleKind::PersistentlyIsolated; handles])
    }

    /// The handles that the host can choose among.
    #[must_use]
    pub fn handles(&self) -> &[HandleKind] {
        match self {
            Self::Conventional { .. } => &[HandleKind::InitiallyIsolated],
            Self::Handles(kinds) => kinds,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ShapeError> {
        match self.handles().len() {
            0 => refuse("handles", "a drive with placement needs at least one handle".into()),
            count if count > MAX_HANDLES => {
                refuse("handles", format!("{count} handles are more than the maximum of {MAX_HANDLES}"))
            }
            _ => Ok(()),
        }
    }

    /// Largest number of frontiers open in one group: all host frontiers, if the other groups are full.
    pub(crate) fn frontiers_in_a_group(&self, groups: u16) -> u32 {
        let plan = Plan::new(self, groups);
        (plan.host_rows * plan.handles + plan.classes) as u32
    }
}

/// How the frontiers are numbered: host frontiers first, a row of handles for each group (preceded, if there are
/// several groups, by a row for "any group"), then the frontiers of collection, group by group.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    handles: usize,
    host_rows: usize,
    groups: usize,
    /// Collection class of each handle: 0 is shared by all initially isolated ones.
    class_of: Vec<u16>,
    /// Number of classes; 0 if collection writes to the host's frontier.
    classes: usize,
    is_conventional: bool,
}

impl Plan {
    pub(crate) fn new(isolation: &Isolation, groups: u16) -> Self {
        let groups = usize::from(groups);
        let handles = isolation.handles().len();
        let host_rows = if groups > 1 { groups + 1 } else { 1 };
        let mut plan =
            Self { handles, host_rows, groups, class_of: vec![0], classes: 0, is_conventional: true };
        if *isolation == Isolation::CONVENTIONAL {
            plan.classes = 1;
        }
        if let Isolation::Handles(kinds) = isolation {
            plan.is_conventional = false;
            plan.class_of.clear();
            plan.classes = 1;
            for kind in kinds {
                let class = match kind {
                    HandleKind::InitiallyIsolated => 0,
                    HandleKind::PersistentlyIsolated => {
                        plan.classes += 1;
                        plan.classes as u16 - 1
                    }
                };
                plan.class_of.push(class);
            }
        }
        plan
    }

    /// Number of frontiers.
    pub(crate) fn len(&self) -> usize {
        self.host_frontiers() + self.groups * self.classes
    }

    /// Number of frontiers for host writes, which precede those of garbage collection.
    pub(crate) fn host_frontiers(&self) -> usize {
        self.host_rows * self.handles
    }

    /// The frontier of a host write and its handle as placed, `None` if the drive has no such handle or group.
    #[inline]
    pub(crate) fn host(&self, placement: Placement) -> Option<usize> {
        let handle = usize::from(placement.handle);
        if self.is_conventional && placement.group.is_none() {
            return Some(0);
        }
        if handle >= self.handles {
            return None;
        }
        match placement.group {
            None => Some(handle),
            Some(group) if usize::from(group) >= self.groups => None,
            Some(_) if self.groups == 1 => Some(handle),
            Some(group) => Some((1 + usize::from(group)) * self.handles + handle),
        }
    }

    /// The group that a host frontier is bound to; `None` if it is not bound.
    pub(crate) fn bound_group(&self, frontier: usize) -> Option<u16> {
        match frontier / self.handles {
            _ if self.groups == 1 => Some(0),
            0 => None,
            row => Some(row as u16 - 1),
        }
    }

    /// The collection class of the data that a host frontier writes.
    pub(crate) fn class_of(&self, frontier: usize) -> u16 {
        self.class_of[frontier % self.handles]
    }

    /// The frontier to which collection in `group` moves data of `class`.
    pub(crate) fn collection(&self, group: u16, class: u16) -> usize {
        let group = usize::from(group);
        match self.classes {
            0 if self.groups == 1 => 0,
            0 => (1 + group) * self.handles,
            classes => self.host_rows * self.handles + group * classes + usize::from(class),
        }
    }
}

/// An open unit and the next page in it; `next == end` means that no unit is open.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frontier {
    pub(crate) next: u32,
    pub(crate) end: u32,
}

impl Frontier {
    pub(crate) fn room(self) -> u32 {
        self.end - self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conventional_drive_has_one_host_frontier() {
        let plan = Plan::new(&Isolation::CONVENTIONAL, 1);
        assert_eq!((plan.len(), plan.host(Placement::handle(5)), plan.collection(0, 0)), (2, Some(0), 1));
        let plan = Plan::new(&Isolation::Conventional { collection_apart: false }, 1);
        assert_eq!((plan.len(), plan.host(Placement::handle(5)), plan.collection(0, 0)), (1, Some(0), 0));
    }

    #[test]
    fn initially_isolated_handles_share_a_collection_frontier_and_persistent_ones_do_not() {
        use HandleKind::{InitiallyIsolated, PersistentlyIsolated};
        let kinds = vec![InitiallyIsolated, PersistentlyIsolated, InitiallyIsolated, PersistentlyIsolated];
        let plan = Plan::new(&Isolation::Handles(kinds), 1);
        let moved_to: Vec<usize> = (0..4).map(|handle| plan.collection(0, plan.class_of(handle))).collect();
        assert_eq!(moved_to, [4, 5, 4, 6]);
        assert_eq!(plan.len(), 7);
        assert_eq!(plan.host(Placement::handle(4)), None);
    }

    #[test]
    fn each_group_has_separate_frontiers_and_unbound_writes_have_others() {
        let plan = Plan::new(&Isolation::initially_isolated(2), 2);
        let at = |handle, group| plan.host(Placement { handle, group }).unwrap();
        assert_eq!([at(0, None), at(1, None), at(0, Some(0)), at(1, Some(1))], [0, 1, 2, 5]);
        assert_eq!([plan.bound_group(1), plan.bound_group(2), plan.bound_group(5)], [None, Some(0), Some(1)]);
        assert_eq!([plan.collection(0, 0), plan.collection(1, 0), plan.len()], [6, 7, 8]);
        assert_eq!(plan.host(Placement { handle: 0, group: Some(2) }), None);
    }
}
