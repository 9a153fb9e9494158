//! Words of messages: suggestions for mistyped names of devices, drives, keys and settings, and plurals.

/// Least similarity (0 to 1) for a suggestion.
const LEAST_SIMILARITY: f64 = 0.8;

/// The candidate most similar to `name`, if one is similar enough.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let similarity = |candidate: &str| strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase());
    candidates
        .map(|candidate| (similarity(candidate), candidate))
        .filter(|(similarity, _)| *similarity > LEAST_SIMILARITY)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// A question that suggests the [nearest] name, followed by a space; empty if no name is similar.
pub fn hint<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or_else(String::new, |near| format!("did you mean `{near}`? "))
}

/// The singular or plural of `noun`: one request, two requests, two accesses.
#[must_use]
pub fn noun(count: u64, noun: &str) -> String {
    match count {
        1 => noun.to_owned(),
        _ if noun.ends_with('s') => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_similar_names_are_suggested() {
        let hint = |name, names: &[&'static str]| super::hint(name, names.iter().copied());
        assert_eq!(hint("PM9D4", &["tlc", "pm9d3"]), "did you mean `pm9d3`? ");
        assert_eq!(hint("gready", &["fifo", "greedy"]), "did you mean `greedy`? ");
        assert_eq!((hint("samsung", &["tlc", "pm9d3"]), hint("x", &[])), (String::new(), String::new()));
    }
}
