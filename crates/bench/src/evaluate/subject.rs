//! The subject of an evaluation: a drive, a file in its place, or a model drive.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use device::contents::{self, Contents};
use device::file::{OpenOptions, set_length};
use device::{Device, DeviceSpec};
use ssd::Card;
use ssd::card::MIN_SCALED_PAGES;
use ssd::model::lifetime::Endurance;

use crate::drive::info::{self, Info};
use crate::drive::{self, text};
use crate::report::numbers::drive_writes;

/// The drive that a user names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Name or path of a model drive's card.
    Card(String),
    /// Path of a device or file.
    Path(PathBuf),
}

/// Parses a built-in card's name, `sim:CARD`, `file:PATH`, a card's `.toml`, or the path of a device.
impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(card) = text.strip_prefix("sim:") {
            return Ok(Self::Card(card.to_owned()));
        }
        if let Some(path) = text.strip_prefix("file:") {
            return if path.is_empty() {
                Err("file: needs a path, as in file:/tmp/flash".into())
            } else {
                Ok(Self::Path(path.into()))
            };
        }
        let is_built_in = Card::built_in().iter().any(|card| card.name == text);
        if is_built_in || Path::new(text).extension().is_some_and(|it| it == "toml") {
            return Ok(Self::Card(text.to_owned()));
        }
        if text.contains('/') || Path::new(text).exists() {
            return Ok(Self::Path(text.into()));
        }
        let cards: Vec<String> = Card::built_in().into_iter().map(|card| card.name).collect();
        let hint = device::names::hint(text, cards.iter().map(String::as_str));
        let cards = cards.join(", ");
        Err(format!(
            "{text:?} is neither a card nor a device: {hint}cards are {cards}; devices are like /dev/nvme0n1"
        ))
    }
}

/// A subject that was opened and checked.
pub enum Subject {
    /// A model drive.
    Model(Box<Model>),
    /// A drive or file.
    Real(Box<Real>),
}

/// A model drive.
pub struct Model {
    /// Name or path of the card as given.
    pub named: String,
    /// The card at full size.
    pub card: Card,
    /// Divisor of the sizes.
    pub scale: u32,
    /// Capacity after scaling, which a run keeps in memory.
    pub scaled_bytes: u64,
}

/// A drive or file.
pub struct Real {
    /// Path.
    pub path: PathBuf,
    /// Information about the drive.
    pub info: Info,
    /// Capacity.
    pub capacity_bytes: u64,
    /// File created for the evaluation, removed afterwards.
    made: Option<MadeFile>,
}

struct MadeFile(PathBuf);

impl Drop for MadeFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// Target capacity of a scaled model: a run takes minutes on two cores, and reclaim units remain large.
const MODEL_BYTES: u64 = 1_000_000_000;
/// Minimum capacity: a smaller drive has no space for the regions of both engines.
pub const MIN_BYTES: u64 = 64 << 20;
/// Warranty period assumed for a DWPD rating without one.
pub const WARRANTY_YEARS: f64 = 5.0;

impl Model {
    /// Loads a card at `scale`, or at the scale that leaves about 1 GB.
    ///
    /// # Errors
    /// The card does not exist, or the scaled drive is too small.
    pub fn new(named: &str, scale: Option<u32>) -> Result<Self, String> {
        let card = Card::load(named).map_err(|error| error.to_string())?;
        let scale = scale.unwrap_or_else(|| fitting_scale(&card));
        let scaled = card.scaled(scale).map_err(|error| format!("--scale: {error}"))?;
        let scaled_bytes = scaled.space.usable_bytes;
        if scaled_bytes < MIN_BYTES {
            let (has, least) = (text::bytes(scaled_bytes.into()), text::bytes(MIN_BYTES.into()));
            return Err(format!("{named}: at 1/{scale} the drive has {has}; a cache needs at least {least}"));
        }
        Ok(Self { named: named.to_owned(), card, scale, scaled_bytes })
    }
}

/// The power of two that leaves about [`MODEL_BYTES`], limited by the minimum size of a reclaim unit.
fn fitting_scale(card: &Card) -> u32 {
    let wanted = card.space.usable_bytes.div_ceil(MODEL_BYTES).next_power_of_two();
    let unit_pages = card.space.unit_bytes / u64::from(card.space.page_bytes);
    let most = (unit_pages / MIN_SCALED_PAGES).max(1);
    let most = if most.is_power_of_two() { most } else { most.next_power_of_two() / 2 };
    u32::try_from(wanted.min(most)).unwrap_or(u32::MAX)
}

impl Real {
    /// Opens and checks the drive at `path`. Refuses a drive that is mounted or in use, and, without `force`, one with
    /// recognised contents. Creates a file of `size` bytes if `path` does not exist.
    ///
    /// # Errors
    /// The drive is refused, or cannot be opened.
    pub fn new(path: &Path, size: Option<u64>, force: bool) -> Result<Self, String> {
        let made = match (path.exists(), size) {
            (false, Some(bytes)) => Some(make_file(path, bytes)?),
            (true, Some(_)) => {
                let path = path.display();
                return Err(format!("--size: {path} already exists; --size is for a new file"));
            }
            (false, None) if !path.starts_with("/dev") => {
                return Err(format!(
                    "{}: no such device; --size 1GiB creates a file to try it on",
                    path.display()
                ));
            }
            (_, None) => None,
        };
        let info = info::info(path).map_err(|error| error.to_string())?;
        let device = drive::open_whole(path).map_err(|error| error.to_string())?;
        let capacity_bytes = device.geometry().capacity_bytes;
        if capacity_bytes < MIN_BYTES {
            let (has, least) = (text::bytes(capacity_bytes.into()), text::bytes(MIN_BYTES.into()));
            return Err(format!("{}: has {has}; a cache needs at least {least}", path.display()));
        }
        let found = if force { None } else { foreign(path, &*device, info.kind == "file")? };
        match found {
            Some(found) => Err(format!("{} holds {found}; --force overwrites it", path.display())),
            None => Ok(Self { path: path.into(), info, capacity_bytes, made }),
        }
    }

    /// Reason why writes cannot be placed; `None` if they can.
    #[must_use]
    pub fn missing_placement(&self) -> Option<String> {
        let options = OpenOptions { placement: true, ..OpenOptions::default() };
        match DeviceSpec::Path(self.path.clone()).open(&options) {
            Ok(device) if device.geometry().placement_handles > 1 => None,
            Ok(_) => Some("it has too few placement handles for two engines".into()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Whether the subject is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.info.kind == "file"
    }

    /// Whether the file was created for the evaluation and is removed afterwards.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.made.is_some()
    }
}

fn make_file(path: &Path, bytes: u64) -> Result<MadeFile, String> {
    if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
        return Err(format!("{}: no such device, and not a place for a file", path.display()));
    }
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::options().write(true).create_new(true).open(path).map_err(failed)?;
    let made = MadeFile(path.into());
    set_length(&file, bytes / 4096 * 4096)
        .map_err(|why| format!("--size {bytes}: {}: {why}", path.display()))?;
    Ok(made)
}

/// Describes foreign data on `device`, if there is any. A cache of this program may be overwritten. Data on a drive is
/// recognised by its signature; a file with any other data counts as foreign.
fn foreign(path: &Path, device: &dyn Device, is_file: bool) -> Result<Option<String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    match contents::of(path, device).map_err(|error| error.to_string())? {
        Some(Contents::HybridCache) => Ok(None),
        Some(others) => Ok(Some(others.to_string())),
        None if is_file && contents::has_data(path).map_err(failed)? => {
            Ok(Some("data that is not a cache's".to_owned()))
        }
        None => Ok(None),
    }
}

impl Subject {
    /// Name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Model(model) => model.card.name.clone(),
            Self::Real(real) => real.path.display().to_string(),
        }
    }

    /// Capacity that the host sees, at full size.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        match self {
            Self::Model(model) => model.card.space.usable_bytes,
            Self::Real(real) => real.capacity_bytes,
        }
    }

    /// Divisor of the sizes.
    #[must_use]
    pub fn scale(&self) -> u32 {
        match self {
            Self::Model(model) => model.scale,
            Self::Real(_) => 1,
        }
    }

    /// Reason why writes cannot be placed; `None` if they can.
    #[must_use]
    pub fn missing_placement(&self) -> Option<String> {
        match self {
            Self::Model(model) if model.card.placement.is_some() => None,
            Self::Model(_) => Some("the card has no placement handles".into()),
            Self::Real(real) => real.missing_placement(),
        }
    }

    /// The rated endurance and its source: the card, or the drive's endurance group log. `rated_dlwa` replaces the write amplification
    /// that the card's rating assumes.
    #[must_use]
    pub fn rated(&self, rated_dlwa: Option<f64>) -> Option<(Endurance, String)> {
        match self {
            Self::Model(model) => {
                let rated = &model.card.endurance;
                let capacity_bytes = self.capacity_bytes() as f64;
                let (dwpd, years) = (rated.dwpd, rated.warranty_years);
                let text = format!("{} for {years} years (card)", drive_writes(dwpd));
                let rated_dlwa = rated_dlwa.unwrap_or(rated.dlwa());
                Some((Endurance::from_dwpd(capacity_bytes, dwpd, years, rated_dlwa), text))
            }
            Self::Real(real) => {
                let estimate_bytes =
                    real.info.nvme.as_ref()?.wear.endurance_estimate_bytes.filter(|it| *it > 0)?;
                // The NVMe specification defines this estimate for a write amplification of 1.
                let text = format!("{} written (the drive's own estimate)", text::bytes(estimate_bytes));
                Some((Endurance { host_bytes: estimate_bytes as f64, rated_dlwa: 1.0 }, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_parses_cards_and_paths_and_rejects_unknown_names() {
        let target = |text: &str| text.parse::<Target>();
        assert_eq!(target("pm9d3"), Ok(Target::Card("pm9d3".into())));
        assert_eq!(target("sim:x"), Ok(Target::Card("x".into())));
        assert_eq!(target("./mine.toml"), Ok(Target::Card("./mine.toml".into())));
        assert_eq!(target("/dev/nvme0n1"), Ok(Target::Path("/dev/nvme0n1".into())));
        assert_eq!(target("file:test"), Ok(Target::Path("test".into())));
        let slip = target("pm9d").unwrap_err();
        assert!(slip.contains("did you mean `pm9d3`") && slip.contains("/dev/nvme0n1"), "{slip}");
        assert!(target("file:").is_err() && target("").is_err());
    }

    #[test]
    fn model_default_scale_is_below_2_gb() {
        for card in Card::built_in() {
            let model = Model::new(&card.name, None).unwrap_or_else(|error| panic!("{error}"));
            assert!(model.scaled_bytes < 2_000_000_000, "{}: {}", card.name, model.scaled_bytes);
        }
        assert!(Model::new("test", Some(64)).is_err(), "units too small");
    }
}
