//! Reports about a cache, its settings, and a disk without a cache.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Ending, Place, printed};
use crate::flashwright;

#[test]
fn settings_of_a_cache_are_listed_served_or_not() {
    let place = Place::new();
    let json = ["--json", "-", "--quiet"];
    let figures = |output: std::process::Output| -> Value {
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(&output)))
    };
    let server = place.serve();
    assert!(place.ask("set", &["dirty_percent=33", "latency_gate_ms=20"]).status.success());
    let served = figures(place.ask("set", &json));
    let text = printed(&place.ask("set", &[]));
    server.stop();
    let closed = figures(place.run("set", &json, true));
    for listed in [&served, &closed] {
        assert_eq!((&listed["world"], &listed["tuning"]["dirty_percent"]), (&"real".into(), &33.into()));
        assert_eq!(listed["tuning"]["latency_gate_ms"], 20);
        assert_eq!(listed["settings"][4]["flashcache_names"][0], "dirty_thresh_pct");
    }
    let line = text.lines().find(|line| line.starts_with("dirty_percent ")).unwrap();
    assert!(line.split_whitespace().nth(1) == Some("33") && line.contains("share of dirty blocks"), "{line}");
    // Without a cache.
    let named = figures(flashwright(&[&["block", "set"][..], &json].concat()));
    assert_eq!((&named["tuning"], &named["settings"][0]["name"]), (&Value::Null, &"mode".into()));
}

/// Catches a regression: the result contains no figures, only that the command has ended.
#[test]
fn watch_result_has_the_last_figures() {
    let place = Place::new();
    let server = place.serve();
    let result = place.path("result.json");
    let mut watch = place.command("status", false);
    watch.arg("--watch").arg("--socket").arg(place.path("s")).arg("--json").arg(&result);
    let mut watch = Ending(watch.stdout(Stdio::piped()).spawn().unwrap());
    std::io::Read::read_exact(watch.0.stdout.as_mut().unwrap(), &mut [0; 10]).unwrap();
    assert!(Command::new("kill").arg(watch.0.id().to_string()).status().unwrap().success());
    assert_eq!(watch.0.wait().unwrap().code(), Some(0));
    let figures: Value = serde_json::from_slice(&std::fs::read(&result).unwrap()).unwrap();
    assert_eq!((&figures["world"], &figures["state"]["health"]), (&"real".into(), &"healthy".into()));
    assert!(figures["counters"]["reads"].is_u64(), "{figures}");
    server.stop();
}

/// Catches a regression: the commands report that no server is listening.
#[test]
fn server_without_cache_reports_that() {
    let place = Place::new();
    let server = place.serve_with(&["--disk", "disk", "--force-disk"]);
    let status = place.status();
    assert_eq!((&status["world"], &status["volume"]), (&"real".into(), &Value::Null));
    assert!(status["up_seconds"].is_f64() && status["connections"]["open"].is_u64(), "{status}");
    assert!(printed(&place.ask("status", &[])).contains("no cache: the server was started without --flash"));
    for command in
        [&["set", "idle_seconds=3"][..], &["set"], &["flush"], &["upgrade"], &["status", "--watch"]]
    {
        let refused = place.ask(command[0], &command[1..]);
        assert_eq!(refused.status.code(), Some(2), "{command:?}");
        let said = printed(&refused);
        assert!(said.contains("is a disk without a cache: its server was started without --flash"), "{said}");
    }
    server.stop();
    assert!(!place.path("s.control").exists());
}
