//! CacheBench's JSON with comments: loads and validates a config.

use std::path::Path;

use bench::config::cachebench::load_text;

/// Loads a config; a refusal must name the file and the reason.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(error) = load_text(Path::new("input.json"), text, &[]) {
        assert!(!error.problems.is_empty(), "a refusal must have a reason");
        assert!(error.to_string().starts_with("input.json"), "{error}");
    }
}
