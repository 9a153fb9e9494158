//! Names that were mistyped.

/// More likeness (0..1) than this, and a name was meant.
const LIKE: f64 = 0.8;

/// The question whether the most similar of `names` was meant; no words where none is similar.
pub(crate) fn hint(name: &str, names: &[&str]) -> String {
    let name = name.to_lowercase();
    let likeness = |candidate: &str| strsim::jaro_winkler(&name, candidate);
    let nearest = names.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    nearest
        .filter(|near| likeness(near) > LIKE)
        .map_or_else(String::new, |near| format!("did you mean `{near}`? "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_asked_for() {
        assert_eq!(hint("PM9D4", &["tlc", "pm9d3"]), "did you mean `pm9d3`? ");
        assert_eq!(hint("gready", &["fifo", "greedy"]), "did you mean `greedy`? ");
        assert_eq!((hint("samsung", &["tlc", "pm9d3"]), hint("x", &[])), (String::new(), String::new()));
    }
}
