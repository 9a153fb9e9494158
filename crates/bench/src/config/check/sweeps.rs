//! Checks the keys of the iteration over DRAM (`dramIterator…`).

use super::super::findings::{Findings, join};
use super::super::keys::TestConfig;
use super::one_of;

const MODES: [&str; 3] = ["disabled", "regular", "lock_group"];

pub(super) fn check(test: &TestConfig, at: &str, findings: &mut Findings) {
    let at_mode = join(at, "dramIteratorMode");
    one_of(&test.iterator_mode, &MODES, &at_mode, findings);
    if test.iterator_work_ms > 0 && test.iterator_sleep_ms == 0 {
        let message = "must be 0 if dramIteratorSleepMs is 0: there are no pauses to work between";
        findings.problem(&join(at, "dramIteratorWorkMs"), message);
    }
    let is = |mode: &str| test.iterator_mode.eq_ignore_ascii_case(mode);
    if is("disabled") {
        return;
    }
    if test.iterator_interval_ms == 0 {
        findings.problem(&join(at, "dramIteratorIntervalMs"), "must be above 0");
    }
    if is("lock_group") {
        let message = "runs as `regular`, which holds no lock between items: the cache has no lock groups";
        findings.warning(&at_mode, message);
    }
}
