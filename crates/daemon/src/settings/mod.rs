//! Settings of a cache: those stored on flash, the rules by client of a server, and one-time actions.

mod actions;
mod rules;
mod setting;

pub use actions::{Action, action, only_served};
pub use rules::{Given as GivenRules, RULES, Rule, RuleFlags};
pub use setting::{Given, SETTINGS, Setting, described, mode_name, one_of, shown};
