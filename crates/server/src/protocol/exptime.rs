//! memcached's expiry times.

/// Larger numbers are Unix seconds; up to this, seconds from now on.
const MAX_RELATIVE_SECONDS: i64 = 60 * 60 * 24 * 30;

/// An expiry time as a client sends it: 0 never expires; negative expires immediately; up to 30 days it is relative; otherwise it
/// is a Unix time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exptime(pub i64);

/// The time that an item has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// It does not expire.
    Never,
    /// It expires after this number of seconds, at least 1.
    Seconds(u32),
    /// It has expired.
    Expired,
}

impl Exptime {
    /// The time left at the Unix second `now_seconds`.
    #[must_use]
    pub fn ttl(self, now_seconds: u32) -> Ttl {
        let seconds = match self.0 {
            0 => return Ttl::Never,
            relative @ ..=MAX_RELATIVE_SECONDS => relative,
            absolute => absolute - i64::from(now_seconds),
        };
        match u32::try_from(seconds) {
            Ok(seconds @ 1..) => Ttl::Seconds(seconds),
            Ok(0) => Ttl::Expired,
            Err(_) if seconds < 0 => Ttl::Expired,
            Err(_) => Ttl::Never,
        }
    }
}

impl Ttl {
    /// The time left of an item that expires at the Unix second `expiry_seconds`.
    #[must_use]
    pub fn until(expiry_seconds: Option<u32>, now_seconds: u32) -> Self {
        match expiry_seconds.map(|expiry| expiry.saturating_sub(now_seconds)) {
            None => Self::Never,
            Some(0) => Self::Expired,
            Some(seconds) => Self::Seconds(seconds),
        }
    }

    /// The expiry time as an option of the cache.
    #[must_use]
    pub fn as_option(self) -> Option<u32> {
        match self {
            Self::Never => None,
            Self::Seconds(seconds) => Some(seconds),
            Self::Expired => Some(0),
        }
    }

    /// As the flag `t` of meta commands reports it: -1 never expires.
    #[must_use]
    pub fn as_number(self) -> i64 {
        self.as_option().map_or(-1, i64::from)
    }

    /// Whether less time than `limit` is left. False if either is unlimited.
    #[must_use]
    pub fn is_below(self, limit: Self) -> bool {
        self.as_option().zip(limit.as_option()).is_some_and(|(own, limit)| own < limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exptime_is_never_relative_absolute_or_expired() {
        let now = 2_000_000_000;
        for (exptime, ttl) in [
            (0, Ttl::Never),
            (1, Ttl::Seconds(1)),
            (2_592_000, Ttl::Seconds(2_592_000)),
            (2_592_001, Ttl::Expired),
            (2_000_000_000, Ttl::Expired),
            (2_000_000_005, Ttl::Seconds(5)),
            (-1, Ttl::Expired),
            (i64::MIN, Ttl::Expired),
            (i64::MAX, Ttl::Never),
        ] {
            assert_eq!(Exptime(exptime).ttl(now), ttl, "{exptime}");
        }
    }

    #[test]
    fn endless_ttl_is_never_below_a_limit() {
        assert!(!Ttl::Seconds(8).is_below(Ttl::Never));
        assert!(!Ttl::Never.is_below(Ttl::Seconds(9)));
        assert!(Ttl::Seconds(8).is_below(Ttl::Seconds(9)));
        assert!(!Ttl::Seconds(9).is_below(Ttl::Seconds(9)));
    }
}
