//! Refuses flags that have no effect with the chosen pattern or drive.

use clap::ValueEnum as _;

use super::{Arguments, PatternName, PlacementName};

/// Refuses a flag that has no effect on this run.
pub(super) fn check(arguments: &Arguments) -> Result<(), String> {
    let Arguments { pattern, placement, .. } = *arguments;
    let places_data = placement.is_some_and(|placement| placement != PlacementName::Off);
    let by_pattern = [
        ("--random-space", arguments.random_space.is_some(), PatternName::Mixed),
        ("--random-writes", arguments.random_writes.is_some(), PatternName::Mixed),
        ("--zipf-exponent", arguments.zipf_exponent.is_some(), PatternName::Zipf),
    ];
    let lost = by_pattern.into_iter().find(|(_, is_given, heeds)| *is_given && *heeds != pattern);
    if let Some((flag, _, heeds)) = lost {
        let (heeds, pattern) = (name(heeds), name(pattern));
        return Err(format!("{flag}: has no effect with --pattern {pattern}; it is for --pattern {heeds}"));
    }
    if arguments.collection_frontier.is_some() && places_data {
        let text = "has no effect on a drive that places data, which separates relocated data by handle";
        return Err(format!("--collection-frontier: {text}; it is for --placement off"));
    }
    Ok(())
}

fn name(pattern: PatternName) -> String {
    pattern.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
