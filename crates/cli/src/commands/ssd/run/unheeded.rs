//! Flags that the pattern or the drive does not heed: nothing that is asked for is left out in silence.

use clap::ValueEnum as _;

use super::{Arguments, PatternName, PlacementName};

/// Refuses a flag that says nothing to this run.
pub(super) fn check(arguments: &Arguments) -> Result<(), String> {
    let Arguments { pattern, placement, .. } = *arguments;
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
    if arguments.collection_frontier.is_some() && placement != PlacementName::Off {
        let words = "has no effect on a drive that places data, which separates relocated data by handle";
        return Err(format!("--collection-frontier: {words}; it is for --placement off"));
    }
    Ok(())
}

fn name(pattern: PatternName) -> String {
    pattern.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
