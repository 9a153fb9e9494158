//! Settings of Flashcache that are one-time actions, and its settings without a counterpart, each with advice.

use super::rules::is_rule;

/// An action on a served cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Resets the counters.
    ZeroStats,
    /// Starts to clean all dirty blocks in the background.
    DoSync,
    /// Stops that cleaning.
    StopSync,
}

const ACTIONS: [(&str, Action); 3] =
    [("zero_stats", Action::ZeroStats), ("do_sync", Action::DoSync), ("stop_sync", Action::StopSync)];

/// The names of the actions.
pub fn names() -> impl Iterator<Item = &'static str> {
    ACTIONS.iter().map(|(name, _)| *name)
}

const NO_EXPIRY: &str = "a process stays on its list until it is removed: cached_clients=-pid:N";

/// Flashcache's other settings, and what to do instead.
const ADVICE: [(&str, &str); 9] = [
    (
        "fast_remove",
        "stop the server: dirty blocks stay on flash; run `block flush` first to have them on the disk",
    ),
    ("io_latency_hist", "latencies are always kept: `block status` has them, under requests"),
    ("fallow_clean_speed", "use idle_blocks_per_second, which is for all sets together"),
    ("new_style_write_merge", "neighbours are always written together, clean_run_blocks at most"),
    ("do_pid_expiry", NO_EXPIRY),
    ("pid_expiry_secs", NO_EXPIRY),
    ("max_pids", "cached_clients and uncached_clients have room for 100 clients each"),
    ("error_inject", "faults are for tests, which have them in the simulated devices"),
    ("write_only_cache", "use mode=write-only"),
];

/// The action of `assignment`; `Some(None)` if its value is 0, which does nothing.
///
/// # Errors
/// It is an action, but its value is neither 0 nor 1.
pub fn action(assignment: &str) -> Result<Option<Option<Action>>, String> {
    let Some((key, value)) = assignment.split_once('=') else { return Ok(None) };
    let Some((_, action)) = ACTIONS.iter().find(|(name, _)| *name == key) else { return Ok(None) };
    match value {
        "1" => Ok(Some(Some(*action))),
        "0" => Ok(Some(None)),
        _ => Err(format!("{assignment}: must be 1")),
    }
}

/// Advice for a Flashcache setting `key` without a counterpart.
pub fn advice_for(key: &str) -> Option<&'static str> {
    ADVICE.iter().find(|(name, _)| *name == key).map(|(_, text)| *text)
}

/// The error for an action on a cache that is not served.
pub fn only_served(assignment: &str) -> Option<String> {
    let is_of_server = !matches!(action(assignment), Ok(None)) || is_rule(assignment);
    is_of_server
        .then(|| format!("{assignment}: is for a cache that is being served: name its server with --socket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_requires_the_value_1() {
        assert_eq!(action("zero_stats=1"), Ok(Some(Some(Action::ZeroStats))));
        assert_eq!(action("do_sync=0"), Ok(Some(None)));
        assert_eq!(action("stop_sync=yes"), Err("stop_sync=yes: must be 1".into()));
        assert_eq!(action("policy=lru"), Ok(None));
        assert!(advice_for("fast_remove").is_some() && advice_for("policy").is_none());
    }
}
