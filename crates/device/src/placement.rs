//! Allocation of placement handles.

use parking_lot::Mutex;

use crate::PlacementHandle;

/// The placement handles of a device beside the default handle, and the consumers that requested them.
#[derive(Debug)]
pub struct HandleAllocator {
    total: u16,
    consumers: Mutex<Vec<(String, PlacementHandle)>>,
}

impl HandleAllocator {
    /// Handles 1 to `total`.
    #[must_use]
    pub fn new(total: u16) -> Self {
        Self { total, consumers: Mutex::default() }
    }

    /// The next handle; the default one when there are no more.
    pub fn allocate(&self, consumer: &str) -> PlacementHandle {
        let mut consumers = self.consumers.lock();
        let next = u16::try_from(consumers.len()).ok().and_then(|given| given.checked_add(1));
        let handle =
            next.filter(|&next| next <= self.total).map_or(PlacementHandle::DEFAULT, PlacementHandle);
        consumers.push((consumer.to_owned(), handle));
        handle
    }

    /// The consumers that requested a handle, in order, each with its handle.
    #[must_use]
    pub fn consumers(&self) -> Vec<(String, PlacementHandle)> {
        self.consumers.lock().clone()
    }

    /// Number of handles besides the default one.
    #[must_use]
    pub fn total(&self) -> u16 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_distinct_until_they_run_out() {
        let handles = HandleAllocator::new(2);
        let given = ["soc", "loc", "metadata"].map(|consumer| handles.allocate(consumer));
        assert_eq!(given, [PlacementHandle(1), PlacementHandle(2), PlacementHandle::DEFAULT]);
        let listed: Vec<_> = handles.consumers();
        assert_eq!(listed[1], ("loc".to_owned(), PlacementHandle(2)));
        assert_eq!(listed[2], ("metadata".to_owned(), PlacementHandle::DEFAULT));
        assert_eq!(HandleAllocator::new(0).allocate("anyone"), PlacementHandle::DEFAULT);
    }
}
