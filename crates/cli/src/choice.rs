//! Flags whose value is one of a few names.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A name, its text in the long help, and its value.
pub type Choice<T> = (&'static str, Option<&'static str>, T);

/// Parses the name of one of `choices`, which the help lists.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let named = choices.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(named).map(|typed| {
        let chosen = choices.iter().find(|(name, ..)| *name == typed);
        chosen.unwrap_or_else(|| unreachable!("another name is refused")).2
    })
}

/// The name of a value of `choices`.
pub fn name_of<T: PartialEq>(choices: &[Choice<T>], value: &T) -> &'static str {
    choices.iter().find(|(.., it)| it == value).map_or("", |(name, ..)| name)
}
