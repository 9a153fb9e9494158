//! Commands as calls of a program in the same process: the result is a value, and nothing is printed.

use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bench::run::stop::{Stop, StopReason};
use bench::simulate::{CustomPolicy, Named};
use serde_json::Value;

/// A command in progress. Clones share their state, so that one thread runs the command and another watches or stops it.
#[derive(Debug, Clone, Default)]
pub struct Call {
    stop: Stop,
    progress: Arc<Progress>,
    answer: Arc<Mutex<Answer>>,
    arguments: Arc<[OsString]>,
    policies: Arc<[CustomPolicy]>,
}

#[derive(Debug, Default)]
struct Progress {
    done: AtomicU64,
    /// Total amount of work; 0 if unknown.
    total: AtomicU64,
}

#[derive(Debug, Default)]
struct Answer {
    warnings: Vec<String>,
    result: Option<Result<Value, String>>,
}

impl Call {
    /// A call of the command that these arguments name. The first argument is the program's name.
    #[must_use]
    pub fn new(arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self { arguments: arguments.into_iter().collect(), ..Self::default() }
    }

    /// Adds policies of the calling program, which `simulate` runs by their names beside its own.
    ///
    /// # Errors
    /// Two of the policies have the same name.
    pub fn with_policies(mut self, policies: Vec<CustomPolicy>) -> Result<Self, String> {
        let named: Vec<Named> = policies.iter().cloned().map(Named::custom).collect();
        for (place, policy) in named.iter().enumerate() {
            if named[..place].iter().any(|other| other.is_asked_as(policy)) {
                return Err(format!("two policies are named {policy}: give one of them another name"));
            }
        }
        self.policies = policies.into();
        Ok(self)
    }

    /// The policy of this name that the calling program added, if there is one.
    pub(crate) fn policy(&self, name: &str) -> Option<Named> {
        let found = self.policies.iter().find(|policy| policy.name() == name);
        found.cloned().map(Named::custom)
    }

    /// Whether both are clones of one call.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.answer, &other.answer)
    }

    /// Runs the command to its end. Returns the result that `--json` writes.
    ///
    /// # Errors
    /// The message that the command line prints. The arguments are wrong, or the command failed or was interrupted before it had
    /// a result.
    pub fn run(&self) -> Result<Value, String> {
        crate::run_call(self)?;
        let result = self.answer.lock().unwrap_or_else(PoisonError::into_inner).result.take();
        result.unwrap_or_else(|| Err("the command ended without a result".to_owned()))
    }

    /// Asks the command to end early. It then returns the result so far, or an error if it has none.
    pub fn interrupt(&self) {
        self.stop.set(StopReason::Interrupt);
    }

    /// Units of work that are done, and their total if it is known. Commands that do not count their work report 0.
    #[must_use]
    pub fn progress(&self) -> (u64, Option<u64>) {
        let Progress { done, total } = &*self.progress;
        let total = total.load(Ordering::Relaxed);
        (done.load(Ordering::Relaxed), (total > 0).then_some(total))
    }

    /// The warnings so far, which the command line prints on standard error.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).warnings.clone()
    }

    pub(crate) fn arguments(&self) -> impl Iterator<Item = OsString> {
        self.arguments.iter().cloned()
    }

    pub(crate) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    pub(crate) fn set_progress(&self, done: u64, total: Option<u64>) {
        self.progress.total.store(total.unwrap_or(0), Ordering::Relaxed);
        self.progress.done.store(done, Ordering::Relaxed);
    }

    pub(crate) fn warn(&self, warning: String) {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).warnings.push(warning);
    }

    /// Keeps the result. A later one replaces it.
    pub(crate) fn conclude(&self, result: Result<Value, String>) {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).result = Some(result);
    }
}
