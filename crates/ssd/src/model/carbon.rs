//! Embodied carbon: the paper's Theorem 2 (§4.2.1) and the sum behind its Table 2.

/// The parameters of a deployment.
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
    /// kg CO2e of a GB of SSD: Tannu and Nair, "The Dirty Secret of SSDs", 2023, as used by the paper.
    pub const SSD_KG_PER_GB: f64 = 0.16;
    /// kg CO2e of a GB of DRAM, derived from the paper's Table 2, whose rows differ by 1.6 kg per GB.
    pub const DRAM_KG_PER_GB: f64 = 1.6;

    /// The paper's deployment: a drive of 2048 GB, over the lifetime of the drive.
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

    /// kg CO2e of the drives: DLWA × capacity × T / L_dev × C_SSD. Twice the media writes mean twice as many
    /// replacements.
    #[must_use]
    pub fn ssd_kg(&self) -> f64 {
        self.dlwa * self.drive_gb * self.system_years / self.drive_years * self.ssd_kg_per_gb
    }

    /// kg CO2e of the DRAM, which does not wear.
    #[must_use]
    pub fn dram_kg(&self) -> f64 {
        self.dram_gb * self.dram_kg_per_gb
    }

    /// The sum of SSD and DRAM.
    #[must_use]
    pub fn total_kg(&self) -> f64 {
        self.ssd_kg() + self.dram_kg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carbon_matches_table_2_within_0_1_kg() {
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
    fn carbon_grows_with_the_system_lifetime() {
        let five = Deployment::paper(0.0, 1.0);
        let ten = Deployment { system_years: 10.0, ..five };
        assert_eq!(ten.total_kg(), 2.0 * five.total_kg());
    }
}
