//! A policy that the calling program brings along, such as one written in Python.

use std::fmt;
use std::sync::Arc;

use policy::UnknownName;
use policy::simulate::{Rules, Simulator};

use super::Named;

/// A function that builds an empty cache from its capacity in bytes and the rules.
type Build = dyn Fn(u64, Rules) -> Box<dyn Simulator> + Send + Sync;

/// A policy by name. Clones share the function that builds its caches.
#[derive(Clone)]
pub struct CustomPolicy {
    name: Arc<str>,
    build: Arc<Build>,
}

/// Reason why a name cannot be used for a custom policy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Names are separated by commas on the command line.
    #[error(
        "a policy named {0:?}: a name has at least one letter or digit, and besides those only `-` and `_`"
    )]
    Letters(String),
    /// A built-in policy has the name.
    #[error("a policy named {0:?}: a built-in policy has that name; choose another")]
    BuiltIn(String),
}

impl CustomPolicy {
    /// A policy named `name`, whose caches are built by `build` from a capacity in bytes and the rules.
    ///
    /// # Errors
    /// A built-in policy has the name, or it cannot be typed on a command line.
    pub fn new(
        name: &str,
        build: impl Fn(u64, Rules) -> Box<dyn Simulator> + Send + Sync + 'static,
    ) -> Result<Self, NameError> {
        let is_allowed = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_');
        if !name.chars().all(is_allowed) || !name.chars().any(char::is_alphanumeric) {
            return Err(NameError::Letters(name.to_owned()));
        }
        let parsed: Result<Named, UnknownName> = name.parse();
        match parsed {
            Ok(_) => Err(NameError::BuiltIn(name.to_owned())),
            Err(_) => Ok(Self { name: name.into(), build: Arc::new(build) }),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates an empty cache.
    pub(super) fn simulator(&self, size_bytes: u64, rules: Rules) -> Box<dyn Simulator> {
        (self.build)(size_bytes, rules)
    }
}

impl PartialEq for CustomPolicy {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for CustomPolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("CustomPolicy").field(&self.name).finish()
    }
}
