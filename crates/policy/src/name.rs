//! Names that choose a policy.

use std::error::Error;
use std::fmt;

/// A name that is no policy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// What the name was to choose: "eviction policy", "admission policy".
    pub what: &'static str,
    /// The name as it was given.
    pub given: String,
    /// The valid name that looks most like it.
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
}

impl fmt::Display for UnknownName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, given, nearest, valid } = self;
        write!(out, "no {what} is named `{given}`: did you mean `{nearest}`? (valid: {})", valid.join(", "))
    }
}

impl Error for UnknownName {}

/// The name without what does not matter in it: case, `-` and `_`.
pub(crate) fn plain(name: &str) -> String {
    name.chars()
        .filter(|letter| !matches!(letter, '-' | '_'))
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}
