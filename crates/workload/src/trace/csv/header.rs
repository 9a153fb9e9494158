//! Column names in the headers of tables.

use super::cells::Cells;
use super::fields::{COUNT, FIELDS, KEY, NAMES, OP, SEPARATORS, SIZE, TENANT, TIME, TTL};
use crate::trace::columns::{bare, lossy};
use crate::trace::row_error::{Contradiction, RowError};

/// Names of the fields in published traces, besides ours: in lower case, with `_` for spaces, hyphens and brackets.
const USUAL: [(usize, &[&str]); FIELDS] = [
    (TIME, &["ts", "timestamp", "op_time", "relative_unix", "datetime"]),
    (
        KEY,
        &[
            "id",
            "obj_id",
            "object_id",
            "obj",
            "object",
            "hashed_path_query",
            "hashed_host_path_query",
            "hashed_host_path",
        ],
    ),
    (SIZE, &["obj_size", "object_size", "bytes", "size_bytes", "value_size", "response_size"]),
    (OP, &["operation", "method", "cmd"]),
    (TTL, &[]),
    (TENANT, &["client", "client_id", "user"]),
    (COUNT, &["op_count"]),
];

/// Unused columns of published traces. A comment that contains them can still be recognised as a header.
const UNUSED: [&str; 4] = ["next_access_vtime", "image_type", "time_firstbyte", "cache_hit"];

/// Unit suffixes of time columns.
const UNITS: [(&str, u64); 4] = [("_s", 1), ("_ms", 1_000), ("_us", 1_000_000), ("_ns", 1_000_000_000)];

/// The field with this column name.
pub(super) fn field_called(name: &[u8]) -> Option<usize> {
    let name = plain(name);
    let is_time = |name: &str| known(name) == Some(TIME);
    let with_unit = || UNITS.iter().any(|(unit, _)| name.strip_suffix(unit).is_some_and(is_time));
    known(&name).or_else(|| with_unit().then_some(TIME))
}

/// Whether this is a usual name of any field.
pub(in crate::trace) fn is_usual(cell: &[u8]) -> bool {
    field_called(bare(cell)).is_some()
}

/// Whether this is a usual name of the request time.
pub(in crate::trace) fn is_time(cell: &[u8]) -> bool {
    field_called(bare(cell)) == Some(TIME)
}

/// The unit at the end of a time column's name.
pub(super) fn time_units_per_second(name: &[u8]) -> Option<u64> {
    let name = plain(name);
    UNITS.iter().find(|(unit, _)| name.ends_with(unit)).map(|(_, units)| *units)
}

/// Whether a header cell equals `name`. The comment sign before a header is not part of the first name.
pub(super) fn is_called(cell: &[u8], name: &str) -> bool {
    unmarked(cell).eq_ignore_ascii_case(unmarked(name.as_bytes()))
}

fn unmarked(name: &[u8]) -> &[u8] {
    let signs = name.iter().take_while(|byte| **byte == b'#').count();
    name[signs..].trim_ascii()
}

/// Whether the cell begins like a name and not like a number.
pub(super) fn is_word(cell: &[u8]) -> bool {
    matches!(cell, [b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'#', ..])
}

/// Column and field of each cell with a usual name. Our own names take precedence over others, and earlier others over later ones.
pub(super) fn places(cells: &[&[u8]]) -> Vec<(usize, usize)> {
    let names: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
    let place = |field: usize| {
        let own = names.iter().position(|name| name == NAMES[field]);
        own.or_else(|| cells.iter().position(|cell| field_called(cell) == Some(field)))
    };
    (0..FIELDS).filter_map(|field| Some((place(field)?, field))).collect()
}

/// The contradiction, if column number `place` (from 0) is configured as one field and named as another.
pub(super) fn contradiction<'a>(
    place: usize,
    taken: usize,
    cell: &[u8],
    cells: impl Iterator<Item = &'a [u8]>,
) -> RowError {
    let (taken, header) = (NAMES[taken], lossy(cell));
    RowError::Contradicted(Box::new(Contradiction { column: place + 1, taken, header, order: order(cells) }))
}

/// The header's columns as a list of fields, `-` for those without a usual name.
fn order<'a>(cells: impl Iterator<Item = &'a [u8]>) -> String {
    let fields: Vec<&str> = cells.map(|cell| field_called(cell).map_or("-", |field| NAMES[field])).collect();
    fields.join(",")
}

/// Whether published traces have an unused column of this name.
pub(super) fn is_unused(name: &[u8]) -> bool {
    UNUSED.contains(&plain(name).as_str())
}

/// Whether a column of this name could be the object: a URL or a hash can, a date or a length cannot.
fn is_like_object(name: &[u8]) -> bool {
    const PARTS: [&str; 16] = [
        "key", "url", "uri", "path", "file", "hash", "obj", "item", "block", "page", "lba", "lbn", "content",
        "name", "doc", "video",
    ];
    const NOT: [&str; 8] = ["host", "size", "len", "time", "date", "type", "user", "count"];
    let name = plain(name);
    PARTS.iter().any(|part| name.contains(part)) && !NOT.iter().any(|part| name.contains(part))
}

fn known(name: &str) -> Option<usize> {
    let usual = || USUAL.iter().find(|(_, names)| names.contains(&name)).map(|(field, _)| *field);
    NAMES.iter().position(|known| *known == name).or_else(usual)
}

/// Normalises a name: `size_bytes` for `Size (bytes)`.
fn plain(name: &[u8]) -> String {
    let words = String::from_utf8_lossy(name).to_lowercase().replace(['-', '(', ')', '[', ']'], " ");
    words.split_ascii_whitespace().collect::<Vec<_>>().join("_")
}

/// The header of a table, recognised by its column names.
pub(in crate::trace) struct Header<'a> {
    separator: u8,
    cells: Vec<&'a [u8]>,
    /// The field of each column with a usual name.
    fields: Vec<Option<usize>>,
}

impl<'a> Header<'a> {
    /// The columns of a line of words, at least two with usual names. `None` for any other line: a single word could be part of a row.
    pub(in crate::trace) fn of(line: &'a [u8]) -> Option<Self> {
        let cut = |separator: u8| -> Self {
            let cells: Vec<&[u8]> = Cells::new(separator, line).map(bare).collect();
            let fields = cells.iter().map(|cell| field_called(cell)).collect();
            Self { separator, cells, fields }
        };
        let separators = SEPARATORS.into_iter().filter(|separator| line.contains(separator));
        let is_header = |it: &Self| {
            it.cells.iter().all(|cell| is_word(cell) || cell.is_empty())
                && it.fields.iter().flatten().count() > 1
        };
        separators.map(cut).find(is_header)
    }

    /// Whether the header suffices to read the table without further configuration.
    pub(in crate::trace) fn is_identified(&self) -> bool {
        self.has(KEY) && self.has(SIZE)
    }

    /// Whether every column has a usual name or one known from published traces. A comment with other words is a sentence.
    pub(in crate::trace) fn is_all_usual(&self) -> bool {
        let is_known =
            |(cell, field): (&&[u8], &Option<usize>)| field.is_some() || cell.is_empty() || is_unused(cell);
        self.cells.iter().zip(&self.fields).all(is_known)
    }

    /// The option that reads such a table, for a message.
    pub(in crate::trace) fn way(&self) -> String {
        if self.has(KEY) {
            return match self.has(SIZE) {
                true => "--format csv".to_owned(),
                false => "--format csv, each object with the page size (--page-size), since no column is called size".to_owned(),
            };
        }
        let key = self
            .cells
            .iter()
            .zip(&self.fields)
            .find_map(|(cell, field)| (field.is_none() && is_like_object(cell)).then(|| lossy(cell)));
        let known =
            self.cells.iter().zip(&self.fields).filter_map(|(cell, field)| Some((lossy(cell), (*field)?)));
        let known: String = known.map(|(cell, field)| format!(",{}={cell}", NAMES[field])).collect();
        match key {
            Some(key) => format!("--format csv:key={key}{known}, if `{key}` is the object"),
            None => {
                let all: Vec<String> = self.cells.iter().map(|cell| lossy(cell)).collect();
                format!(
                    "--format csv:key=COLUMN{known}, where COLUMN has the object's key: one of {}",
                    all.join(", ")
                )
            }
        }
    }

    /// Whether the table has a key column.
    pub(in crate::trace) fn has_key(&self) -> bool {
        self.has(KEY)
    }

    /// The error if the first columns cannot be `fields`; `None` if the names do not contradict.
    pub(in crate::trace) fn contradicts(&self, fields: &[&'static str]) -> Option<RowError> {
        let taken = fields.iter().filter_map(|name| NAMES.iter().position(|known| known == name));
        let mut columns = taken.zip(&self.fields).zip(&self.cells).enumerate();
        columns.find_map(|(place, ((taken, field), cell))| {
            let is_other = field.is_some_and(|field| field != taken);
            is_other.then(|| contradiction(place, taken, cell, self.cells.iter().copied()))
        })
    }

    /// Whether the columns are separated by spaces or tabs.
    pub(in crate::trace) fn is_spaced(&self) -> bool {
        self.separator.is_ascii_whitespace()
    }

    /// Whether the line has the same number of columns.
    pub(in crate::trace) fn fits(&self, line: &[u8]) -> bool {
        Cells::new(self.separator, line).count() == self.cells.len()
    }

    fn has(&self, field: usize) -> bool {
        self.fields.contains(&Some(field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_names_are_recognised_in_many_spellings() {
        for name in ["time", "TS", "Timestamp", "op_time", "timestamp_ms", "Time_ns"] {
            assert_eq!(field_called(name.as_bytes()), Some(TIME), "{name}");
        }
        assert_eq!(field_called(b"Size (bytes)"), Some(SIZE));
        assert_eq!(
            (field_called(b"Time [ms]"), time_units_per_second(b"Time [ms]")),
            (Some(TIME), Some(1000))
        );
        for name in ["Object ID", "obj-id", "key"] {
            assert_eq!(field_called(name.as_bytes()), Some(KEY), "{name}");
        }
        for name in ["times", "size_s", "size (KB)", "_ms", "url", ""] {
            assert_eq!(field_called(name.as_bytes()), None, "{name}");
        }
        assert_eq!(time_units_per_second(b"timestamp_us"), Some(1_000_000));
        assert_eq!(time_units_per_second(b"ts"), None);
    }

    #[test]
    fn header_is_a_line_of_words_with_two_known_names() {
        for line in ["time,key", "time\tid\tsize", "timestamp size  id", ",\"time\";\"key\"", ",time,key"] {
            assert_eq!(Header::of(line.as_bytes()).is_some(), !line.contains(';'), "{line}");
        }
        for line in ["key", "1,key,size", "what,where", "time, the key"] {
            assert!(Header::of(line.as_bytes()).is_none(), "{line}");
        }
    }

    #[test]
    fn option_to_read_a_table_is_suggested() {
        let way = |line: &'static str| Header::of(line.as_bytes()).unwrap().way();
        assert_eq!(way("ts,url,bytes"), "--format csv:key=url,time=ts,size=bytes, if `url` is the object");
        assert!(way("ts,id,op").starts_with("--format csv, each object with the page size"));
        assert_eq!(way("ts,id,size"), "--format csv");
        let none = way("datetime,host,op,size");
        assert!(
            none.starts_with("--format csv:key=COLUMN,time=datetime,op=op,size=size, where COLUMN"),
            "{none}"
        );
    }
}
