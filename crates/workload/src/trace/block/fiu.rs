//! Florida International University's traces with content digests (Koller and Rangaswami, FAST '10; SNIA IOTTA 391, 414): `ns pid process
//! sector sectors W|R major minor md5`.
//!
//! Separated by spaces. The process name can contain spaces, so a line is parsed from both ends. The published description has a
//! digest per 4096 bytes, and one per 512 bytes in the traces `homes`: a row can end in several.

use super::fields::{event, lines, lossy, number, sectors};
use super::{Device, Found, LineDecoder, RowProblem};
use crate::block::BlockKind;

/// Digits of an MD5 digest.
const DIGEST_DIGITS: usize = 32;

pub(super) fn matches_head(head: &[u8]) -> bool {
    let first = lines(head).next();
    first.is_some_and(|line| {
        let digest = line.rsplit(u8::is_ascii_whitespace).next().unwrap_or_default();
        is_digest(digest) && matches!(Fiu.line(line), Ok(Found::Event(_)))
    })
}

fn is_digest(word: &[u8]) -> bool {
    word.len() == DIGEST_DIGITS && word.iter().all(u8::is_ascii_hexdigit)
}

pub(super) struct Fiu;

impl LineDecoder for Fiu {
    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        let mut words: Vec<&[u8]> =
            line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        while let [.., one, other] = words[..]
            && is_digest(one)
            && is_digest(other)
        {
            words.pop();
        }
        let [time, _pid, _process, .., sector, count, kind, major, minor, _digest] = words[..] else {
            return Err(RowProblem::Columns { has: words.len(), needs: 9 });
        };
        let kind = match kind {
            b"R" | b"r" => BlockKind::Read,
            b"W" | b"w" => BlockKind::Write,
            other => return Err(RowProblem::Operation(lossy(other))),
        };
        let part = |word: &[u8], field| {
            let found = number(word, field)?;
            u32::try_from(found).map_err(|_| RowProblem::Number { field, text: lossy(word) })
        };
        let device = Device::Numbered(part(major, "major")?, part(minor, "minor")?);
        let (first_byte, bytes) = (sectors(number(sector, "sector")?)?, sectors(number(count, "sectors")?)?);
        event(number(time, "time")?, kind, first_byte, bytes, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::Event;

    #[test]
    fn published_row_is_read() {
        let line = b"89966047790 4253 nfsd 508420976 8 W 6 0 8f5fbb8b9ab7ae9ab9a8cb3df4b8f1d4";
        let event = Event {
            time_ns: 89_966_047_790,
            kind: BlockKind::Write,
            first_byte: 508_420_976 * 512,
            bytes: 4096,
            device: Device::Numbered(6, 0),
        };
        assert_eq!(Fiu.line(line), Ok(Found::Event(event)));
        assert!(matches_head(line));
        let spaced = b"1 2 kworker u8:1 x 8 8 R 8 1 8f5fbb8b9ab7ae9ab9a8cb3df4b8f1d4";
        assert!(matches!(Fiu.line(spaced), Ok(Found::Event(Event { first_byte: 4096, .. }))));
        assert_eq!(Fiu.line(b"1 2 a 8 8 R 8 1"), Err(RowProblem::Columns { has: 8, needs: 9 }));
        let several = [&line[..], &b" 8f5fbb8b9ab7ae9ab9a8cb3df4b8f1d4".repeat(7)].concat();
        assert_eq!(Fiu.line(&several), Fiu.line(line));
        assert!(matches_head(&several));
        assert!(!matches_head(b"89966047790 4253 nfsd 508420976 8 W 6 0 word"));
    }
}
