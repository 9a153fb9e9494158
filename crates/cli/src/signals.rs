//! The wish to stop, as a signal says it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::run::stop::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::output::say_error;

/// Signals that come so soon after the first are the same wish: `timeout` and some shells send two.
const ONE_WISH: Duration = Duration::from_millis(500);

/// What ends a run or a server: Ctrl-C, whoever runs services, and a terminal that is gone, unless that was to be ignored
/// (`nohup`).
pub fn of_end() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let all = [SIGINT, SIGTERM, SIGHUP].into_iter();
    all.filter(|&signal| signal != SIGHUP || ignored & 1 << (SIGHUP - 1) == 0).collect()
}

/// The first signal ends the run with a full report; another one ends the process.
pub fn stop_on_signals(stop: &Stop) -> std::io::Result<()> {
    let flag = stop.interrupt_flag();
    at_first(move || flag.store(true, Ordering::Relaxed))
}

/// Calls `act` at the first signal; another one ends the process.
#[expect(
    clippy::disallowed_methods,
    reason = "the command line is the rim: it has signals, threads and the time"
)]
fn at_first(act: impl Fn() + Send + 'static) -> std::io::Result<()> {
    let mut signals = Signals::new(of_end())?;
    let wait = move || {
        let mut first = None;
        for signal in signals.forever() {
            match first {
                None => {
                    act();
                    first = Some(Instant::now());
                }
                Some(first) if first.elapsed() > ONE_WISH => std::process::exit(128 + signal),
                Some(_) => {}
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}

/// Something that can be stopped before it changes anything, and is done to its end once it has begun to.
#[derive(Debug, Default, Clone)]
pub struct Changing {
    is_interrupted: Arc<AtomicBool>,
    has_begun: Arc<AtomicBool>,
}

impl Changing {
    /// Hears signals from now on. One that comes once changes have begun is answered with `words`; another one after it ends the
    /// process, wherever it is.
    pub fn heeding(words: &'static str) -> Result<Self, String> {
        let changing = Self::default();
        let heard = changing.clone();
        let act = move || {
            heard.is_interrupted.store(true, Ordering::SeqCst);
            if heard.has_begun.load(Ordering::SeqCst) {
                say_error(format_args!("interrupted: {words}; another signal ends it at once"));
            }
        };
        at_first(act).map_err(|error| format!("signals: {error}"))?;
        Ok(changing)
    }

    /// Whether a signal has come.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::SeqCst)
    }

    /// Changes begin, unless a signal has come.
    pub fn begin(&self) -> Result<(), String> {
        self.has_begun.store(true, Ordering::SeqCst);
        match self.is_interrupted() {
            true => Err(INTERRUPTED.into()),
            false => Ok(()),
        }
    }
}

/// What is said of something that was stopped before it changed anything.
pub const INTERRUPTED: &str = "interrupted: nothing was done";

#[cfg(test)]
mod tests {
    use super::*;

    /// `block create`, `destroy` and `upgrade` died of it, wherever they were, and left the files that they had made.
    #[test]
    fn an_interrupt_before_the_first_change_was_not_heeded() {
        let changing = Changing::heeding("it goes on").unwrap();
        assert_eq!(changing.begin(), Ok(()));
        signal_hook::low_level::raise(SIGTERM).unwrap();
        while !changing.is_interrupted() {
            std::thread::yield_now();
        }
        assert_eq!(changing.begin(), Err(INTERRUPTED.to_owned()));
    }
}
