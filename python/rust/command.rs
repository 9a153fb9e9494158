//! Commands of the command line as Python functions.

use std::ffi::OsString;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use flashwright_cli::Call;
use pyo3::prelude::*;

use crate::Error;
use crate::policy::{Raised, custom_policy};

/// Time between two looks for Ctrl-C, and between two updates of the progress bar.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Runs a command on a thread of its own. Returns its result as JSON, and its warnings.
///
/// The calling thread waits without the GIL. It runs Python's signal handlers, so that Ctrl-C ends the command, and calls
/// `progress(done, total)`, where `total` is `None` if it is unknown. `policies` are pairs of a name, which `arguments` contain, and a
/// `Policy`.
#[pyfunction]
#[pyo3(signature = (arguments, progress = None, policies = Vec::new()))]
pub fn call(
    py: Python<'_>,
    arguments: Vec<String>,
    progress: Option<Bound<'_, PyAny>>,
    policies: Vec<(String, Py<PyAny>)>,
) -> PyResult<(String, Vec<String>)> {
    let typed = std::iter::once("flashwright".to_owned()).chain(arguments).map(OsString::from);
    let raised_by_policy = Raised::default();
    let custom = policies.into_iter().map(|(name, policy)| custom_policy(&name, policy, &raised_by_policy));
    let call = Call::new(typed).with_policies(custom.collect::<PyResult<_>>()?).map_err(Error::new_err)?;
    let (sender, receiver) = channel();
    let receiver = Mutex::new(receiver);
    let running = call.clone();
    let worker = thread::Builder::new().name("flashwright".to_owned()).spawn(move || {
        // The receiver exists until this thread has ended.
        let _ = sender.send(running.run());
    })?;
    let mut raised = None;
    let mut is_waiting = true;
    let mut result = None;
    while is_waiting {
        let received = py
            .detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(WATCH_INTERVAL));
        is_waiting = matches!(received, Err(RecvTimeoutError::Timeout));
        result = received.ok();
        let (done, total) = call.progress();
        let shown = || progress.as_ref().map_or(Ok(()), |progress| progress.call1((done, total)).map(drop));
        if let Err(error) = py.check_signals().and_then(|()| shown()) {
            call.interrupt();
            raised.get_or_insert(error);
        }
        if raised_by_policy.is_set() {
            call.interrupt();
        }
    }
    let ended = py.detach(|| worker.join());
    if let Some(error) = raised.or_else(|| raised_by_policy.take()) {
        return Err(error);
    }
    match (ended, result) {
        (Ok(()), Some(Ok(value))) => Ok((value.to_string(), call.warnings())),
        (Ok(()), Some(Err(message))) => Err(Error::new_err(message)),
        _ => Err(Error::new_err("the command ended by a panic, which is a fault of flashwright")),
    }
}

/// Runs the program `flashwright` with these arguments, beginning with its name. Returns the exit code.
#[pyfunction]
pub fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| flashwright_cli::run_to_code(arguments))
}
