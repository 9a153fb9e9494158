//! Splits a row into cells.

use memchr::memchr;

/// The cells between separators. Repeated, leading and trailing spaces count as one separator. A separator inside quotes belongs to the
/// cell.
pub(super) struct Cells<'a> {
    separator: u8,
    /// `None` at the end.
    rest: Option<&'a [u8]>,
}

impl<'a> Cells<'a> {
    #[inline]
    pub(super) fn new(separator: u8, line: &'a [u8]) -> Self {
        Self { separator, rest: Some(if separator == b' ' { line.trim_ascii() } else { line }) }
    }
}

impl<'a> Iterator for Cells<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let line = self.rest.take()?;
        let quoted = if line.first() == Some(&b'"') { quoted_bytes(line) } else { 0 };
        let Some(end) = memchr(self.separator, &line[quoted..]) else { return Some(line) };
        let (cell, behind) = (&line[..quoted + end], &line[quoted + end + 1..]);
        self.rest = Some(if self.separator == b' ' { behind.trim_ascii_start() } else { behind });
        Some(cell)
    }
}

/// Bytes up to the closing quote; a doubled quote does not close. 0 if there is none.
fn quoted_bytes(line: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = memchr(b'"', &line[at..]) {
        at += found + 1;
        if line.get(at) != Some(&b'"') {
            return at;
        }
        at += 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separator_inside_quotes_does_not_split() {
        let cells = |separator, line: &'static str| -> Vec<&str> {
            let cells = Cells::new(separator, line.as_bytes());
            cells.map(|cell| std::str::from_utf8(cell).unwrap()).collect()
        };
        assert_eq!(cells(b',', r#"1,"a,b",2"#), ["1", r#""a,b""#, "2"]);
        assert_eq!(cells(b' ', r#""a b"  2"#), [r#""a b""#, "2"]);
        assert_eq!(cells(b',', r#""a,""b"",c",2"#), [r#""a,""b"",c""#, "2"]);
        assert_eq!(cells(b',', r#""a,b"#), [r#""a"#, "b"], "the quote is not closed");
        assert_eq!(cells(b',', r#""",a"#), [r#""""#, "a"]);
        assert_eq!(cells(b',', ""), [""]);
    }
}
