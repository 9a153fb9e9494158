//! Meta's block storage traces (Tectonic; CacheBench's `storage/202312`).
//!
//! | column | required | meaning |
//! |---|---|---|
//! | `block_id`, `rs_shard_id` | the first | the block, and its shard, which is a separate file |
//! | `io_offset`, `io_size` | yes | the requested range of the shard |
//! | `op_name` | yes | `getChunkData.…` reads, `putChunk.…` writes |
//! | `op_time` | no | seconds |
//! | `op_count` | no: 1 | number of repetitions (CacheBench uses 1) |
//! | `block_id_size` | no | length of the block's name in a key, including its shard |
//! | `user_namespace`, `user_name` | no | the tenant: `user_namespace/user_name` |
//!
//! Other columns are ignored. The header gives the order of columns.

use xxhash_rust::xxh3::xxh3_64;

use super::columns::{RowError, lossy, nanoseconds, number};
use super::cut::{Cut, chunks};
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::rows::{Extent, MAX_IO_BYTES, numbered};
use super::rows::{ReaderOptions, Row, Rows};
use super::table::{Order, Table, reader};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "storage",
    about: "Meta's block storage CSV (Tectonic, storage/202312)",
    extensions: &[],
    pages: Pages::Of(128 << 10),
    time_units: TimeUnits::Default(1),
    files: FileOrder::InTurn,
    plausible: |head| head.header_names("block_id"),
    reader: reader::<Storage, { NAMES.len() }>,
};

const NAMES: [&str; 10] = [
    "op_time",
    "block_id",
    "io_size",
    "io_offset",
    "user_name",
    "user_namespace",
    "op_name",
    "rs_shard_id",
    "op_count",
    "block_id_size",
];
const OP_TIME: usize = 0;
const BLOCK_ID: usize = 1;
const IO_SIZE: usize = 2;
const IO_OFFSET: usize = 3;
const USER_NAME: usize = 4;
const USER_NAMESPACE: usize = 5;
const OP_NAME: usize = 6;
const RS_SHARD_ID: usize = 7;
const OP_COUNT: usize = 8;
const BLOCK_ID_SIZE: usize = 9;

struct Storage;

impl Table<{ NAMES.len() }> for Storage {
    const NAMES: [&'static str; NAMES.len()] = NAMES;
    const HEADERLESS: &'static [Order] = &[];
    const REQUIRED: &'static [usize] = &[BLOCK_ID, IO_SIZE, IO_OFFSET, OP_NAME];
    const TENANT: &'static [usize] = &[USER_NAMESPACE, USER_NAME];
    const IGNORED: &'static [&'static str] = &["host_name"];
    const ASSUMED: &'static [(usize, &'static str)] = &[(OP_COUNT, "each row is one request")];

    #[inline]
    fn read(fields: &[&[u8]; NAMES.len()], options: &ReaderOptions, rows: &mut Rows) -> Result<(), RowError> {
        if fields[BLOCK_ID].is_empty() {
            return Err(RowError::Missing("block_id"));
        }
        let kind = kind(fields[OP_NAME])?;
        let needed = |field: usize, max| {
            number(fields[field], NAMES[field], max)?.ok_or(RowError::Missing(NAMES[field]))
        };
        let (start_bytes, bytes) = (needed(IO_OFFSET, u64::MAX)?, needed(IO_SIZE, MAX_IO_BYTES)?);
        let time = rows.optional("op_time", number(fields[OP_TIME], "op_time", u64::MAX))?;
        let shard = number(fields[RS_SHARD_ID], "rs_shard_id", u64::MAX)?.unwrap_or(0);
        let most = u64::from(u32::MAX);
        let repeat = rows.optional("op_count", number(fields[OP_COUNT], "op_count", most))?.unwrap_or(1);
        if repeat == 0 {
            return Err(RowError::NoRequest);
        }
        let (object, size) = match options.cut {
            Cut::Chunks { chunk_bytes, block_bytes } => {
                let length = number(fields[BLOCK_ID_SIZE], "block_id_size", u64::MAX);
                let length = rows.optional("block_id_size", length)?.unwrap_or(0);
                let block = (fields[BLOCK_ID], shard, length);
                let items = chunks(block, (start_bytes, bytes), (chunk_bytes, block_bytes), rows)?;
                (rows.several(items), chunk_bytes)
            }
            _ => {
                // Hashed together: with the shard as the hash's seed, a short name can cancel the seed's effect.
                let volume = numbered(xxh3_64(fields[BLOCK_ID]), shard, 0);
                Extent { volume, start_bytes, bytes }.cut(options.page_bytes)
            }
        };
        let tenant = rows.tenant(&[fields[USER_NAMESPACE], fields[USER_NAME]]);
        rows.push(Row {
            time_ns: time.map(|time| nanoseconds(time, options.time_units_per_second)),
            tenant,
            repeat: repeat as u32,
            ..Row::new(kind, object, size)
        });
        Ok(())
    }
}

fn kind(op: &[u8]) -> Result<RequestKind, RowError> {
    if op.starts_with(b"getChunkData") {
        Ok(RequestKind::Get)
    } else if op.starts_with(b"putChunk") {
        Ok(RequestKind::Set)
    } else if op.is_empty() {
        Err(RowError::Missing("op_name"))
    } else {
        Err(RowError::Operation(lossy(op)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Object;
    use super::super::rows::only;
    use super::*;

    const HEADER: &[u8] = b"op_time,block_id,block_id_size,io_size,io_offset,user_name,user_namespace,op_name,op_count,host_name,rs_shard_id";

    fn read(line: &str) -> Result<Row, RowError> {
        let mut reader = (FORMAT.reader)(&ReaderOptions {
            time_units_per_second: 1,
            page_bytes: Some(128 << 10),
            ..ReaderOptions::default()
        });
        assert_eq!(reader.accept_header(HEADER), Ok(true));
        Ok(only(reader.as_mut(), line.as_bytes())?.0)
    }

    #[test]
    fn row_is_the_chunks_it_touches() {
        let row = read(
            "1702511878,12ce-9e05,40,8388608,0,4235083322,3487869255,getChunkData.Permanent,1,518845025,4",
        );
        let row = row.unwrap();
        assert!(matches!(row.object, Object::Numbered { first: 0, count: 64, .. }));
        assert_eq!((row.kind, row.value_bytes), (RequestKind::Get, 128 << 10));
        let other = read("1702511878,12ce-9e05,40,8388608,0,1,2,putChunk.Permanent,1,1,5").unwrap();
        assert_ne!(other.object, row.object, "shards are separate files");
        assert_eq!(other.kind, RequestKind::Set);
    }

    #[test]
    fn row_repeats_by_its_count() {
        let row = |count: &str| read(&format!("1,b,1,100,0,1,2,getChunkData.X,{count},1,5"));
        assert_eq!((row("3").unwrap().repeat, row("").unwrap().repeat), (3, 1));
        assert_eq!(row("0"), Err(RowError::NoRequest));
    }

    /// Catches a regression: the shard is used as the seed of the name's hash, so short names collide.
    #[test]
    fn short_block_names_in_different_shards_are_distinct() {
        let object = |name: u8, shard: u8| {
            read(&format!("1,b{name},2,1,0,1,2,getChunkData.X,1,1,{shard}")).unwrap().object
        };
        let all: Vec<Object> =
            (0..100).flat_map(|name| (0..4).map(move |shard| object(name, shard))).collect();
        assert!(all.iter().enumerate().all(|(i, one)| !all[..i].contains(one)));
    }

    #[test]
    fn invalid_row_reports_the_reason() {
        for (line, message) in [
            ("1,b,1,1,0,1,2,renameChunk,1,1,5", "`renameChunk` is not a known operation"),
            ("1,b,1,,0,1,2,putChunk.X,1,1,5", "column `io_size` is missing"),
            ("1,,1,1,0,1,2,putChunk.X,1,1,5", "column `block_id` is missing"),
        ] {
            assert_eq!(read(line).unwrap_err().to_string(), message, "{line}");
        }
    }
}
