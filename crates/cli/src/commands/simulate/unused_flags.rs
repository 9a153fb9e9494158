//! Warnings about flags that no selected policy uses. They are not errors, so that a script can run all policies with the same flags.

use bench::simulate::Named;

use super::Arguments;

/// A flag that affects only some policies.
struct Flag {
    name: &'static str,
    is_given: bool,
    is_used: fn(&Named) -> bool,
    /// The policies that use the flag, for the message.
    by: &'static str,
}

/// A warning for each flag that affects none of `policies`.
pub(super) fn warnings(arguments: &Arguments, policies: &[Named]) -> Vec<String> {
    let names: Vec<String> = policies.iter().map(ToString::to_string).collect();
    let names = names.join(", ");
    let lost = |flag: &Flag| flag.is_given && !policies.iter().any(flag.is_used);
    let text = |flag: Flag| format!("{}: has no effect on {names}; it is for {}", flag.name, flag.by);
    flags(arguments).into_iter().filter(lost).map(text).collect()
}

fn flags(arguments: &Arguments) -> [Flag; 10] {
    const EXACT: &str = "policies other than flash caches";
    const BEHIND_DRAM: &str = "log, hash-log, set-associative and kangaroo";
    let flash = &arguments.flash;
    let flag = |name, is_given, is_used, by| Flag { name, is_given, is_used, by };
    [
        flag("--rules", arguments.rules.is_some(), Named::has_rules, EXACT),
        flag("--admission", arguments.admission.is_some(), Named::has_rules, EXACT),
        flag("--size-on-hit", arguments.size_on_hit.is_some(), Named::has_rules, EXACT),
        flag("--refresh", arguments.refresh.is_some(), Named::refreshes, "lru, lru2q and tinylfu"),
        flag("--dram", flash.dram.is_some(), Named::is_behind_dram, BEHIND_DRAM),
        flag("--index-ratio", flash.index_ratio.is_some(), Named::is_log, "log and hash-log"),
        flag("--object-overhead", flash.object_overhead.is_some(), Named::is_behind_dram, BEHIND_DRAM),
        flag("--object-limit", flash.object_limit.is_some(), Named::is_behind_dram, BEHIND_DRAM),
        flag(
            "--block-size",
            flash.block_size.is_some(),
            Named::has_blocks,
            "flash caches other than set-associative and kangaroo",
        ),
        flag("--set-size", flash.set_size.is_some(), Named::has_sets, "set-associative and kangaroo"),
    ]
}
