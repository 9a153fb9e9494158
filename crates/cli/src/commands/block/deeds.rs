//! What Flashcache has among its settings and is none: something that is done once. And those of its names that have no
//! counterpart here, each with what is to be done instead.

use super::rules::is_rule;

/// What is done to a cache that is being served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Counts begin anew.
    ZeroStats,
    /// Cleaning everything begins, and nobody waits for it.
    DoSync,
    /// That is stopped.
    StopSync,
}

const DEEDS: [(&str, Deed); 3] =
    [("zero_stats", Deed::ZeroStats), ("do_sync", Deed::DoSync), ("stop_sync", Deed::StopSync)];

/// What they are called.
pub fn names() -> impl Iterator<Item = &'static str> {
    DEEDS.iter().map(|(name, _)| *name)
}

const NO_EXPIRY: &str = "a process stays on its list until it is removed: cached_clients=-pid:N";

/// Names of Flashcache's, and what to do.
const ELSEWHERE: [(&str, &str); 9] = [
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

/// What is to be done if `assignment` asks for a deed; `None` in `Some` if it asks for nothing to be done.
///
/// # Errors
/// It is one, but the value is neither 0 nor 1.
pub fn deed(assignment: &str) -> Result<Option<Option<Deed>>, String> {
    let Some((key, value)) = assignment.split_once('=') else { return Ok(None) };
    let Some((_, deed)) = DEEDS.iter().find(|(name, _)| *name == key) else { return Ok(None) };
    match value {
        "1" => Ok(Some(Some(*deed))),
        "0" => Ok(Some(None)),
        _ => Err(format!("{assignment}: must be 1, to do it")),
    }
}

/// What to do instead of setting `key`, which has no counterpart here.
pub fn instead_of(key: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(name, _)| *name == key).map(|(_, words)| *words)
}

/// Why that cannot be asked of a cache that is not served.
pub fn only_served(assignment: &str) -> Option<String> {
    let is_of_server = !matches!(deed(assignment), Ok(None)) || is_rule(assignment);
    is_of_server
        .then(|| format!("{assignment}: is for a cache that is being served: name its server with --socket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deed_is_done_by_1() {
        assert_eq!(deed("zero_stats=1"), Ok(Some(Some(Deed::ZeroStats))));
        assert_eq!(deed("do_sync=0"), Ok(Some(None)));
        assert_eq!(deed("stop_sync=yes"), Err("stop_sync=yes: must be 1, to do it".into()));
        assert_eq!(deed("policy=lru"), Ok(None));
        assert!(instead_of("fast_remove").is_some() && instead_of("policy").is_none());
    }
}
