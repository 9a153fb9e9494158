//! Settings of a cache: those stored on flash, the rules by client of a server, and one-time actions.

mod actions;
mod knobs;
mod rules;

pub use actions::{Action, action, only_served};
pub use knobs::{Given, KNOBS, Knob, described, mode_name, one_of, shown};
pub use rules::{Given as GivenRules, RULES, Rule, RuleFlags};
