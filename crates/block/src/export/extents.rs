//! Builds lists of extents.

use std::ops::Range;

use super::Extent;

/// Flags of [`Context::Allocation`](super::Context::Allocation) for a hole that reads as zeros.
const HOLE: u32 = 3;

/// A list of extents in which adjacent ones with equal flags are merged.
#[derive(Default)]
pub(super) struct Extents {
    list: Vec<Extent>,
}

impl Extents {
    /// Appends `len` bytes with these flags.
    pub fn push(&mut self, len: u64, flags: u32) {
        match self.list.last_mut() {
            _ if len == 0 => {}
            Some(last) if last.flags == flags => last.len += len,
            _ => self.list.push(Extent { len, flags }),
        }
    }

    /// Appends `range`, with the ordered `holes` as holes and the rest as data.
    pub fn push_allocation(&mut self, range: &Range<u64>, holes: impl IntoIterator<Item = Range<u64>>) {
        let mut at = range.start;
        for hole in holes {
            self.push(hole.start - at, 0);
            self.push(hole.end - hole.start, HOLE);
            at = hole.end;
        }
        self.push(range.end - at, 0);
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The first `most` extents.
    pub fn first(mut self, most: usize) -> Vec<Extent> {
        self.list.truncate(most);
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_extents_with_equal_flags_are_merged() {
        let mut extents = Extents::default();
        extents.push_allocation(&(100..200), [100..120, 150..200]);
        extents.push_allocation(&(200..300), [200..210, 210..220]);
        assert_eq!(extents.len(), 4);
        let flags = [(20, 3), (30, 0), (70, 3), (80, 0)];
        let flags = flags.map(|(len, flags)| Extent { len, flags });
        assert_eq!(extents.first(9), flags);
    }
}
