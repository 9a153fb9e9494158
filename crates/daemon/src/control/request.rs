//! The request line of the control socket.

/// Longest request line. Two lists of a hundred IPv6 networks fit.
pub const MAX_REQUEST_BYTES: u64 = 16_384;

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// Returns the state of the server and its cache.
    Status,
    /// Changes settings, each given as `KEY=VALUE`.
    Set(Vec<&'a str>),
    /// Writes all dirty blocks back to the disk.
    Flush,
    /// Upgrades the cache to the newest format.
    Upgrade,
}

impl<'a> Request<'a> {
    /// Parses the line of a request, which ends with a line feed.
    ///
    /// # Errors
    /// The line is incomplete or longer than [`MAX_REQUEST_BYTES`], or its first word is not a request.
    pub fn parse(line: &'a str) -> Result<Self, String> {
        // A truncated setting could be a different valid one.
        if !line.ends_with('\n') || line.len() as u64 > MAX_REQUEST_BYTES {
            return Err(format!("a request must be one line of at most {MAX_REQUEST_BYTES} bytes"));
        }
        let mut words = line.split_whitespace();
        match words.next() {
            Some("status") => Ok(Self::Status),
            Some("set") => Ok(Self::Set(words.collect())),
            Some("flush") => Ok(Self::Flush),
            Some("upgrade") => Ok(Self::Upgrade),
            _ => Err(format!(
                "unknown request {:?}; the requests are status, set, flush and upgrade",
                line.trim_end()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines_are_parsed_and_others_are_rejected_with_reason() {
        assert_eq!(Request::parse("status\n"), Ok(Request::Status));
        assert_eq!(Request::parse("set a=1 b=2\n"), Ok(Request::Set(vec!["a=1", "b=2"])));
        assert_eq!(Request::parse("flush \r\n"), Ok(Request::Flush));
        assert_eq!(Request::parse("upgrade\n"), Ok(Request::Upgrade));
        let unknown = "unknown request \"stop\"; the requests are status, set, flush and upgrade";
        assert_eq!(Request::parse("stop\n"), Err(unknown.into()));
        let long = format!("set {}\n", "a".repeat(MAX_REQUEST_BYTES as usize));
        for line in ["", "set dirty_percent=1", &long] {
            assert!(Request::parse(line).unwrap_err().starts_with("a request must be one line"), "{line}");
        }
    }
}
