//! The request line of the block cache's control socket.

use block::export::ClientRules;
use block::sets::Preset;
use daemon::control::Request;
use daemon::settings::{Given, GivenRules, SETTINGS, action};

/// Parses the line, and applies each setting to the defaults. An error is one line, and leaves every setting valid.
pub fn check(data: &[u8]) {
    let line = String::from_utf8_lossy(data);
    let assignments = match Request::parse(&line) {
        Err(reason) => return assert_is_line(&reason),
        Ok(Request::Set(assignments)) => assignments,
        Ok(_) => return,
    };
    let mut tuning = Preset::V2.tuning();
    let (mut given, mut rules) = (Given::to(&mut tuning), GivenRules::to(ClientRules::default()));
    for assignment in assignments {
        let applied = match (action(assignment), rules.apply(assignment)) {
            (Ok(None), Ok(false)) => given.apply("", assignment),
            (action, rule) => action.map(drop).and(rule.map(drop)),
        };
        if let Err(reason) = applied {
            return assert_is_line(&reason);
        }
    }
    // Each value can be set again, so none lies outside its range.
    let mut again = tuning;
    for setting in SETTINGS {
        let value = (setting.get)(&tuning);
        if let Some(value) = daemon::settings::shown(&value) {
            Given::to(&mut again).apply("", &format!("{}={value}", setting.name)).unwrap();
        }
    }
    assert_eq!(again, tuning);
}

fn assert_is_line(reason: &str) {
    assert!(!reason.is_empty() && !reason.contains('\n'), "{reason:?}");
}
