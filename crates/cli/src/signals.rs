//! The wish to stop, as a signal says it.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bench::run::stop::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

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
#[expect(
    clippy::disallowed_methods,
    reason = "the command line is the rim: it has signals, threads and the time"
)]
pub fn stop_on_signals(stop: &Stop) -> std::io::Result<()> {
    let mut signals = Signals::new(of_end())?;
    let flag = stop.interrupt_flag();
    let wait = move || {
        let mut first = None;
        for signal in signals.forever() {
            match first {
                None => {
                    flag.store(true, Ordering::Relaxed);
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
