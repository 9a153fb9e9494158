//! Drive cards: the figures of a drive in a TOML file, each with its source.
//!
//! Some are built in (`crates/ssd/cards`); a user can name a file in the same format. Scaling a card divides the bytes and keeps the numbers
//! of reclaim units and handles, on which write amplification depends.

mod learned;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use device::names;
use serde::{Deserialize, Serialize};

use crate::geometry::{Shape, ShapeError};
use crate::placement::{HandleKind, Isolation};
pub use learned::{Collection, Learned};

/// The figures of a drive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Name on command lines.
    pub name: String,
    /// Maker, model and capacity.
    pub title: String,
    /// Division of its space.
    pub space: Space,
    /// Flexible Data Placement; `None` on a conventional drive.
    pub placement: Option<PlacementCard>,
    /// The flash chips.
    pub nand: Nand,
    /// The controller between host and flash.
    pub controller: Controller,
    /// The rates of the data sheet, which the model does not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<Ceilings>,
    /// The rated endurance.
    pub endurance: Rated,
    /// Price and carbon.
    pub cost: Cost,
    /// Garbage collection, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection: Option<Collection>,
    /// The fit of this card to logs of the drive, if it comes from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
    /// The source of each figure, by `table.key`.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

/// Space of a [`Card`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// Flash that data can occupy: usable space and over-provisioning, without open units and the reserve of
    /// collection.
    pub raw_bytes: u64,
    /// Bytes that the host sees.
    pub usable_bytes: u64,
    /// Logical block.
    pub block_bytes: u32,
    /// Indirection unit.
    pub page_bytes: u32,
    /// Reclaim unit.
    pub unit_bytes: u64,
    /// Reclaim groups.
    pub groups: u16,
    /// Units in reserve; 0 is the minimum that the drive can work with.
    #[serde(default)]
    pub reserve_units: u32,
}

/// Placement of a [`Card`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementCard {
    /// Reclaim-unit handles, the default one included.
    pub handles: u16,
    /// Kind of the handles.
    pub kind: Kind,
    /// Number of namespaces that the drive can be divided into.
    pub namespaces: u16,
}

/// Kind of all handles of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// [`HandleKind::InitiallyIsolated`].
    InitiallyIsolated,
    /// [`HandleKind::PersistentlyIsolated`].
    PersistentlyIsolated,
}

/// Flash of a [`Card`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nand {
    /// Type of the cells: SLC, MLC, TLC, QLC.
    pub cell: String,
    /// Channels between controller and dies.
    pub channels: u32,
    /// Dies; a multiple of the channels.
    pub dies: u32,
    /// Planes of a die, which work together.
    pub planes: u32,
    /// A page of one plane.
    pub page_bytes: u32,
    /// An erase block of one plane. A die erases one block on each of its planes in parallel.
    pub block_bytes: u64,
    /// Pages of a plane that are programmed together (the bits of a cell).
    pub pages_at_once: u32,
    /// Sensing a page.
    pub read_ns: u64,
    /// Programming `pages_at_once` pages on all planes of a die.
    pub program_ns: u64,
    /// Erasing a block on all planes of a die.
    pub erase_ns: u64,
    /// Suspending a program or erase for a read; 0 if the die cannot suspend.
    pub suspend_ns: u64,
    /// Transfer on a channel.
    pub channel_bytes_per_second: u64,
    /// Erases for which a block is rated.
    pub rated_erases: u32,
}

/// Controller of a [`Card`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Handling a command.
    pub command_ns: u64,
    /// Volatile buffer from which writes are acknowledged.
    pub write_buffer_bytes: u64,
    /// The host's link.
    pub host_bytes_per_second: u64,
}

/// Maximum rates of the data sheet. A [`Card`] with ceilings processes one read and one write at a time, each for the longer of the times
/// that the sequential and the random rate give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ceilings {
    /// Large sequential reads.
    pub sequential_read_bytes_per_second: u64,
    /// Large sequential writes.
    pub sequential_write_bytes_per_second: u64,
    /// Random reads of 4 KiB.
    pub random_read_iops: u64,
    /// Sustained random writes of one mapping unit.
    pub random_write_iops: u64,
}

/// Endurance of a [`Card`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rated {
    /// Drive writes a day.
    pub dwpd: f64,
    /// Warranty period in years.
    pub warranty_years: f64,
    /// The workload of the rating. Without it, the rating is taken as bytes written to the medium.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rated_for: Option<RatedFor>,
    /// Write amplification of the drive under that workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rated_dlwa: Option<f64>,
}

/// Workload of an endurance rating.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RatedFor {
    /// JEDEC JESD219's enterprise workload: mostly random writes of 4 KiB.
    Jesd219,
    /// Random writes of one mapping unit, as for drives with units above 4 KiB.
    MappingUnit,
    /// Bytes written to the medium.
    Media,
}

impl Rated {
    /// Write amplification that the rating assumes: 1 if the card does not give it.
    #[must_use]
    pub fn dlwa(&self) -> f64 {
        self.rated_dlwa.unwrap_or(1.0)
    }
}

/// Cost of a [`Card`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Price of a usable GB.
    pub usd_per_gb: f64,
    /// Embodied carbon of a raw GB.
    pub kgco2e_per_gb: f64,
}

/// The reason why a card is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardError {
    /// The card's name or file.
    pub card: String,
    /// The key, if it is one key.
    pub key: Option<String>,
    /// The reason.
    pub reason: String,
}

/// Name and text of each card in `cards/`.
macro_rules! built_in {
    ($($name:literal)+) => { &[$(($name, include_str!(concat!("../cards/", $name, ".toml")))),+] };
}

const BUILT_IN: &[(&str, &str)] = built_in! {
    "pm9d3"
    "tlc"
    "qlc"
    "photo"
    "pm9d3a"
    "pm9a3"
    "pm9a3-8t"
    "cm7-r"
    "cd8-r"
    "p5336"
    "warp448"
    "test"
};

impl Card {
    /// The built-in cards.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        BUILT_IN
            .iter()
            .map(|(name, text)| Self::parse(name, text).expect("tests parse every built-in card"))
            .collect()
    }

    /// The built-in card of that name, or the one in the file of that path.
    ///
    /// # Errors
    /// If there is neither, or the card cannot be read or is invalid.
    pub fn load(name_or_path: &str) -> Result<Self, CardError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
            return Self::parse(name, text);
        }
        let path = Path::new(name_or_path);
        let looks_like_a_name =
            path.extension().is_none() && path.components().count() == 1 && !path.exists();
        let refuse = |reason| Err(CardError { card: name_or_path.to_owned(), key: None, reason });
        if looks_like_a_name {
            let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            return refuse(format!(
                "no such card; {}valid cards are {}, or the path of a TOML file",
                names::hint(name_or_path, names.iter().copied()),
                names.join(", ")
            ));
        }
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(name_or_path, &text),
            Err(error) => refuse(error.to_string()),
        }
    }

    /// Reads and checks a card; errors name it by `origin`.
    ///
    /// # Errors
    /// If the text is not a valid card.
    pub fn parse(origin: &str, text: &str) -> Result<Self, CardError> {
        let card: Self = toml::from_str(text).map_err(|error| CardError {
            card: origin.to_owned(),
            key: error.span().map(|span| format!("line {}", text[..span.start].matches('\n').count() + 1)),
            reason: error.message().replace('\n', " "),
        })?;
        card.check().map_err(|(key, reason)| CardError {
            card: origin.to_owned(),
            key: Some(key.to_owned()),
            reason,
        })?;
        Ok(card)
    }

    /// The same drive with its capacity divided: the same number of units and handles, each unit smaller by `divisor`. Timing, flash and
    /// write buffer are unchanged.
    ///
    /// # Errors
    /// If a unit would be divided into fewer than [`MIN_SCALED_PAGES`] pages.
    pub fn scaled(&self, divisor: u32) -> Result<Self, CardError> {
        if divisor <= 1 {
            return Ok(self.clone());
        }
        let divisor = u64::from(divisor);
        let page_bytes = u64::from(self.space.page_bytes);
        let unit_pages = self.space.unit_bytes / page_bytes / divisor;
        if unit_pages < MIN_SCALED_PAGES {
            let most = match self.space.unit_bytes / page_bytes / MIN_SCALED_PAGES {
                0 | 1 => "this drive cannot be scaled".to_owned(),
                most => format!("scale by 1/{most} at most"),
            };
            return Err(CardError {
                card: self.name.clone(),
                key: Some("space.unit_bytes".into()),
                reason: format!(
                    "at 1/{divisor} a unit has {unit_pages} pages, fewer than the minimum of {MIN_SCALED_PAGES}: {most}"
                ),
            });
        }
        let mut card = self.clone();
        let units = self.space.raw_bytes / self.space.unit_bytes;
        card.space.unit_bytes = unit_pages * page_bytes;
        card.space.raw_bytes = units * card.space.unit_bytes;
        // The share is computed from whole units, so that rounding the unit size does not change the over-provisioning.
        let share = self.space.usable_bytes as f64 / (units * self.space.unit_bytes) as f64;
        card.space.usable_bytes =
            (share * card.space.raw_bytes as f64 / page_bytes as f64) as u64 * page_bytes;
        Ok(card)
    }

    /// The shape that the model takes; with `placement` off, or on a drive that has none, conventional.
    #[must_use]
    pub fn shape(&self, placement: bool) -> Shape {
        let space = &self.space;
        let page_bytes = u64::from(space.page_bytes);
        let isolation = match &self.placement {
            Some(card) if placement => Isolation::Handles(vec![card.kind.into(); usize::from(card.handles)]),
            _ => Isolation::CONVENTIONAL,
        };
        Shape {
            block_bytes: space.block_bytes,
            page_bytes: space.page_bytes,
            unit_pages: fit(space.unit_bytes / page_bytes),
            units: fit(space.raw_bytes / space.unit_bytes),
            reserve_units: space.reserve_units,
            logical_pages: fit(space.usable_bytes / page_bytes),
            groups: space.groups,
            isolation,
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let space = &self.space;
        for (key, bytes) in [
            ("space.raw_bytes", space.raw_bytes),
            ("space.usable_bytes", space.usable_bytes),
            ("space.unit_bytes", space.unit_bytes),
            ("space.page_bytes", u64::from(space.page_bytes)),
            ("controller.write_buffer_bytes", self.controller.write_buffer_bytes),
            ("nand.block_bytes", self.nand.block_bytes),
            ("nand.rated_erases", u64::from(self.nand.rated_erases)),
        ] {
            if bytes == 0 {
                return Err((key, "is 0".into()));
            }
        }
        if !space.unit_bytes.is_multiple_of(u64::from(space.page_bytes)) {
            let (unit, page) = (space.unit_bytes, space.page_bytes);
            return Err((
                "space.unit_bytes",
                format!("{unit} bytes is not a multiple of the {page}-byte page"),
            ));
        }
        if space.raw_bytes <= space.usable_bytes {
            let (raw, usable) = (space.raw_bytes, space.usable_bytes);
            return Err((
                "space.raw_bytes",
                format!("{raw} bytes must be more than the {usable} usable bytes"),
            ));
        }
        self.nand.check()?;
        self.check_ratings()?;
        self.shape(true).layout().map(drop).map_err(|ShapeError { key, reason }| (table_of(key), reason))
    }

    fn check_ceilings(&self) -> Result<(), (&'static str, String)> {
        let Some(ceilings) = &self.ceilings else { return Ok(()) };
        for (key, rate, least) in [
            (
                "ceilings.sequential_read_bytes_per_second",
                ceilings.sequential_read_bytes_per_second,
                SLOWEST_BYTES_PER_SECOND,
            ),
            (
                "ceilings.sequential_write_bytes_per_second",
                ceilings.sequential_write_bytes_per_second,
                SLOWEST_BYTES_PER_SECOND,
            ),
            ("ceilings.random_read_iops", ceilings.random_read_iops, 1),
            ("ceilings.random_write_iops", ceilings.random_write_iops, 1),
        ] {
            if rate < least {
                return Err((key, format!("{rate} a second is below the minimum of {least}")));
            }
        }
        Ok(())
    }

    fn check_ratings(&self) -> Result<(), (&'static str, String)> {
        self.check_ceilings()?;
        if let Some(dlwa) = self.endurance.rated_dlwa.filter(|dlwa| !(dlwa.is_finite() && *dlwa >= 1.0)) {
            return Err(("endurance.rated_dlwa", format!("{dlwa} is not a finite number of at least 1")));
        }
        for (key, value) in [
            ("endurance.dwpd", self.endurance.dwpd),
            ("endurance.warranty_years", self.endurance.warranty_years),
            ("cost.usd_per_gb", self.cost.usd_per_gb),
            ("cost.kgco2e_per_gb", self.cost.kgco2e_per_gb),
        ] {
            if !(value > 0.0 && value.is_finite()) {
                return Err((key, format!("{value} is not a finite number above 0")));
            }
        }
        for (key, rate) in [
            ("nand.channel_bytes_per_second", self.nand.channel_bytes_per_second),
            ("controller.host_bytes_per_second", self.controller.host_bytes_per_second),
        ] {
            if rate < SLOWEST_BYTES_PER_SECOND {
                return Err((
                    key,
                    format!("{rate} bytes/s is below the minimum of {SLOWEST_BYTES_PER_SECOND}"),
                ));
            }
        }
        let command_ns = self.controller.command_ns;
        if command_ns > LONGEST_STEP_NS {
            return Err((
                "controller.command_ns",
                format!("{command_ns} ns is above the maximum of {LONGEST_STEP_NS}"),
            ));
        }
        match &self.placement {
            Some(placement) if placement.namespaces == 0 => {
                Err(("placement.namespaces", "a drive needs at least one namespace".into()))
            }
            _ => Ok(()),
        }
    }
}

/// Fewest pages of a unit on a scaled drive: with fewer, write amplification depends on the number of pages (3.3
/// instead of 3.5 for the paper's mix).
pub const MIN_SCALED_PAGES: u64 = 64;

/// Much longer than any flash operation, and short enough that the times of a run fit the 64 bits of a clock.
const LONGEST_STEP_NS: u64 = 10_000_000_000;

/// Lowest rate of a channel or link: a page of 64 KiB then takes 65 ms, so that the times of a run fit the 64 bits of a clock.
const SLOWEST_BYTES_PER_SECOND: u64 = 1_000_000;

/// Each die is a queue in memory, and the bytes of one multi-plane operation must fit in 64 bits.
const MOST_DIES: u32 = 65_536;
const MOST_PLANES: u32 = 64;
const MOST_PAGES_AT_ONCE: u32 = 64;
const LARGEST_FLASH_PAGE_BYTES: u32 = 65_536;
const LARGEST_ERASE_BLOCK_BYTES: u64 = 1 << 40;

impl Nand {
    fn check(&self) -> Result<(), (&'static str, String)> {
        for (key, count, most) in [
            ("nand.channels", self.channels, MOST_DIES),
            ("nand.dies", self.dies, MOST_DIES),
            ("nand.planes", self.planes, MOST_PLANES),
            ("nand.pages_at_once", self.pages_at_once, MOST_PAGES_AT_ONCE),
        ] {
            if count == 0 {
                return Err((key, "is 0".into()));
            }
            if count > most {
                return Err((key, format!("{count} is above the maximum of {most}")));
            }
        }
        if !self.dies.is_multiple_of(self.channels) {
            let (dies, channels) = (self.dies, self.channels);
            return Err((
                "nand.dies",
                format!("{dies} dies cannot be divided evenly among {channels} channels"),
            ));
        }
        for (key, ns) in [
            ("nand.read_ns", self.read_ns),
            ("nand.program_ns", self.program_ns),
            ("nand.erase_ns", self.erase_ns),
            ("nand.suspend_ns", self.suspend_ns),
        ] {
            if ns > LONGEST_STEP_NS {
                return Err((key, format!("{ns} ns is above the maximum of {LONGEST_STEP_NS}")));
            }
        }
        let page_bytes = self.page_bytes;
        if !page_bytes.is_power_of_two() || !(4096..=LARGEST_FLASH_PAGE_BYTES).contains(&page_bytes) {
            let most = LARGEST_FLASH_PAGE_BYTES;
            return Err((
                "nand.page_bytes",
                format!("{page_bytes} is not a power of two from 4096 to {most}"),
            ));
        }
        if self.block_bytes > LARGEST_ERASE_BLOCK_BYTES {
            let (block, most) = (self.block_bytes, LARGEST_ERASE_BLOCK_BYTES);
            return Err(("nand.block_bytes", format!("{block} bytes is above the maximum of {most}")));
        }
        if !self.block_bytes.is_multiple_of(u64::from(self.page_bytes)) {
            let (block, page) = (self.block_bytes, self.page_bytes);
            return Err((
                "nand.block_bytes",
                format!("{block} bytes is not a multiple of the {page}-byte page"),
            ));
        }
        Ok(())
    }

    /// Bytes that a die programs in one operation.
    #[must_use]
    pub fn program_bytes(&self) -> u64 {
        u64::from(self.planes) * u64::from(self.page_bytes) * u64::from(self.pages_at_once)
    }
}

/// The name in a card of a key of a shape.
fn table_of(key: &'static str) -> &'static str {
    match key {
        "block_bytes" => "space.block_bytes",
        "page_bytes" => "space.page_bytes",
        "unit_pages" => "space.unit_bytes",
        "units" => "space.raw_bytes",
        "reserve_units" => "space.reserve_units",
        "logical_pages" => "space.usable_bytes",
        "groups" => "space.groups",
        "handles" => "placement.handles",
        other => other,
    }
}

/// Converts to 32 bits. A number that does not fit becomes the maximum, which the layout then refuses with a message.
fn fit(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl From<Kind> for HandleKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::InitiallyIsolated => Self::InitiallyIsolated,
            Kind::PersistentlyIsolated => Self::PersistentlyIsolated,
        }
    }
}

impl fmt::Display for CardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{}: {key}: {}", self.card, self.reason),
            None => write!(f, "{}: {}", self.card, self.reason),
        }
    }
}

impl std::error::Error for CardError {}
