//! Embodied carbon: the paper's Theorem 2 (§4.2.1) and the sum behind its Table 2.

/// What a deployment is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deployment {
    /// Physical capacity of the drive in GB.
    pub drive_gb: f64,
    /// DRAM in GB.
    pub dram_gb: f64,
    /// Device-level write amplification.
    pub dlwa: f64,
    /// Years that the system is in use (T).
    pub system_years: f64,
    /// Years that the drive lasts at a DLWA of 1 (L_dev).
    pub drive_years: f64,
    /// kg CO2e of a GB of SSD (C_SSD).
    pub ssd_kg_per_gb: f64,
    /// kg CO2e of a GB of DRAM.
    pub dram_kg_per_gb: f64,
}

impl Deployment {
    /// kg CO2e of a GB of SSD: Tannu and Nair, "The Dirty Secret of SSDs", 2023, as the paper takes it.
    pub const SSD_KG_PER_GB: f64 = 0.16;
    /// kg CO2e of a GB of DRAM, worked out from the paper's Table 2: its rows differ by 1.6 kg a GB.
    pub const DRAM_KG_PER_GB: f64 = 1.6;

    /// The paper's drive of 2048 GB, for as long as it lasts.
    #[must_use]
    pub fn paper(dram_gb: f64, dlwa: f64) -> Self {
        Self {
            drive_gb: 2048.0,
            dram_gb,
            dlwa,
            system_years: 5.0,
            drive_years: 5.0,
            ssd_kg_per_gb: Self::SSD_KG_PER_GB,
            dram_kg_per_gb: Self::DRAM_KG_PER_GB,
        }
    }

    /// kg CO2e of the drives: DLWA × capacity × T / L_dev × C_SSD. A drive that is written twice as much is replaced
    /// twice as often.
    #[must_use]
    pub fn ssd_kg(&self) -> f64 {
        self.dlwa * self.drive_gb * self.system_years / self.drive_years * self.ssd_kg_per_gb
    }

    /// kg CO2e of the DRAM, which does not wear.
    #[must_use]
    pub fn dram_kg(&self) -> f64 {
        self.dram_gb * self.dram_kg_per_gb
    }

    /// Both.
    #[must_use]
    pub fn total_kg(&self) -> f64 {
        self.ssd_kg() + self.dram_kg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_2_to_a_tenth_of_a_kilogram() {
        // DLWA 1.04 with placement and 3.28 without; the row called 42 GB has cacheSizeMB 43000.
        let table = [
            (4.0, 1.04, 347.2),
            (20.0, 1.04, 372.8),
            (43.0, 1.04, 409.6),
            (4.0, 3.28, 1081.1),
            (20.0, 3.28, 1106.8),
            (43.0, 3.28, 1143.6),
        ];
        for (dram_gb, dlwa, expected) in table {
            let found = Deployment::paper(dram_gb, dlwa).total_kg();
            assert!((found - expected).abs() < 0.1, "{dram_gb} GB at {dlwa}: {found}, not {expected}");
        }
    }

    #[test]
    fn a_system_that_outlives_its_drives_buys_more() {
        let five = Deployment::paper(0.0, 1.0);
        let ten = Deployment { system_years: 10.0, ..five };
        assert_eq!(ten.total_kg(), 2.0 * five.total_kg());
    }
}
