//! What defines a trace format.

use super::head::Head;
use super::rows::{ReaderOptions, RowReader};

/// A trace format.
pub struct Format {
    /// Its name on the command line and in configs.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Endings of its file names, before that of a compression.
    pub extensions: &'static [&'static str],
    /// Use of a page size: the size of objects if the format records none, and the unit into which byte ranges are divided.
    pub(super) pages: Pages,
    /// The unit of its timestamps.
    pub(super) time_units: TimeUnits,
    /// The relation of several files.
    pub(super) files: FileOrder,
    /// Whether a file that the reader can parse is in this format beyond chance.
    pub(super) plausible: fn(&Head<'_>) -> bool,
    pub(super) reader: fn(&ReaderOptions) -> Box<dyn RowReader>,
}

/// The use of a page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pages {
    /// Has no effect: the format records object sizes.
    Never,
    /// Divides ranges, which are objects without a page size.
    IfSet,
    /// Always used, this one by default.
    Of(u64),
}

/// Time units per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeUnits {
    /// Part of the format.
    Fixed(u64),
    /// Left open by the format, so that users can set it.
    Default(u64),
}

/// The relation of several files of one format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileOrder {
    /// Each file continues the previous one.
    InTurn,
    /// The files were recorded at the same time.
    ByTime,
}

impl Format {
    /// The page size, unless another is set.
    #[must_use]
    pub fn page_bytes(&self) -> Option<u64> {
        match self.pages {
            Pages::Never | Pages::IfSet => None,
            Pages::Of(bytes) => Some(bytes),
        }
    }

    /// Time units per second, unless others are set.
    #[must_use]
    pub fn time_units_per_second(&self) -> u64 {
        match self.time_units {
            TimeUnits::Fixed(units) | TimeUnits::Default(units) => units,
        }
    }
}

impl std::fmt::Debug for Format {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

impl Head<'_> {
    /// Whether the file name ends like those of this format.
    pub(super) fn ends_like(&self, format: &Format) -> bool {
        format.extensions.iter().any(|ending| self.name.ends_with(&format!(".{ending}")))
    }
}
