//! The wish to stop, as a signal says it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bench::run::stop::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Signals that come so soon after the first are the same wish: `timeout` and some shells send two.
const ONE_WISH: Duration = Duration::from_millis(500);

/// The first signal ends the run with a full report; another one ends the process.
#[expect(
    clippy::disallowed_methods,
    reason = "the command line is the rim: it has signals, threads and the time"
)]
pub fn stop_on_signals(stop: &Stop) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
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
