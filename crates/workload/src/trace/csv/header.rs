//! What the headers of tables call their columns.

use super::{COUNT, Cells, FIELDS, KEY, NAMES, OP, SEPARATORS, SIZE, TENANT, TIME, TTL};
use crate::trace::columns::{RowError, bare, lossy};

/// What published traces call the fields, besides our own names: in small letters, with `_` for blanks, hyphens and brackets.
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

/// A column that the header calls otherwise than it was taken for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "column {column} was taken for `{taken}`, and the header calls it `{header}`: list the columns as the header has \
     them (csv:{order}), or give a column by its name to take it for something else (as in {taken}={header})"
)]
pub struct Contradiction {
    /// Its place, from 1.
    pub column: usize,
    /// What it was taken for.
    pub taken: &'static str,
    /// What the header calls it.
    pub header: String,
    /// The columns by the header.
    pub order: String,
}

/// What the name of a time may end in.
const UNITS: [(&str, u64); 4] = [("_s", 1), ("_ms", 1_000), ("_us", 1_000_000), ("_ns", 1_000_000_000)];

/// The field that a column of this name is.
pub(super) fn field_called(name: &[u8]) -> Option<usize> {
    let name = plain(name);
    let is_time = |name: &str| known(name) == Some(TIME);
    let with_unit = || UNITS.iter().any(|(unit, _)| name.strip_suffix(unit).is_some_and(is_time));
    known(&name).or_else(|| with_unit().then_some(TIME))
}

/// Whether a column has this name among the usual ones of any field.
pub(in crate::trace) fn is_usual(cell: &[u8]) -> bool {
    field_called(bare(cell)).is_some()
}

/// Whether a column of this name is the time of a request.
pub(in crate::trace) fn is_time(cell: &[u8]) -> bool {
    field_called(bare(cell)) == Some(TIME)
}

/// The unit that the name of a time ends in.
pub(super) fn time_units_per_second(name: &[u8]) -> Option<u64> {
    let name = plain(name);
    UNITS.iter().find(|(unit, _)| name.ends_with(unit)).map(|(_, units)| *units)
}

/// Whether a header calls a column so. The sign of a remark ahead of a header is no part of its first name.
pub(super) fn is_called(cell: &[u8], name: &str) -> bool {
    unmarked(cell).eq_ignore_ascii_case(unmarked(name.as_bytes()))
}

fn unmarked(name: &[u8]) -> &[u8] {
    let signs = name.iter().take_while(|byte| **byte == b'#').count();
    name[signs..].trim_ascii()
}

/// Whether it begins as a name does, and not as a number.
pub(super) fn is_word(cell: &[u8]) -> bool {
    matches!(cell, [b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'#', ..])
}

/// Column and field of each field that has a usual name. Our own names come before others, and of others the first.
pub(super) fn places(cells: &[&[u8]]) -> Vec<(usize, usize)> {
    let names: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
    let place = |field: usize| {
        let own = names.iter().position(|name| name == NAMES[field]);
        own.or_else(|| cells.iter().position(|cell| field_called(cell) == Some(field)))
    };
    (0..FIELDS).filter_map(|field| Some((place(field)?, field))).collect()
}

/// Column number `place`, from 0, was taken for a field, and is called otherwise.
pub(super) fn contradiction<'a>(
    place: usize,
    taken: usize,
    cell: &[u8],
    cells: impl Iterator<Item = &'a [u8]>,
) -> RowError {
    let (taken, header) = (NAMES[taken], lossy(cell));
    RowError::Contradicted(Box::new(Contradiction { column: place + 1, taken, header, order: order(cells) }))
}

/// The columns of a header as a list of fields, `-` for those that have no usual name.
fn order<'a>(cells: impl Iterator<Item = &'a [u8]>) -> String {
    let fields: Vec<&str> = cells.map(|cell| field_called(cell).map_or("-", |field| NAMES[field])).collect();
    fields.join(",")
}

/// Whether published traces have a column of this name that is not used.
pub(super) fn is_unused(name: &[u8]) -> bool {
    UNUSED.contains(&plain(name).as_str())
}

/// Whether a column of this name may well be an object: a URL or a hash is, a date or a length is not.
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

/// As the names above are written: `size_bytes` of `Size (bytes)`.
fn plain(name: &[u8]) -> String {
    let words = String::from_utf8_lossy(name).to_lowercase().replace(['-', '(', ')', '[', ']'], " ");
    words.split_ascii_whitespace().collect::<Vec<_>>().join("_")
}

/// The header of a table, told by the names in it.
pub(in crate::trace) struct Header<'a> {
    separator: u8,
    cells: Vec<&'a [u8]>,
    /// What each column is, where its name is a usual one.
    fields: Vec<Option<usize>>,
}

impl<'a> Header<'a> {
    /// The columns of a line of words, several of which have usual names. `None` for any other line: a word alone may stand in
    /// a row.
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

    /// Whether a row of it tells of a request without anybody saying more.
    pub(in crate::trace) fn is_told(&self) -> bool {
        self.has(KEY) && self.has(SIZE)
    }

    /// Whether every column that has a name has a usual one, or one of a published trace. A remark that has others is a sentence.
    pub(in crate::trace) fn is_all_usual(&self) -> bool {
        let is_known =
            |(cell, field): (&&[u8], &Option<usize>)| field.is_some() || cell.is_empty() || is_unused(cell);
        self.cells.iter().zip(&self.fields).all(is_known)
    }

    /// How such a table is read, for a message.
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
                    "--format csv:key=COLUMN{known}, COLUMN being the one of the object among {}",
                    all.join(", ")
                )
            }
        }
    }

    /// Whether a column is the object.
    pub(in crate::trace) fn has_key(&self) -> bool {
        self.has(KEY)
    }

    /// What is wrong with taking its first columns for these fields; nothing, where their names say nothing else.
    pub(in crate::trace) fn contradicts(&self, fields: &[&'static str]) -> Option<RowError> {
        let taken = fields.iter().filter_map(|name| NAMES.iter().position(|known| known == name));
        let mut columns = taken.zip(&self.fields).zip(&self.cells).enumerate();
        columns.find_map(|(place, ((taken, field), cell))| {
            let is_other = field.is_some_and(|field| field != taken);
            is_other.then(|| contradiction(place, taken, cell, self.cells.iter().copied()))
        })
    }

    /// Whether blanks or tabs stand between its columns.
    pub(in crate::trace) fn is_spaced(&self) -> bool {
        self.separator.is_ascii_whitespace()
    }

    /// Whether the line has as many columns.
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
    fn names_are_known_in_many_spellings() {
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
    fn a_header_is_a_line_of_words_several_of_which_are_names() {
        for line in ["time,key", "time\tid\tsize", "timestamp size  id", ",\"time\";\"key\"", ",time,key"] {
            assert_eq!(Header::of(line.as_bytes()).is_some(), !line.contains(';'), "{line}");
        }
        for line in ["key", "1,key,size", "what,where", "time, the key"] {
            assert!(Header::of(line.as_bytes()).is_none(), "{line}");
        }
    }

    #[test]
    fn the_way_to_read_a_table_is_named() {
        let way = |line: &'static str| Header::of(line.as_bytes()).unwrap().way();
        assert_eq!(way("ts,url,bytes"), "--format csv:key=url,time=ts,size=bytes, if `url` is the object");
        assert!(way("ts,id,op").starts_with("--format csv, each object with the page size"));
        assert_eq!(way("ts,id,size"), "--format csv");
        let none = way("datetime,host,op,size");
        assert!(
            none.starts_with("--format csv:key=COLUMN,time=datetime,op=op,size=size, COLUMN being"),
            "{none}"
        );
    }
}
