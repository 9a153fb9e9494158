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
    /// The valid name with the smallest edit distance.
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
        let nearest = valid.iter().copied().min_by_key(distance).expect("there are names");
        Self { what, given: given.to_owned(), nearest, valid }
    }

    /// Whether the nearest name differs in less than half of its letters. A more distant suggestion would be a guess.
    fn is_near(&self) -> bool {
        let (given, nearest) = (plain(&self.given), plain(self.nearest));
        2 * strsim::damerau_levenshtein(&nearest, &given) <= given.len().max(nearest.len())
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

/// The name in lower case, without `-` and `_`.
pub(crate) fn plain(name: &str) -> String {
    name.chars()
        .filter(|letter| !matches!(letter, '-' | '_'))
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}
