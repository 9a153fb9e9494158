//! The layout of a cache, fixed at its creation; flags of `create` and `replay`.

use std::ops::RangeInclusive;

use block::sets::{ConfigError, Geometry, Placement};
use block::volume::layout::{BLOCK_BYTES, WAYS};
use clap::Args;
use daemon::settings;
use device::size::parse_size;

/// Layout flags.
#[derive(Debug, Args)]
#[command(next_help_heading = "Layout")]
pub struct Shape {
    /// Block size, a power of two
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = bytes)]
    pub block_size: u32,
    /// Blocks per set, 1 to 32768
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub associativity: u32,
    /// How runs of disk blocks map to sets: linear, hashed or permuted [default: the preset's]
    #[arg(long, value_name = "NAME")]
    placement: Option<String>,
    /// Size of the disk runs kept together in a set, a power of two from a block to a set [default: the preset's]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub run_size: Option<u32>,
}

impl Shape {
    /// The placement; `preset` is the preset's.
    ///
    /// # Errors
    /// An unknown placement, or a run size that it does not support.
    pub fn placement(&self, preset: Placement) -> Result<Placement, String> {
        let run_bytes = self.run_size.or(preset.run_bytes()).unwrap_or(256 << 10);
        match self.placement.as_deref().unwrap_or(preset.name()) {
            "linear" if self.placement.is_some() && self.run_size.is_some() => {
                Err("--run-size: has no effect with --placement linear, whose runs are as long as a set"
                    .into())
            }
            "linear" => Ok(Placement::Linear),
            "hashed" => Ok(Placement::Hashed { run_bytes }),
            "permuted" => Ok(Placement::Permuted { run_bytes }),
            other => Err(format!("--placement: {}", settings::one_of(other, "placement", &Placement::NAMES))),
        }
    }

    /// Checks whether a cache on flash can have sets of this layout, without regard to their number.
    ///
    /// # Errors
    /// The flag that is out of bounds.
    pub fn check(&self, placement: Placement) -> Result<(), String> {
        power_within("--block-size", self.block_size, &BLOCK_BYTES)?;
        let (block_bytes, ways) = (self.block_size, self.associativity);
        if !WAYS.contains(&ways) {
            return Err(format!("--associativity {ways}: must be from {} to {}", WAYS.start(), WAYS.end()));
        }
        let one_set = Geometry { block_bytes, sets: 1, ways, placement, placement_key: 0 };
        one_set.check().map_err(|error| match (error.setting, u64::from(ways) * u64::from(block_bytes)) {
            ("run_bytes", set_bytes) if self.run_size.is_none() && error.given > set_bytes => format!(
                "--associativity {ways}: makes sets of {set_bytes} bytes, less than the runs of {} that the preset keeps \
                 together in one; give --run-size {} (or less), or at least --associativity {}",
                error.given,
                1_u64 << set_bytes.ilog2(),
                error.given / u64::from(block_bytes)
            ),
            ("run_bytes", set_bytes) if self.run_size.is_none() => format!(
                "--block-size {block_bytes}: is more than the runs of {} bytes that the preset keeps together in a set; give \
                 --run-size, from {block_bytes} (a block) to {set_bytes} (a set)",
                error.given
            ),
            ("run_bytes", set_bytes) => format!(
                "--run-size {}: must be a power of two from {block_bytes} (a block) to {set_bytes} (a set)",
                error.given
            ),
            _ => named(&error),
        })
    }

    /// As [`check`](Self::check), if the preset is the only one.
    ///
    /// # Errors
    /// The flag that is out of bounds.
    pub fn check_on_flash(&self, placement: Placement) -> Result<(), String> {
        if self.run_size.is_some() && placement == Placement::Linear {
            return Err("--run-size: has no effect with the preset's placement, linear, whose runs are as long as a set".into());
        }
        self.check(placement)
    }
}

/// The error with the name of the flag that is out of bounds.
fn named(error: &ConfigError) -> String {
    let flag = match error.setting {
        "block_bytes" => "--block-size",
        "ways" => "--associativity",
        other => other,
    };
    format!("{flag} {}: {}", error.given, error.must)
}

fn power_within(flag: &str, given: u32, bounds: &RangeInclusive<u32>) -> Result<(), String> {
    if given.is_power_of_two() && bounds.contains(&given) {
        return Ok(());
    }
    Err(format!("{flag} {given}: must be a power of two from {} to {}", bounds.start(), bounds.end()))
}

fn bytes(text: &str) -> Result<u32, String> {
    let size = parse_size(text)?;
    u32::try_from(size).map_err(|_| format!("must be less than {}", u64::from(u32::MAX) + 1))
}
