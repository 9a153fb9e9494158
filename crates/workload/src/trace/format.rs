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
    /// Default page size: the size of objects if the format records none, and the unit into which byte ranges are divided. `None` if the
    /// format records object sizes, or if its ranges are objects.
    pub page_bytes: Option<u64>,
    /// Time units per second, by default.
    pub time_units_per_second: u64,
    /// The relation of several files.
    pub(super) files: FileOrder,
    /// Whether a file that the reader can parse is in this format beyond chance.
    pub(super) plausible: fn(&Head<'_>) -> bool,
    pub(super) reader: fn(&ReaderOptions) -> Box<dyn RowReader>,
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
    /// Whether a page size has an effect: as an object size or as the unit of ranges. Ranges can be objects unless a page size is set.
    pub(super) fn has_pages(&self) -> bool {
        self.page_bytes.is_some() || ["cdn", "vscsi"].contains(&self.name)
    }

    /// Whether the format leaves its time unit open, so that it can be configured.
    pub(in super::super) fn has_time_units(&self) -> bool {
        const OPEN: [&str; 10] = [
            "cdn",
            "csv",
            "ibm-cos",
            "kvcache",
            "mooncake",
            "parquet",
            "plain",
            "storage",
            "twitter",
            "webcachesim",
        ];
        OPEN.contains(&self.name)
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
