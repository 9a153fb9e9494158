//! Result files as `compare` and `report` read them.

use std::sync::OnceLock;

use bench::report::compare::compare;
use bench::report::finished::Finished;
use bench::report::page;

use crate::scratch::Scratch;

/// The extensions that determine the format.
const NAMES: [&str; 3] = ["run.json", "run.csv", "run.jsonl"];

/// A valid result.
fn valid() -> &'static Finished {
    static VALID: OnceLock<Finished> = OnceLock::new();
    VALID.get_or_init(|| {
        let scratch = Scratch::new();
        let file = scratch.file("valid.json", &include_bytes!("../seeds/results/bench.json")[1..]);
        Finished::read(&file).unwrap()
    })
}

/// Reads the bytes after the first one, which chooses the format. A file that is accepted can be compared with itself and with a valid
/// result, and rendered.
pub fn check(data: &[u8]) {
    let Some((&format, bytes)) = data.split_first() else { return };
    let scratch = Scratch::new();
    let file = scratch.file(NAMES[usize::from(format) % NAMES.len()], bytes);
    let run = match Finished::read(&file) {
        Ok(run) => run,
        Err(error) => {
            let message = error.to_string();
            return assert!(
                message.starts_with(file.to_str().unwrap()) && message.lines().count() == 1,
                "{message}"
            );
        }
    };
    page::render(&[run.clone(), valid().clone()]).unwrap();
    page::render(std::slice::from_ref(&run)).unwrap();
    for (a, b) in [(&run, valid()), (valid(), &run), (&run, &run)] {
        let sides = [vec![a.clone()], vec![b.clone(), a.clone()]];
        if let Ok(comparison) = compare(&sides[0], &sides[1][..1]).and(compare(&sides[0], &sides[1])) {
            assert!(!comparison.to_text().is_empty() && comparison.to_json()["figures"].is_array());
            let is_worse = comparison.worse().iter().any(|line| line.starts_with("worse: "));
            assert!(!is_worse || !std::ptr::eq(a, b), "a run is not worse than itself");
        }
    }
}
