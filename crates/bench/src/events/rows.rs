//! Events as CSV rows with CacheLib's names, or names of the same style if CacheLib has none.

use std::io::Write as _;
use std::ops::Range;

use cache::Layer;
use cache::event::{Event, EventKind, PutEnd};

/// CacheLib's columns.
pub const COLUMNS: &str = "Ts,Event,Result,Key";
/// CacheLib's columns and ours.
pub const HEADER: &str = "Ts,Event,Result,Key,ValueBytes,TtlSeconds,RunNs\n";

/// Names of an event and its result.
pub type Name = (&'static str, &'static str);

/// Rows that wait to be written.
#[derive(Default)]
pub struct Batch {
    rows: Vec<Row>,
    keys: Vec<u8>,
}

struct Row {
    unix_seconds: u32,
    run_ns: u64,
    kind: EventKind,
    key: Range<usize>,
    value_bytes: Option<usize>,
    expiry_seconds: Option<u32>,
}

impl Batch {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.keys.clear();
    }

    pub fn push(&mut self, unix_seconds: u32, run_ns: u64, event: &Event<'_>) {
        let start = self.keys.len();
        self.keys.extend_from_slice(event.key);
        let (key, Event { kind, value_bytes, expiry_seconds, .. }) = (start..self.keys.len(), *event);
        self.rows.push(Row { unix_seconds, run_ns, kind, key, value_bytes, expiry_seconds });
    }

    /// Names of all rows.
    pub fn names(&self) -> impl Iterator<Item = Name> {
        self.rows.iter().map(|row| name(row.kind))
    }

    /// Appends all rows as text.
    pub fn render(&self, out: &mut Vec<u8>) {
        for row in &self.rows {
            let (event, result) = name(row.kind);
            // Writing to a vector cannot fail.
            let _ = write!(out, "{},{event},{result},", row.unix_seconds);
            quoted(&self.keys[row.key.clone()], out);
            let value_bytes = row.value_bytes.map_or_else(String::new, |bytes| bytes.to_string());
            let ttl = row.expiry_seconds.map(|second| second.saturating_sub(row.unix_seconds));
            let ttl = ttl.map_or_else(String::new, |seconds| seconds.to_string());
            let _ = writeln!(out, ",{value_bytes},{ttl},{}", row.run_ns);
        }
    }
}

/// Writes a key, in quotes if CSV requires it.
fn quoted(key: &[u8], out: &mut Vec<u8>) {
    if !key.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        return out.extend_from_slice(key);
    }
    out.push(b'"');
    for &byte in key {
        out.extend_from_slice(if byte == b'"' { b"\"\"" } else { std::slice::from_ref(&byte) });
    }
    out.push(b'"');
}

/// Names of an event and its result.
pub fn name(kind: EventKind) -> Name {
    match kind {
        EventKind::Found(Layer::Dram) => ("FIND", "FOUND"),
        EventKind::Found(Layer::Flash) => ("NVM_FIND", "FOUND"),
        EventKind::NotFound => ("FIND", "NOT_FOUND"),
        EventKind::Promoted => ("INSERT_FROM_NVM", "INSERTED"),
        EventKind::Inserted => ("INSERT_OR_REPLACE", "INSERTED"),
        EventKind::Replaced => ("INSERT_OR_REPLACE", "REPLACED"),
        EventKind::Present => ("INSERT", "FAILED"),
        EventKind::Overtaken => ("INSERT", "ABORTED"),
        EventKind::Refused(_) => ("ALLOCATE", "FAILED"),
        EventKind::Chained => ("ADD_CHAINED", "INSERTED"),
        EventKind::NotChained(_) => ("ADD_CHAINED", "FAILED"),
        EventKind::Removed(Layer::Dram) => ("REMOVE", "REMOVED"),
        EventKind::Removed(Layer::Flash) => ("NVM_REMOVE", "REMOVED"),
        EventKind::NotRemoved => ("REMOVE", "NOT_FOUND"),
        EventKind::Cleared => ("REMOVE", "CLEARED"),
        EventKind::Expired => ("REMOVE", "EXPIRED"),
        EventKind::EvictedFromDram { expired } => ("DRAM_EVICT", evicted(expired)),
        EventKind::Offered(end) => ("NVM_INSERT", put_end(end)),
        EventKind::EvictedFromFlash { expired } => ("NVM_EVICT", evicted(expired)),
    }
}

fn evicted(expired: bool) -> &'static str {
    if expired { "EXPIRED" } else { "EVICTED" }
}

fn put_end(end: PutEnd) -> &'static str {
    match end {
        PutEnd::Stored => "INSERTED",
        PutEnd::Clean => "CLEAN",
        PutEnd::Expired => "EXPIRED",
        PutEnd::ShortLived => "REJECTED_SHORT_LIVED",
        PutEnd::NotAdmitted => "REJECTED_ADMISSION",
        PutEnd::TooLarge => "REJECTED_TOO_LARGE",
        PutEnd::WornOut => "REJECTED_WORN_OUT",
        PutEnd::Failing => "REJECTED_FAILING",
        PutEnd::Overtaken => "ABORTED",
        PutEnd::HeldBack => "HELD_BACK",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_key_with_csv_characters_is_one_cell() {
        let cell = |key: &[u8]| {
            let mut out = Vec::new();
            quoted(key, &mut out);
            out
        };
        assert_eq!(cell(b"plain|#|key"), b"plain|#|key");
        assert_eq!(cell(b"a,b"), b"\"a,b\"");
        assert_eq!(cell(b"say \"x\"\n"), b"\"say \"\"x\"\"\n\"");
        assert_eq!(cell(b"\xff\x00"), b"\xff\x00");
    }
}
