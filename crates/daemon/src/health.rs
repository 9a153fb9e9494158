//! Reports on standard error when a device of the served cache fails or recovers.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use block::export::CurrentVolume;
use block::volume::{Condition, DeviceErrors, Health};

use crate::log_line;
use crate::status::figures::health_name;

/// Polling interval. The disk's error state lasts longer, so no change is missed.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A thread that polls the health; dropping it polls once more and ends it.
pub struct HealthWatcher {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts to poll the health of the volume that `current` holds.
pub fn watch(current: CurrentVolume) -> io::Result<HealthWatcher> {
    let (sender, ended) = channel::<()>();
    let look = move || {
        let mut before = None;
        loop {
            let goes_on = ended.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout);
            let now = current.volume().condition();
            if let Some(line) = line(before.as_ref(), &now) {
                log_line(line);
            }
            // A volume is closed for a moment while its flash or disk is exchanged.
            if now.health != Health::Closed {
                before = Some(now);
            }
            if !goes_on {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("block-health".into()).spawn(look)?;
    Ok(HealthWatcher { ended: Some(sender), thread: Some(thread) })
}

impl Drop for HealthWatcher {
    fn drop(&mut self) {
        self.ended = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The message for a change of health; `before` is `None` for an initially healthy volume.
fn line(before: Option<&Condition>, now: &Condition) -> Option<String> {
    let was = before.map_or(Health::Healthy, |before| before.health);
    if was == now.health || now.health == Health::Closed {
        return None;
    }
    let (name, former) = (health_name(now.health), health_name(was));
    let why = match now.health {
        Health::FlashFailed => {
            let failed = now.flash.as_ref().map_or("", |trouble| &trouble.first_error);
            format!(
                "{failed}; nothing more is cached until the server is restarted, or `block replace-flash --socket` moves the cache"
            )
        }
        Health::DiskErrors => {
            now.disk.as_ref().map_or_else(String::new, |trouble| trouble.first_error.to_string())
        }
        Health::Healthy | Health::Closed => {
            before.and_then(|before| before.disk.as_ref()).map_or_else(String::new, over)
        }
    };
    Some(format!("health: {name} (was {former}): {why}"))
}

fn over(trouble: &DeviceErrors) -> String {
    let DeviceErrors { errors, elapsed_ns, .. } = trouble;
    let seconds = *elapsed_ns as f64 / 1e9;
    format!(
        "the disk works again, and has had no errors for a minute; it had {errors} in the {seconds:.0} s since the first"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(health: Health, flash: Option<&str>, disk: Option<&str>) -> Condition {
        let trouble = |error: &str| DeviceErrors {
            first_error: error.into(),
            errors: 3,
            elapsed_ns: 65 * 1_000_000_000,
        };
        Condition { health, flash: flash.map(trouble), disk: disk.map(trouble) }
    }

    /// Catches a regression: failures are not reported.
    #[test]
    fn change_of_health_is_reported() {
        let well = condition(Health::Healthy, None, None);
        let failing = condition(Health::DiskErrors, None, Some("no space"));
        let failed = condition(Health::FlashFailed, Some("gone"), Some("no space"));
        assert_eq!(line(None, &well), None);
        assert_eq!(line(None, &failing).unwrap(), "health: disk-errors (was healthy): no space");
        assert_eq!(line(Some(&failing), &failing), None);
        assert_eq!(
            line(Some(&failing), &failed).unwrap(),
            "health: flash-failed (was disk-errors): gone; nothing more is cached until the server is restarted, or `block replace-flash --socket` moves the cache"
        );
        assert_eq!(
            line(Some(&failing), &well).unwrap(),
            "health: healthy (was disk-errors): the disk works again, and has had no errors for a minute; it had 3 in the 65 s \
             since the first"
        );
        assert_eq!(line(Some(&failing), &condition(Health::Closed, None, None)), None);
    }
}
