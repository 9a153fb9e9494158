//! Settings that can change while a cache runs: name, unit, meaning, reading and writing together. Flashcache's names for the same settings
//! are accepted too.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use block::sets::{Mode, SetPolicy, Tuning};
use device::names;
use device::size::parse_size;
use serde_json::{Value, json};

use super::actions::{self, advice_for};
use super::rules::{RULES, Rule};

/// One setting.
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Flashcache's names of the setting.
    flashcache: &'static [&'static str],
    /// Its effect, for help.
    pub about: &'static str,
    /// Its value; null if the setting has no meaning here.
    pub get: fn(&Tuning) -> Value,
    set: fn(&mut Tuning, &str) -> Result<(), String>,
}

/// All settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "mode",
        flashcache: &[],
        about: "write mode: write-back, write-through, write-around or write-only",
        get: |tuning| mode_name(tuning.mode).into(),
        set: |tuning, text| parse_mode(text).map(|mode| tuning.mode = mode),
    },
    Setting {
        name: "policy",
        flashcache: &["reclaim_policy"],
        about: "replacement policy within a set: fifo, lru or lru2q",
        get: |tuning| policy_name(tuning.policy).into(),
        set: |tuning, text| parse_policy(text, tuning.policy).map(|policy| tuning.policy = policy),
    },
    Setting {
        name: "hot_percent",
        flashcache: &["lru_hot_pct"],
        about: "lru2q: share of a set for the hot list, percent",
        get: |tuning| hot(tuning).map(|(percent, _)| percent).into(),
        set: |tuning, text| match &mut tuning.policy {
            SetPolicy::Lru2q { hot_percent, .. } => number(text, 0..=100).map(|value| *hot_percent = value),
            other => Err(only_lru2q(*other)),
        },
    },
    Setting {
        name: "promote_hits",
        flashcache: &["lru_promote_thresh"],
        about: "lru2q: hits after which a block becomes hot",
        get: |tuning| hot(tuning).map(|(_, hits)| hits).into(),
        set: |tuning, text| match &mut tuning.policy {
            SetPolicy::Lru2q { promote_hits, .. } => number(text, 1..=127).map(|value| *promote_hits = value),
            other => Err(only_lru2q(*other)),
        },
    },
    Setting {
        name: "dirty_percent",
        flashcache: &["dirty_thresh_pct"],
        about: "share of dirty blocks in a set above which the oldest are cleaned, percent; 100 is no limit",
        get: |tuning| tuning.dirty_percent.into(),
        set: |tuning, text| number(text, 0..=100).map(|value| tuning.dirty_percent = value),
    },
    Setting {
        name: "lazy_depth",
        flashcache: &["clean_on_read_miss", "clean_on_write_miss"],
        about: "on a miss, clean dirty blocks among this many next to be evicted; 0 turns it off",
        get: |tuning| tuning.lazy_depth.into(),
        set: |tuning, text| number(text, 0..=u32::MAX).map(|value| tuning.lazy_depth = value),
    },
    Setting {
        name: "idle_seconds",
        flashcache: &["fallow_delay"],
        about: "clean dirty blocks unused for this long; 0 is never",
        get: |tuning| tuning.idle_seconds.into(),
        set: |tuning, text| number(text, 0..=u32::MAX).map(|value| tuning.idle_seconds = value),
    },
    Setting {
        name: "idle_blocks_per_second",
        flashcache: &[],
        about: "maximum idle blocks cleaned per second",
        get: |tuning| tuning.idle_blocks_per_second.into(),
        set: |tuning, text| number(text, 1..=u32::MAX).map(|value| tuning.idle_blocks_per_second = value),
    },
    Setting {
        name: "cleanings_per_set",
        flashcache: &["max_clean_ios_set"],
        about: "maximum number of runs of a set that are written to the disk concurrently",
        get: |tuning| tuning.cleanings_per_set.into(),
        set: |tuning, text| number(text, 1..=u16::MAX).map(|value| tuning.cleanings_per_set = value),
    },
    Setting {
        name: "cleanings_total",
        flashcache: &["max_clean_ios_total"],
        about: "maximum number of runs of all sets that are written to the disk concurrently",
        get: |tuning| tuning.cleanings_total.into(),
        set: |tuning, text| number(text, 1..=u32::MAX).map(|value| tuning.cleanings_total = value),
    },
    Setting {
        name: "clean_run_blocks",
        flashcache: &[],
        about: "maximum neighbouring blocks cleaned as one run",
        get: |tuning| tuning.clean_run_blocks.into(),
        set: |tuning, text| number(text, 1..=u32::MAX).map(|value| tuning.clean_run_blocks = value),
    },
    Setting {
        name: "sequential_bypass",
        flashcache: &[],
        about: "sequential streams longer than this size bypass the cache; 0 caches all",
        get: |tuning| bypass(tuning).into(),
        set: |tuning, text| {
            parse_size(text)
                .map(|bytes| (tuning.read_bypass_bytes, tuning.write_bypass_bytes) = (bytes, bytes))
        },
    },
    Setting {
        name: "sequential_bypass_reads",
        flashcache: &[],
        about: "sequential_bypass for streams of reads alone",
        get: |tuning| tuning.read_bypass_bytes.into(),
        set: |tuning, text| parse_size(text).map(|bytes| tuning.read_bypass_bytes = bytes),
    },
    Setting {
        name: "sequential_bypass_writes",
        flashcache: &[],
        about: "sequential_bypass for streams of writes alone",
        get: |tuning| tuning.write_bypass_bytes.into(),
        set: |tuning, text| parse_size(text).map(|bytes| tuning.write_bypass_bytes = bytes),
    },
    Setting {
        name: "skip_seq_thresh_kb",
        flashcache: &[],
        about: "sequential_bypass in KiB, as Flashcache has it",
        get: |tuning| {
            bypass(tuning).filter(|bytes| bytes.is_multiple_of(1 << 10)).map(|bytes| bytes >> 10).into()
        },
        set: |tuning, text| {
            let bytes = number(text, 0..=u64::MAX >> 10).map(|value| value << 10);
            bytes.map(|bytes| (tuning.read_bypass_bytes, tuning.write_bypass_bytes) = (bytes, bytes))
        },
    },
    Setting {
        name: "latency_gate_ms",
        flashcache: &[],
        about: "cleaning pauses while more than 1 % of reads and writes take longer than this, ms; 0 never pauses",
        get: |tuning| tuning.latency_gate_ms.into(),
        set: |tuning, text| number(text, 0..=u32::MAX).map(|value| tuning.latency_gate_ms = value),
    },
];

/// The settings of one command. Each must still have its value after all are applied: otherwise two of them contradict each other, perhaps
/// under different names.
pub struct Given<'a> {
    tuning: &'a mut Tuning,
    /// Each setting as typed, with the value that it produced.
    made: Vec<(String, &'static Setting, Value)>,
}

impl<'a> Given<'a> {
    /// An empty list of settings, which change `tuning` when they are applied.
    pub fn to(tuning: &'a mut Tuning) -> Self {
        Self { tuning, made: Vec::new() }
    }

    /// Applies `KEY=VALUE`, the argument of `flag`, if any.
    pub fn apply(&mut self, flag: &str, assignment: &str) -> Result<(), String> {
        let behind_flag = |why: String| format!("{flag}{why}");
        let Some((key, value)) = assignment.split_once('=') else {
            return Err(behind_flag(format!("{assignment:?} is not KEY=VALUE")));
        };
        let setting =
            SETTINGS.iter().find(|setting| setting.name == key || setting.flashcache.contains(&key));
        let Some(setting) = setting else { return Err(behind_flag(unknown(key))) };
        self.set(setting, value, format!("{flag}{assignment}"))
            .map_err(|why| behind_flag(format!("{key}={value}: {why}")))
    }

    /// Applies a setting that has its own flag.
    pub fn apply_flag(&mut self, flag: &str, name: &str, value: &str) -> Result<(), String> {
        let setting = SETTINGS.iter().find(|setting| setting.name == name).expect("a flag is a setting's");
        self.set(setting, value, format!("{flag} {value}")).map_err(|why| format!("{flag}: {why}"))
    }

    /// The first setting, if any, that determines the hot list's share.
    pub fn about_hot_list(&self) -> Option<&str> {
        let is_about = |setting: &Setting| match setting.name {
            "hot_percent" => true,
            "policy" => hot(self.tuning).is_none(),
            _ => false,
        };
        self.made.iter().find(|(_, setting, _)| is_about(setting)).map(|(typed, ..)| typed.as_str())
    }

    fn set(&mut self, setting: &'static Setting, value: &str, typed: String) -> Result<(), String> {
        (setting.set)(self.tuning, value)?;
        let undone = |(_, setting, made): &&(String, &Setting, Value)| (setting.get)(self.tuning) != *made;
        if let Some((earlier, ..)) = self.made.iter().find(undone) {
            return Err(format!("contradicts {earlier}; give one of them"));
        }
        self.made.push((typed, setting, (setting.get)(self.tuning)));
        Ok(())
    }
}

/// All settings, for a result.
pub fn described() -> Value {
    let described = |setting: &Setting| json!({ "name": setting.name, "flashcache_names": setting.flashcache, "about": setting.about });
    SETTINGS.iter().map(described).chain(RULES.iter().map(Rule::described)).collect()
}

/// A value as typed; `None` if the setting has no meaning here.
pub fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let list: Vec<String> = list.iter().filter_map(shown).collect();
            (!list.is_empty()).then(|| list.join(","))
        }
        value => Some(value.to_string()),
    }
}

fn unknown(key: &str) -> String {
    if let Some(text) = advice_for(key) {
        return format!("{key}: has no counterpart here: {text}");
    }
    let ours = || {
        let rules = RULES.iter().map(|rule| rule.name);
        SETTINGS.iter().map(|setting| setting.name).chain(rules).chain(actions::names())
    };
    let flashcaches = SETTINGS.iter().flat_map(|setting| setting.flashcache.iter().copied());
    match names::nearest(key, ours().chain(flashcaches)) {
        Some(nearest) => format!("{key}: unknown setting; did you mean {nearest}?"),
        None => {
            let names: Vec<&str> = ours().collect();
            format!("{key}: unknown setting; the settings are {}", names.join(", "))
        }
    }
}

fn number<T: FromStr + PartialOrd + Display>(text: &str, bounds: RangeInclusive<T>) -> Result<T, String> {
    text.parse()
        .ok()
        .filter(|value| bounds.contains(value))
        .ok_or_else(|| format!("must be a whole number from {} to {}", bounds.start(), bounds.end()))
}

/// The bypass limit, if it is the same for reads and writes.
fn bypass(tuning: &Tuning) -> Option<u64> {
    (tuning.read_bypass_bytes == tuning.write_bypass_bytes).then_some(tuning.read_bypass_bytes)
}

fn only_lru2q(policy: SetPolicy) -> String {
    format!("is only for the policy lru2q; the policy is {}", policy_name(policy))
}

fn hot(tuning: &Tuning) -> Option<(u8, u8)> {
    match tuning.policy {
        SetPolicy::Lru2q { hot_percent, promote_hits } => Some((hot_percent, promote_hits)),
        _ => None,
    }
}

const MODES: [(&str, Mode); 4] = [
    ("write-back", Mode::WriteBack),
    ("write-through", Mode::WriteThrough),
    ("write-around", Mode::WriteAround),
    ("write-only", Mode::WriteOnly),
];

/// Parses a mode's name, or Flashcache's (`back`, `thru`, `around`).
pub fn parse_mode(text: &str) -> Result<Mode, String> {
    let text = match text {
        "back" => "write-back",
        "thru" | "through" => "write-through",
        "around" => "write-around",
        text => text,
    };
    let found = MODES.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, mode)| mode).ok_or_else(|| one_of(text, "mode", &MODES.map(|(name, _)| name)))
}

/// The name of a mode.
pub fn mode_name(mode: Mode) -> &'static str {
    MODES.into_iter().find(|(_, other)| *other == mode).map_or("", |(name, _)| name)
}

const POLICIES: [&str; 3] = ["fifo", "lru", "lru2q"];

/// Parses a policy's name, or Flashcache's number. The hot list keeps its share if `was` has one, otherwise gets Flashcache 3's.
pub fn parse_policy(text: &str, was: SetPolicy) -> Result<SetPolicy, String> {
    match (text, was) {
        ("fifo" | "0", _) => Ok(SetPolicy::Fifo),
        ("lru" | "1", _) => Ok(SetPolicy::Lru),
        ("lru2q" | "2q", SetPolicy::Lru2q { .. }) => Ok(was),
        ("lru2q" | "2q", _) => Ok(SetPolicy::Lru2q { hot_percent: 75, promote_hits: 2 }),
        _ => Err(one_of(text, "policy", &POLICIES)),
    }
}

fn policy_name(policy: SetPolicy) -> &'static str {
    match policy {
        SetPolicy::Fifo => "fifo",
        SetPolicy::Lru => "lru",
        SetPolicy::Lru2q { .. } => "lru2q",
    }
}

/// The error for a value that is not among `names`.
pub fn one_of(text: &str, what: &str, names: &[&str]) -> String {
    match names::nearest(text, names.iter().copied()) {
        Some(nearest) => format!("unknown {what} {text:?}; did you mean {nearest}?"),
        None => format!("unknown {what} {text:?}; use {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use block::sets::Preset;

    use super::*;

    fn apply(tuning: &mut Tuning, assignment: &str) -> Result<(), String> {
        Given::to(tuning).apply("", assignment)
    }

    #[test]
    fn shown_value_can_be_set_again() {
        for preset in [Preset::V2, Preset::V3] {
            let tuning = preset.tuning();
            for setting in SETTINGS {
                let mut same = tuning;
                let value = shown(&(setting.get)(&tuning));
                if let Some(value) = value {
                    apply(&mut same, &format!("{}={value}", setting.name)).unwrap();
                    assert_eq!(same, tuning, "{}", setting.name);
                }
            }
        }
    }

    #[test]
    fn flashcache_names_are_accepted_and_unknown_names_get_a_suggestion() {
        let mut tuning = Preset::V2.tuning();
        for (assignment, setting, value) in [
            ("dirty_thresh_pct=33", "dirty_percent", "33"),
            ("reclaim_policy=1", "policy", "lru"),
            ("policy=lru2q", "hot_percent", "75"),
            ("lru_hot_pct=80", "hot_percent", "80"),
            ("skip_seq_thresh_kb=64", "sequential_bypass", "65536"),
            ("mode=thru", "mode", "write-through"),
        ] {
            apply(&mut tuning, assignment).unwrap();
            let setting = SETTINGS.iter().find(|other| other.name == setting).unwrap();
            assert_eq!(shown(&(setting.get)(&tuning)).unwrap(), value, "{assignment}");
        }
        let refused = |assignment: &str| apply(&mut Preset::V2.tuning(), assignment).unwrap_err();
        assert_eq!(refused("dirty_procent=1"), "dirty_procent: unknown setting; did you mean dirty_percent?");
        assert_eq!(
            refused("mode=write-bakc"),
            "mode=write-bakc: unknown mode \"write-bakc\"; did you mean write-back?"
        );
        assert_eq!(
            refused("hot_percent=75"),
            "hot_percent=75: is only for the policy lru2q; the policy is fifo"
        );
        assert!(
            refused("fast_remove=1").starts_with("fast_remove: has no counterpart here: stop the server")
        );
        assert_eq!(refused("dirty_percent"), "\"dirty_percent\" is not KEY=VALUE");
        for (assignment, bounds) in [
            ("dirty_percent=x", "0 to 100"),
            ("dirty_thresh_pct=101", "0 to 100"),
            ("dirty_percent=300", "0 to 100"),
            ("lazy_depth=-1", "0 to 4294967295"),
            ("max_clean_ios_set=0", "1 to 65535"),
        ] {
            let text = format!("{assignment}: must be a whole number from {bounds}");
            assert_eq!(refused(assignment), text);
        }
    }

    /// Catches a regression: the last setting silently replaces an earlier, acknowledged one.
    #[test]
    fn contradicting_settings_are_rejected_and_both_named() {
        let together = |assignments: &[&str]| {
            let mut tuning = Preset::V3.tuning();
            let mut given = Given::to(&mut tuning);
            assignments.iter().try_for_each(|assignment| given.apply("", assignment))
        };
        for (earlier, later) in [
            ("policy=lru2q", "reclaim_policy=0"),
            ("mode=write-back", "mode=write-around"),
            ("sequential_bypass=1000", "skip_seq_thresh_kb=1"),
            ("sequential_bypass=1MiB", "sequential_bypass_writes=0"),
            ("clean_on_read_miss=1", "clean_on_write_miss=0"),
            ("hot_percent=80", "policy=lru"),
        ] {
            let refused = together(&[earlier, "idle_seconds=3", later]).unwrap_err();
            assert_eq!(refused, format!("{later}: contradicts {earlier}; give one of them"));
        }
        for agreeing in [
            ["policy=lru2q", "hot_percent=80"],
            ["sequential_bypass_reads=1MiB", "sequential_bypass_writes=0"],
            ["reclaim_policy=1", "policy=lru"],
            ["sequential_bypass=1KiB", "skip_seq_thresh_kb=1"],
            ["mode=back", "mode=write-back"],
        ] {
            assert_eq!(together(&agreeing), Ok(()), "{agreeing:?}");
        }
    }

    /// The bounds are repeated here for the messages; the block crate enforces them.
    #[test]
    fn bounds_in_messages_equal_those_of_the_block_crate() {
        let tuning = Preset::V3.tuning();
        for setting in SETTINGS {
            let error = apply(&mut tuning.clone(), &format!("{}=none", setting.name)).unwrap_err();
            let Some((_, bounds)) = error.split_once("a whole number from ") else { continue };
            for bound in bounds.split(" to ") {
                let mut at_bound = tuning;
                apply(&mut at_bound, &format!("{}={bound}", setting.name)).unwrap();
                assert_eq!(at_bound.check(), Ok(()), "{}={bound}", setting.name);
            }
        }
    }
}
