//! Handles signals that request a stop.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::run::stop::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::output::say_error;

/// Signals this soon after the first are duplicates of it: `timeout` and some shells send two.
const DUPLICATE_WINDOW: Duration = Duration::from_millis(500);

/// Signals that end a run or a server: Ctrl-C, a service manager's request, and a closed terminal unless ignored (`nohup`).
pub fn of_end() -> Result<Signals, String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let all = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let of_end = all.filter(|&signal| signal != SIGHUP || ignored & 1 << (SIGHUP - 1) == 0);
    Signals::new(of_end).map_err(|error| cannot_handle(&error))
}

/// The first signal ends the run with a full report; another one ends the process.
pub fn stop_on_signals(stop: &Stop) -> Result<(), String> {
    let flag = stop.interrupt_flag();
    at_first(move || flag.store(true, Ordering::Relaxed))
}

/// Calls `act` at the first signal; another one ends the process.
fn at_first(act: impl Fn() + Send + 'static) -> Result<(), String> {
    let mut signals = of_end()?;
    spawn(move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            act();
            exit_at_next(signals);
        }
    })
}

/// Exits the process at another signal.
pub fn exit_at_another(mut signals: Signals) -> Result<(), String> {
    spawn(move || exit_at_next(signals.forever()))
}

#[expect(clippy::disallowed_methods, reason = "the command line uses signals, threads and the clock")]
fn exit_at_next(signals: impl Iterator<Item = i32>) {
    let first = Instant::now();
    for signal in signals {
        if first.elapsed() > DUPLICATE_WINDOW {
            std::process::exit(128 + signal);
        }
    }
}

fn spawn(wait: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let spawned = std::thread::Builder::new().name("signals".into()).spawn(wait);
    spawned.map(drop).map_err(|error| cannot_handle(&error))
}

fn cannot_handle(error: &std::io::Error) -> String {
    format!("cannot handle signals: {error}")
}

/// An operation that can be stopped before its first change, and that runs to its end after it.
#[derive(Debug, Default, Clone)]
pub struct Changing {
    is_interrupted: Arc<AtomicBool>,
    has_begun: Arc<AtomicBool>,
}

impl Changing {
    /// Handles signals from now on. A signal after the first change prints `text`; another one ends the process immediately.
    pub fn on_signal(text: &'static str) -> Result<Self, String> {
        let changing = Self::default();
        let shared = changing.clone();
        let act = move || {
            shared.is_interrupted.store(true, Ordering::SeqCst);
            if shared.has_begun.load(Ordering::SeqCst) {
                say_error(format_args!("interrupted: {text}; another signal ends the process immediately"));
            }
        };
        at_first(act)?;
        Ok(changing)
    }

    /// Whether a signal arrived.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::SeqCst)
    }

    /// Marks the start of changes, unless a signal arrived.
    pub fn begin(&self) -> Result<(), String> {
        self.has_begun.store(true, Ordering::SeqCst);
        match self.is_interrupted() {
            true => Err(INTERRUPTED.into()),
            false => Ok(()),
        }
    }
}

/// The error of an operation that was interrupted before its first change.
pub const INTERRUPTED: &str = "interrupted: nothing was changed";

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a regression: such a signal kills `block create`, `destroy` and `upgrade`, which leave their new files.
    #[test]
    fn interrupt_before_the_first_change_stops_the_operation() {
        let changing = Changing::on_signal("it completes").unwrap();
        assert_eq!(changing.begin(), Ok(()));
        signal_hook::low_level::raise(SIGTERM).unwrap();
        while !changing.is_interrupted() {
            std::thread::yield_now();
        }
        assert_eq!(changing.begin(), Err(INTERRUPTED.to_owned()));
    }
}
