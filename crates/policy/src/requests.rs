//! A clock that counts requests, for policies whose entries age by requests.

/// Counts the requests that a policy is notified of: hits, and misses by their announcement, refusal or insertion.
#[derive(Debug, Default)]
pub(crate) struct RequestClock {
    now: u64,
    /// Whether the miss that is inserted next was counted.
    is_announced: bool,
}

impl RequestClock {
    /// Number of requests so far, including the current one.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Counts a hit, or a miss that is not inserted.
    #[inline]
    pub(crate) fn tick(&mut self) {
        self.now += 1;
    }

    /// Counts a miss that will be inserted.
    #[inline]
    pub(crate) fn announce(&mut self) {
        self.now += 1;
        self.is_announced = true;
    }

    /// Counts a miss at its insertion, unless it was announced.
    #[inline]
    pub(crate) fn insert(&mut self) {
        self.now += u64::from(!std::mem::take(&mut self.is_announced));
    }
}
