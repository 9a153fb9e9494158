//! Names that people type: of devices, drives, keys, settings. Whoever refuses one says which was meant.

/// More likeness (0..1) than this, and a name was meant.
const LIKE: f64 = 0.8;

/// The candidate that `name` was most likely meant to be, if one is near enough.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |candidate: &str| strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase());
    candidates
        .map(|candidate| (likeness(candidate), candidate))
        .filter(|(likeness, _)| *likeness > LIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The question whether the [nearest] was meant, with a space behind it; no words where none is near.
pub fn hint<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or_else(String::new, |near| format!("did you mean `{near}`? "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_what_is_near_is_asked_for() {
        let hint = |name, names: &[&'static str]| super::hint(name, names.iter().copied());
        assert_eq!(hint("PM9D4", &["tlc", "pm9d3"]), "did you mean `pm9d3`? ");
        assert_eq!(hint("gready", &["fifo", "greedy"]), "did you mean `greedy`? ");
        assert_eq!((hint("samsung", &["tlc", "pm9d3"]), hint("x", &[])), (String::new(), String::new()));
    }
}
