//! Lifetime in years: rated endurance divided by host writes times write amplification.

/// Seconds of a day and days of a year, as drive makers count.
const DAY_SECONDS: f64 = 86_400.0;
const YEAR_DAYS: f64 = 365.0;

/// A drive's rated endurance in bytes that the host may write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Endurance {
    /// Bytes that the host may write at the rated write amplification.
    pub host_bytes: f64,
    /// Write amplification that the rating assumes. Makers rate with JEDEC JESD219's enterprise workload and rarely
    /// publish its write amplification; 1 treats the rating as a limit of media writes.
    pub rated_dlwa: f64,
}

impl Endurance {
    /// The endurance from drive writes a day over a warranty.
    #[must_use]
    pub fn from_dwpd(capacity_bytes: f64, dwpd: f64, warranty_years: f64, rated_dlwa: f64) -> Self {
        Self { host_bytes: capacity_bytes * dwpd * YEAR_DAYS * warranty_years, rated_dlwa }
    }

    /// The endurance from terabytes written (TBW).
    #[must_use]
    pub fn from_tbw(tbw: f64, rated_dlwa: f64) -> Self {
        Self { host_bytes: tbw * 1e12, rated_dlwa }
    }

    /// Bytes that can be written to the medium.
    #[must_use]
    pub fn media_bytes(&self) -> f64 {
        self.host_bytes * self.rated_dlwa
    }

    /// Years until the medium is worn out at `host_bytes_per_second` and a write amplification of `dlwa`.
    #[must_use]
    pub fn years(&self, host_bytes_per_second: f64, dlwa: f64) -> f64 {
        self.media_bytes() / (host_bytes_per_second * dlwa) / DAY_SECONDS / YEAR_DAYS
    }

    /// Bytes a second that the host may write to reach `years` at a write amplification of `dlwa`.
    #[must_use]
    pub fn host_bytes_per_second(&self, years: f64, dlwa: f64) -> f64 {
        self.media_bytes() / (dlwa * years * DAY_SECONDS * YEAR_DAYS)
    }
}

/// Converts drive writes per day to bytes per second.
#[must_use]
pub fn dwpd_bytes_per_second(capacity_bytes: f64, dwpd: f64) -> f64 {
    capacity_bytes * dwpd / DAY_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dwpd_converts_to_bytes_per_second_and_years() {
        assert!((dwpd_bytes_per_second(1.8e12, 3.0) / 1e6 - 62.5).abs() < 1e-9);
        let endurance = Endurance::from_dwpd(1.8e12, 3.0, 5.0, 1.0);
        assert!((endurance.years(62.5e6, 1.0) - 5.0).abs() < 1e-9);
        assert!((endurance.years(62.5e6, 2.5) - 2.0).abs() < 1e-9, "amplification eats life in proportion");
        assert!((endurance.host_bytes_per_second(5.0, 1.0) - 62.5e6).abs() < 1e-3);
    }

    #[test]
    fn rating_at_a_higher_amplification_gives_a_longer_lifetime() {
        let strict = Endurance::from_tbw(3504.0, 1.0);
        let rated = Endurance::from_tbw(3504.0, 2.0);
        assert_eq!(rated.years(1e7, 1.0), 2.0 * strict.years(1e7, 1.0));
    }
}
