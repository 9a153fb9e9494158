//! Parsing of policy names.

use std::error::Error;
use std::fmt;

/// An unknown policy name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// The kind of policy: "eviction policy", "admission policy".
    pub what: &'static str,
    /// The name as typed.
    pub given: String,
    /// The valid name that is the given one with settings, otherwise the one with the smallest edit distance.
    pub nearest: &'static str,
    /// All valid names.
    pub valid: Vec<&'static str>,
}

impl UnknownName {
    /// An error for a name that is not in `valid`, which must not be empty.
    #[must_use]
    pub fn new(what: &'static str, given: &str, valid: impl Iterator<Item = &'static str>) -> Self {
        let valid: Vec<_> = valid.collect();
        let distance = |name: &&str| strsim::damerau_levenshtein(&plain(name), &plain(given));
        let longer = valid.iter().find(|name| extends(name, given));
        let nearest = longer.or_else(|| valid.iter().min_by_key(|name| distance(name)));
        let nearest = *nearest.expect("there are names");
        Self { what, given: given.to_owned(), nearest, valid }
    }

    /// Whether the nearest name differs in less than half of its letters. A more distant suggestion would be a guess.
    fn is_near(&self) -> bool {
        let (given, nearest) = (plain(&self.given), plain(self.nearest));
        extends(self.nearest, &given)
            || 2 * strsim::damerau_levenshtein(&nearest, &given) <= given.len().max(nearest.len())
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, given, nearest, valid } = self;
        write!(out, "no {what} is named `{given}`: ")?;
        if self.is_near() {
            write!(out, "did you mean `{nearest}`? ")?;
        }
        write!(out, "(valid: {})", valid.join(", "))
    }
}

impl Error for UnknownName {}

/// Whether the name is the given one with settings: `s4fifo-s20` for `S4-FIFO`.
fn extends(name: &str, given: &str) -> bool {
    name.split('-').next().is_some_and(|first| plain(first) == plain(given))
}

/// The name in lower case, without `-` and `_`.
pub(crate) fn plain(name: &str) -> String {
    name.chars()
        .filter(|letter| !matches!(letter, '-' | '_'))
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_name_is_nearer_than_one_with_another_letter() {
        let nearest = |given| {
            let valid = ["lru", "s3fifo", "s4fifo-s20-g300"];
            UnknownName::new("policy", given, valid.into_iter()).to_string()
        };
        assert!(nearest("S4-FIFO").contains("did you mean `s4fifo-s20-g300`?"), "{}", nearest("S4-FIFO"));
        assert!(nearest("s3fif").contains("did you mean `s3fifo`?"));
        assert!(nearest("s5fifo").contains("did you mean `s3fifo`?"));
        assert!(!nearest("belady").contains("did you mean"));
    }
}
