//! How a file is divided into records, and the parts of a text that are none: its byte order mark and comments.

/// The way in which a file is split into records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// One record per line. Empty lines are skipped but counted.
    Lines,
    /// Records of this many bytes. A shorter last one is returned as it is.
    Fixed(usize),
    /// The format's reader finds the records.
    Streamed,
}

/// Length of the UTF-8 byte order mark at the start of a text. It is not part of the text.
pub(super) fn mark_bytes(head: &[u8]) -> usize {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    if head.starts_with(MARK) { MARK.len() } else { 0 }
}

/// The text of a comment line.
pub(super) fn comment_text(line: &[u8]) -> Option<&[u8]> {
    let text = line.trim_ascii_start().strip_prefix(b"#")?;
    let signs = text.iter().take_while(|byte| **byte == b'#').count();
    Some(text[signs..].trim_ascii())
}
