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
    /// Records that the disk was enlarged.
    Grow,
    /// Moves the cache to another flash.
    ReplaceFlash {
        /// Whether to overwrite the contents of the new flash.
        force: bool,
        /// The name of the new flash, as for `--flash`.
        to: &'a str,
    },
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
            Some("grow") => Ok(Self::Grow),
            Some("replace-flash") => Self::replace_flash(line),
            _ => Err(format!(
                "unknown request {:?}; the requests are status, set, flush, upgrade, grow and replace-flash",
                line.trim_end()
            )),
        }
    }
}

impl<'a> Request<'a> {
    /// Parses `replace-flash [force] to PATH`. The path may contain spaces.
    fn replace_flash(line: &'a str) -> Result<Self, String> {
        let rest = line.trim_end().trim_start_matches("replace-flash").trim_start();
        let (force, rest) = rest.strip_prefix("force ").map_or((false, rest), |rest| (true, rest));
        match rest.strip_prefix("to ") {
            Some(to) if !to.is_empty() => Ok(Self::ReplaceFlash { force, to }),
            _ => Err("a replace-flash request must be: replace-flash [force] to PATH".into()),
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
        assert_eq!(Request::parse("grow\n"), Ok(Request::Grow));
        let to = "/dev/my flash";
        assert_eq!(
            Request::parse("replace-flash to /dev/my flash\n"),
            Ok(Request::ReplaceFlash { force: false, to })
        );
        let forced = Request::ReplaceFlash { force: true, to };
        assert_eq!(Request::parse("replace-flash force to /dev/my flash\n"), Ok(forced));
        assert!(Request::parse("replace-flash /dev/my flash\n").is_err());
        assert_eq!(Request::parse("upgrade\n"), Ok(Request::Upgrade));
        let unknown =
            "unknown request \"stop\"; the requests are status, set, flush, upgrade, grow and replace-flash";
        assert_eq!(Request::parse("stop\n"), Err(unknown.into()));
        let long = format!("set {}\n", "a".repeat(MAX_REQUEST_BYTES as usize));
        for line in ["", "set dirty_percent=1", &long] {
            assert!(Request::parse(line).unwrap_err().starts_with("a request must be one line"), "{line}");
        }
    }
}
