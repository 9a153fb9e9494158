//! Caching by client: flags of `serve`, settings of a server, and a part of its status. The rules belong to the server and are not stored
//! in the cache, because process and user numbers change over restarts.

use block::export::{ClientName, ClientRules};
use clap::Args;
use serde_json::{Value, json};

/// Heading of the flags.
const CACHING: &str = "Caching by client";

/// The rules on the command line of `block serve`.
#[derive(Debug, Args)]
pub struct RuleFlags {
    /// 1: cache blocks of all clients but those of --uncached-client; 0: of no clients but those of --cached-client [default: 1]
    #[arg(long, help_heading = CACHING, value_name = "0|1", requires = "flash", value_parser = zero_or_one)]
    cache_all: Option<bool>,
    /// Client whose blocks are not cached: pid:N, uid:N, or an IP address, with a prefix length for a network; can be repeated
    #[arg(long, help_heading = CACHING, value_name = "CLIENT", requires = "flash")]
    uncached_client: Vec<ClientName>,
    /// Client whose blocks are cached, with --cache-all 0 or as an exception of --uncached-client; can be repeated
    #[arg(long, help_heading = CACHING, value_name = "CLIENT", requires = "flash")]
    cached_client: Vec<ClientName>,
}

impl RuleFlags {
    /// The rules that the flags define.
    pub fn rules(&self) -> Result<ClientRules, String> {
        let list = |flag: &str, names: &[ClientName]| {
            let mut list = Vec::new();
            names
                .iter()
                .try_for_each(|name| add(&mut list, *name))
                .map_err(|why| format!("{flag}: {why}"))?;
            Ok::<_, String>(list)
        };
        Ok(ClientRules {
            cache_all: self.cache_all.unwrap_or(true),
            uncached: list("--uncached-client", &self.uncached_client)?,
            cached: list("--cached-client", &self.cached_client)?,
        })
    }
}

/// A setting that changes the rules.
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// Flashcache's name of the setting.
    flashcache: &'static str,
    /// Its effect, for help.
    pub about: &'static str,
    set: fn(&mut ClientRules, &str) -> Result<(), String>,
}

/// All rule settings.
pub const RULES: [Rule; 3] = [
    Rule {
        name: "cache_all",
        flashcache: "cache_all",
        about: "on a server: 1 caches blocks of all clients but the uncached ones, 0 only of the cached ones",
        set: |rules, text| zero_or_one(text).map(|value| rules.cache_all = value),
    },
    Rule {
        name: "uncached_clients",
        flashcache: "blacklist",
        about: "on a server: a list like pid:77,uid:26,10.0.0.0/8; +CLIENT adds one, -CLIENT removes one",
        set: |rules, text| change(&mut rules.uncached, text),
    },
    Rule {
        name: "cached_clients",
        flashcache: "whitelist",
        about: "on a server: a list like that of uncached_clients",
        set: |rules, text| change(&mut rules.cached, text),
    },
];

impl Rule {
    /// The setting, for a result.
    pub fn described(&self) -> Value {
        json!({ "name": self.name, "flashcache_names": [self.flashcache], "about": self.about })
    }
}

/// The rule settings of one command, which must not contradict each other.
pub struct Given {
    rules: ClientRules,
    given: Vec<(&'static str, String)>,
}

impl Given {
    /// An empty list of settings, which change `rules` when they are applied.
    pub fn to(rules: ClientRules) -> Self {
        Self { rules, given: Vec::new() }
    }

    /// The resulting rules, if any setting was given.
    pub fn rules(self) -> Option<ClientRules> {
        (!self.given.is_empty()).then_some(self.rules)
    }

    /// Applies `KEY=VALUE` if it is a rule setting; returns whether it is.
    pub fn apply(&mut self, assignment: &str) -> Result<bool, String> {
        let Some((rule, value)) = rule(assignment) else { return Ok(false) };
        let undone = |(name, earlier): &&(&str, String)| *name == rule.name && earlier != assignment;
        if let (false, Some((_, earlier))) = (is_step(value), self.given.iter().find(undone)) {
            return Err(format!("{assignment}: contradicts {earlier}; give one of them"));
        }
        (rule.set)(&mut self.rules, value).map_err(|why| format!("{assignment}: {why}"))?;
        self.given.push((rule.name, assignment.to_owned()));
        Ok(true)
    }
}

fn rule(assignment: &str) -> Option<(&'static Rule, &str)> {
    let (key, value) = assignment.split_once('=')?;
    let rule = RULES.iter().find(|rule| [rule.name, rule.flashcache].contains(&key))?;
    Some((rule, value))
}

/// Whether `assignment` sets a client rule, which only a server has.
pub fn is_rule(assignment: &str) -> bool {
    rule(assignment).is_some()
}

fn zero_or_one(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("must be 0 or 1".into()),
    }
}

/// Whether the value adds to or removes from a list instead of replacing it.
fn is_step(value: &str) -> bool {
    value.starts_with(['+', '-'])
}

fn change(list: &mut Vec<ClientName>, value: &str) -> Result<(), String> {
    if !is_step(value) {
        list.clear();
    }
    for word in value.split(',').filter(|word| !word.is_empty()) {
        let removed = word.strip_prefix('-');
        let (removes, name) = (removed.is_some(), removed.or(word.strip_prefix('+')).unwrap_or(word));
        let name: ClientName = name.parse().map_err(|why| format!("{name:?} {why}"))?;
        match removes {
            true if !list.contains(&name) => return Err(format!("{name} is not on the list")),
            true => list.retain(|other| *other != name),
            false => add(list, name)?,
        }
    }
    Ok(())
}

fn add(list: &mut Vec<ClientName>, name: ClientName) -> Result<(), String> {
    if list.contains(&name) {
        return Ok(());
    }
    if list.len() == ClientRules::MAX_NAMES {
        return Err(format!("the list already has {} clients, the maximum", ClientRules::MAX_NAMES));
    }
    list.push(name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(rules: &ClientRules, assignments: &[&str]) -> Result<ClientRules, String> {
        let mut given = Given::to(rules.clone());
        for assignment in assignments {
            assert!(given.apply(assignment)?, "{assignment}");
        }
        Ok(given.rules().unwrap())
    }

    fn texts(rules: &ClientRules) -> [String; 3] {
        let value = crate::status::figures::of_rules(rules);
        RULES.map(|rule| super::super::shown(&value[rule.name]).unwrap_or_default())
    }

    #[test]
    fn client_list_is_replaced_or_changed_by_one_client_under_either_name() {
        let mut rules = ClientRules::default();
        for (assignments, expected) in [
            (&["cache_all=0", "whitelist=pid:7,uid:3,pid:7"][..], ["0", "", "pid:7,uid:3"]),
            (&["cached_clients=+10.1.2.3/8,-pid:7", "blacklist=+uid:0"], ["0", "uid:0", "uid:3,10.0.0.0/8"]),
            (
                &["cached_clients=", "uncached_clients=uid:1", "uncached_clients=+uid:2"],
                ["0", "uid:1,uid:2", ""],
            ),
            (&["cache_all=1", "cache_all=1", "blacklist="], ["1", "", ""]),
        ] {
            rules = given(&rules, assignments).unwrap();
            assert_eq!(texts(&rules), expected);
        }
        let mut none = Given::to(rules);
        assert_eq!(none.apply("policy=lru"), Ok(false));
        assert_eq!(none.rules(), None);
    }

    #[test]
    fn invalid_or_contradicting_rules_are_rejected_with_reason() {
        let refused = |assignments: &[&str]| given(&ClientRules::default(), assignments).unwrap_err();
        assert_eq!(refused(&["cache_all=2"]), "cache_all=2: must be 0 or 1");
        assert_eq!(
            refused(&["blacklist=uid:1,pid:x"]),
            "blacklist=uid:1,pid:x: \"pid:x\" must be pid: and the number of a process"
        );
        assert_eq!(refused(&["blacklist=-uid:1"]), "blacklist=-uid:1: uid:1 is not on the list");
        // Catches a regression: a first character of several bytes causes a panic.
        assert!(refused(&["blacklist=é"]).starts_with("blacklist=é: \"é\" must be pid:NUMBER"));
        for (earlier, later) in [
            ("cache_all=0", "cache_all=1"),
            ("blacklist=uid:1", "uncached_clients=uid:2"),
            ("blacklist=+uid:1", "blacklist="),
        ] {
            let text = format!("{later}: contradicts {earlier}; give one of them");
            assert_eq!(refused(&[earlier, later]), text);
        }
        let many: Vec<String> = (0..=ClientRules::MAX_NAMES).map(|uid| format!("uid:{uid}")).collect();
        let error = refused(&[&format!("whitelist={}", many.join(","))]);
        assert!(error.ends_with("the list already has 100 clients, the maximum"), "{error}");
    }
}
