//! Files that must be unpacked or converted before they can be read, recognised by their first bytes, with the command to use.

use std::path::Path;

use super::input::{GZIP_MAGIC, XZ_MAGIC, ZSTD_MAGIC};

/// A file type, and the command that unpacks it; `FILE` is replaced by the file name.
struct Foreign {
    what: &'static str,
    command: &'static str,
}

/// Magic numbers long enough to be checked in files of any format.
const MARKS: [(&[u8], Foreign); 13] = [
    (b"PK\x03\x04", Foreign { what: "a ZIP archive", command: "unzip -p FILE" }),
    (b"\x04\x22\x4d\x18", Foreign { what: "LZ4 data", command: "lz4 -dc FILE" }),
    (b"7z\xbc\xaf\x27\x1c", Foreign { what: "a 7z archive", command: "7z x -so FILE" }),
    (b"PAR1", Foreign { what: "a Parquet file in a pipe or in compressed data", command: TWICE }),
    (&ZSTD_MAGIC, Foreign { what: "zstd data in compressed data", command: TWICE }),
    (&XZ_MAGIC, Foreign { what: "xz data in compressed data", command: TWICE }),
    (b"\x1f\x8b\x08", Foreign { what: "gzip data in compressed data", command: TWICE }),
    (b"\x89HDF\r\n\x1a\n", Foreign { what: "an HDF5 file", command: "h5dump FILE" }),
    (
        b"SQLite format 3\0",
        Foreign { what: "an SQLite database", command: "sqlite3 -csv -header FILE 'SELECT * FROM TABLE'" },
    ),
    (
        b"\x93NUMPY",
        Foreign {
            what: "a NumPy array",
            command: "python3 -c \"import numpy,sys; numpy.savetxt(sys.stdout, numpy.load('FILE'), '%d', ',')\"",
        },
    ),
    (
        b"ARROW1",
        Foreign {
            what: "an Arrow file",
            command: "python3 -c \"import pandas,sys; pandas.read_feather('FILE').to_csv(sys.stdout, index=False)\"",
        },
    ),
    (
        b"version https://git-lfs.github.com/",
        Foreign { what: "a pointer of Git LFS, not the data", command: NO_DATA },
    ),
    (b"<!DOCTYPE", Foreign { what: "an HTML page, not a trace", command: NO_DATA }),
];
/// Short magic numbers, checked in text files only: a binary trace may begin with the same bytes.
const TEXT_MARKS: [(&[u8], Foreign); 9] = [
    (b"BZh", Foreign { what: "bzip2 data", command: "bzip2 -dc FILE" }),
    (b"]\0\0", Foreign { what: "LZMA data without xz around it", command: "xz --format=lzma -dc FILE" }),
    (&GZIP_MAGIC, Foreign { what: "gzip data in compressed data", command: TWICE }),
    (b"\xff\xfe\0\0", Foreign { what: "UTF-32 text", command: "iconv -f UTF-32 -t UTF-8 FILE" }),
    (b"\0\0\xfe\xff", Foreign { what: "UTF-32 text", command: "iconv -f UTF-32 -t UTF-8 FILE" }),
    (b"<html", Foreign { what: "an HTML page, not a trace", command: NO_DATA }),
    (b"<!doctype", Foreign { what: "an HTML page, not a trace", command: NO_DATA }),
    (b"\xff\xfe", UTF16),
    (b"\xfe\xff", UTF16),
];
const UTF16: Foreign = Foreign { what: "UTF-16 text", command: "iconv -f UTF-16 -t UTF-8 FILE" };
/// Marks of files that no format matches: Mooncake's traces are JSON too.
const UNKNOWN_MARKS: [(&[u8], Foreign); 3] = [
    (b"{", Foreign { what: "JSON", command: "jq -r '[.TIME, .KEY, .SIZE] | @csv' FILE" }),
    (b"[{", Foreign { what: "JSON", command: "jq -r '.[] | [.TIME, .KEY, .SIZE] | @csv' FILE" }),
    (b"[\n", Foreign { what: "JSON", command: "jq -r '.[] | [.TIME, .KEY, .SIZE] | @csv' FILE" }),
];
const TWICE: &str = "";
/// The file has no trace in any form.
const NO_DATA: &str = "-";
const TAR: Foreign = Foreign { what: "a tar archive", command: "tar -xOf FILE" };

/// The type of a file that begins with `head`, and how to unpack it; `None` if it is not recognised. `is_text`: it would be read as
/// text.
pub(super) fn hint(path: &Path, head: &[u8], is_text: bool) -> Option<String> {
    let foreign = marked(&MARKS, head)
        .or_else(|| (head.get(257..262) == Some(b"ustar")).then_some(&TAR))
        .or_else(|| if is_text { marked(&TEXT_MARKS, head) } else { None })
        .or_else(|| (is_text && is_utf16(head)).then_some(&UTF16))?;
    Some(foreign.text(path))
}

/// As [`hint`], for a file that no format matches.
pub(super) fn hint_of_unknown(path: &Path, head: &[u8]) -> Option<String> {
    hint(path, head, true).or_else(|| marked(&UNKNOWN_MARKS, head).map(|foreign| foreign.text(path)))
}

fn marked(marks: &'static [(&[u8], Foreign)], head: &[u8]) -> Option<&'static Foreign> {
    marks.iter().find(|(mark, _)| head.starts_with(mark)).map(|(_, foreign)| foreign)
}

impl Foreign {
    fn text(&self, path: &Path) -> String {
        let Self { what, command } = self;
        if *command == TWICE {
            return format!("it is {what}: unpack it once");
        }
        if *command == NO_DATA {
            return format!("it is {what}: fetch the file again");
        }
        let command = command.replace("FILE", &path.display().to_string());
        format!("it is {what}, which is not read directly: {command} | flashwright ... -")
    }
}

/// Whether every other byte is zero and the rest is ASCII text.
fn is_utf16(head: &[u8]) -> bool {
    let (pairs, _) = head.as_chunks::<2>();
    let is_text = |byte: u8| (b' '..0x7f).contains(&byte) || b"\t\r\n".contains(&byte);
    let is = |zero: usize| pairs.iter().all(|pair| pair[zero] == 0 && is_text(pair[1 - zero]));
    pairs.len() > 4 && (is(0) || is(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_and_utf16_are_named_with_the_command_that_unpacks_them() {
        let message = |head: &[u8], is_text| hint(Path::new("t.bin"), head, is_text);
        let bzip2 = "it is bzip2 data, which is not read directly: bzip2 -dc t.bin | flashwright ... -";
        assert_eq!(message(b"BZh91AY&SY", true).as_deref(), Some(bzip2));
        assert_eq!(message(b"BZh91AY&SY", false), None, "a binary trace could begin with these bytes");
        assert!(message(b"PK\x03\x04", false).is_some_and(|it| it.contains("unzip -p t.bin")));
        let mut tar = vec![b'a'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        assert!(message(&tar, false).is_some_and(|it| it.contains("tar -xOf t.bin")));
        let utf16: Vec<u8> = "ts,key,op,size".bytes().flat_map(|byte| [byte, 0]).collect();
        assert!(message(&utf16, true).is_some_and(|it| it.contains("iconv -f UTF-16")));
        assert_eq!(message(b"ts,key,op,size\n", true), None);
        let utf32: Vec<u8> =
            "\u{feff}ts,key\n".chars().flat_map(|char| (char as u32).to_le_bytes()).collect();
        assert!(message(&utf32, true).is_some_and(|it| it.contains("iconv -f UTF-32")));
        assert_eq!(message(b"{\"timestamp\": 0}", true), None, "Mooncake's traces are JSON");
        let unknown = |head: &[u8]| hint_of_unknown(Path::new("t.bin"), head).unwrap();
        assert!(unknown(b"{\"time\": 0}").contains("it is JSON, which is not read directly: jq -r"));
        assert!(
            unknown(b"<!DOCTYPE html>").ends_with("it is an HTML page, not a trace: fetch the file again")
        );
        assert!(unknown(b"version https://git-lfs.github.com/spec/v1\n").contains("a pointer of Git LFS"));
        assert!(unknown(b"SQLite format 3\0\0").contains("sqlite3 -csv -header t.bin"));
    }
}
