//! Maps a block of the disk to its set.
//!
//! The disk is divided into runs of consecutive blocks. A run maps to one set, so that blocks written together can be cleaned together.
//! There are three ways to assign runs to sets:
//!
//! * **Linear**: run `n` to set `n mod sets`, as Flashcache 1 and 2 did with runs as long as a set. Data laid out with a
//!   period then maps to the same few sets.
//! * **Hashed**: each run to the set of its hash, as Flashcache 3. By chance, some sets get more runs than others.
//! * **Permuted**: the disk is divided into stripes of one run per set, and each stripe has its own permutation of the sets. Every set
//!   gets exactly one run of every stripe: as scattered as by hashing, and even.
//!
//! After a restart, the set of a cached block is computed again, so this mapping is part of the flash format: [`PLACEMENT_VERSION`] is in
//! the superblock, and the golden values in the tests may never change for one version.

/// The version of the mapping from blocks to sets.
pub const PLACEMENT_VERSION: u16 = 1;

/// How runs of the disk are mapped to sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Consecutive runs of a set's length to consecutive sets.
    Linear,
    /// By a hash of the run.
    Hashed {
        /// Length of a run in bytes: a power of two, from a block to a set.
        run_bytes: u32,
    },
    /// By a permutation per stripe.
    Permuted {
        /// Length of a run in bytes: a power of two, from a block to a set.
        run_bytes: u32,
    },
}

impl Placement {
    /// The names of all placements.
    pub const NAMES: [&'static str; 3] = ["linear", "hashed", "permuted"];

    /// The name of this placement.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Hashed { .. } => "hashed",
            Self::Permuted { .. } => "permuted",
        }
    }

    /// Length of a run in bytes; `None` if it is the length of a set.
    #[must_use]
    pub fn run_bytes(self) -> Option<u32> {
        match self {
            Self::Linear => None,
            Self::Hashed { run_bytes } | Self::Permuted { run_bytes } => Some(run_bytes),
        }
    }
}

/// A placement with its parameters computed.
#[derive(Debug, Clone)]
pub(super) struct Placer {
    rule: Rule,
    run_shift: u32,
    sets: u32,
    key: u64,
}

#[derive(Debug, Clone, Copy)]
enum Rule {
    Linear { ways: u32 },
    Hashed,
    Permuted { high_bits: u32, low_bits: u32 },
}

impl Placer {
    /// `key` is drawn when the cache is created, so that no layout of data is bad for all caches.
    pub(super) fn new(placement: Placement, block_bytes: u32, sets: u32, ways: u32, key: u64) -> Self {
        let (rule, run_blocks) = match placement {
            Placement::Linear => (Rule::Linear { ways }, 1),
            Placement::Hashed { run_bytes } => (Rule::Hashed, run_bytes / block_bytes),
            Placement::Permuted { run_bytes } => {
                let bits = u32::BITS - (sets - 1).leading_zeros();
                (Rule::Permuted { high_bits: bits / 2, low_bits: bits - bits / 2 }, run_bytes / block_bytes)
            }
        };
        Self { rule, run_shift: run_blocks.ilog2(), sets, key }
    }

    /// The set of a block.
    #[inline]
    pub(super) fn set_of(&self, block: u64) -> u32 {
        let run = block >> self.run_shift;
        let sets = u64::from(self.sets);
        match self.rule {
            Rule::Linear { ways } => (block / u64::from(ways) % sets) as u32,
            // The high half of a product maps a hash evenly to the sets without a division.
            Rule::Hashed => ((u128::from(mix(run ^ self.key)) * u128::from(sets)) >> 64) as u32,
            Rule::Permuted { high_bits, low_bits } => {
                let stripe_key = mix((run / sets) ^ self.key);
                permute((run % sets) as u32, self.sets, (high_bits, low_bits), stripe_key)
            }
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA'14).
#[inline]
pub(super) fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// A permutation of `0..sets`: a Feistel network over the next power of two, iterated until the result is in range (Black, Rogaway:
/// "Ciphers with Arbitrary Finite Domains", CT-RSA'02). Four rounds scatter well; resistance to attacks is not required.
#[inline]
fn permute(run: u32, sets: u32, (high_bits, low_bits): (u32, u32), key: u64) -> u32 {
    let (high_mask, low_mask) = ((1_u32 << high_bits) - 1, (1_u32 << low_bits) - 1);
    let mut number = run;
    loop {
        let (mut high, mut low) = (number >> low_bits, number & low_mask);
        for round in 0..2 {
            high ^= mix(key ^ (u64::from(low) << 2 | round << 1)) as u32 & high_mask;
            low ^= mix(key ^ (u64::from(high) << 2 | round << 1 | 1)) as u32 & low_mask;
        }
        number = high << low_bits | low;
        if number < sets {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 0x0123_4567_89AB_CDEF;

    fn placer(placement: Placement, sets: u32) -> Placer {
        Placer::new(placement, 4096, sets, 512, KEY)
    }

    /// Recovery finds blocks by these values: a change needs a new `PLACEMENT_VERSION`.
    #[test]
    fn placement_equals_golden_sets_of_version_1() {
        assert_eq!(PLACEMENT_VERSION, 1);
        let blocks = [0, 63, 64, 128, 1 << 20, (1 << 30) + 7, (1 << 44) - 2];
        let sets_of = |placement| blocks.map(|block| placer(placement, 384).set_of(block));
        assert_eq!(sets_of(Placement::Linear), [0, 0, 0, 0, 128, 128, 127]);
        assert_eq!(sets_of(Placement::Hashed { run_bytes: 256 << 10 }), GOLDEN_HASHED);
        assert_eq!(sets_of(Placement::Permuted { run_bytes: 256 << 10 }), GOLDEN_PERMUTED);
    }

    const GOLDEN_HASHED: [u32; 7] = [32, 32, 348, 147, 320, 112, 353];
    const GOLDEN_PERMUTED: [u32; 7] = [278, 278, 79, 280, 342, 372, 254];

    #[test]
    fn blocks_of_a_run_map_to_one_set() {
        for placement in [Placement::Hashed { run_bytes: 65536 }, Placement::Permuted { run_bytes: 65536 }] {
            let placer = placer(placement, 100);
            for run in 0..1000 {
                let set = placer.set_of(run * 16);
                assert!((0..16).all(|block| placer.set_of(run * 16 + block) == set));
            }
        }
    }

    #[test]
    fn permuted_stripe_maps_one_run_to_each_set() {
        for sets in [1, 2, 3, 5, 16, 100, 384, 1000] {
            let placer = placer(Placement::Permuted { run_bytes: 4096 }, sets);
            for stripe in 0..20 {
                let mut seen = vec![false; sets as usize];
                for run in 0..sets {
                    let set = placer.set_of(stripe * u64::from(sets) + u64::from(run));
                    assert!(
                        !std::mem::replace(&mut seen[set as usize], true),
                        "{sets} sets, stripe {stripe}"
                    );
                }
            }
        }
    }

    #[test]
    fn permutation_depends_on_stripe_and_key() {
        let of = |key: u64, stripe: u64| -> Vec<u32> {
            let placer = Placer::new(Placement::Permuted { run_bytes: 4096 }, 4096, 100, 512, key);
            (0..100).map(|run| placer.set_of(stripe * 100 + run)).collect()
        };
        assert_ne!(of(KEY, 0), of(KEY, 1));
        assert_ne!(of(KEY, 0), of(KEY + 1, 0));
    }

    #[test]
    fn scattered_runs_fill_all_sets_evenly() {
        for placement in [Placement::Hashed { run_bytes: 4096 }, Placement::Permuted { run_bytes: 4096 }] {
            let placer = placer(placement, 64);
            // Data at equal spacing, as in a file system's allocation groups, which linear placement maps to few sets.
            let mut runs = [0_u32; 64];
            for spaced in 0..64_000 {
                runs[placer.set_of(spaced * 64) as usize] += 1;
            }
            assert!(runs.iter().all(|runs| (850..1150).contains(runs)), "{placement:?}: {runs:?}");
        }
    }
}
