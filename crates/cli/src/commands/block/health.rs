//! Tells on standard error when a device of the cache that is served fails, and when it is well again.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use block::volume::{Condition, DeviceErrors, Health, Volume};

use super::figures::health_name;
use crate::output::say_error;

/// How often is looked. A disk's errors count for longer than that, so none are missed.
const LOOK: Duration = Duration::from_millis(200);

/// Somebody who looks; dropped, it looks once more and ends.
pub struct Watching {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Looks at the health of `volume` from now on.
pub fn watch(volume: Volume) -> io::Result<Watching> {
    let (sender, ended) = channel::<()>();
    let look = move || {
        let mut before = None;
        loop {
            let goes_on = ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout);
            let now = volume.condition();
            if let Some(line) = line(before.as_ref(), &now) {
                say_error(line);
            }
            before = Some(now);
            if !goes_on {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("block-health".into()).spawn(look)?;
    Ok(Watching { ended: Some(sender), thread: Some(thread) })
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.ended = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is to be said of a change; a volume that nothing is known of was healthy.
fn line(before: Option<&Condition>, now: &Condition) -> Option<String> {
    let was = before.map_or(Health::Healthy, |before| before.health);
    if was == now.health || now.health == Health::Closed {
        return None;
    }
    let (name, former) = (health_name(now.health), health_name(was));
    let why = match now.health {
        Health::FlashFailed => {
            let failed = now.flash.as_ref().map_or("", |trouble| &trouble.first_error);
            format!("{failed}; nothing more is cached until the cache is served anew")
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

    /// Whatever failed, the server was silent.
    #[test]
    fn a_change_of_health_was_told_to_nobody() {
        let well = condition(Health::Healthy, None, None);
        let ill = condition(Health::DiskErrors, None, Some("no space"));
        let failed = condition(Health::FlashFailed, Some("gone"), Some("no space"));
        assert_eq!(line(None, &well), None);
        assert_eq!(line(None, &ill).unwrap(), "health: disk-errors (was healthy): no space");
        assert_eq!(line(Some(&ill), &ill), None);
        assert_eq!(
            line(Some(&ill), &failed).unwrap(),
            "health: flash-failed (was disk-errors): gone; nothing more is cached until the cache is served anew"
        );
        assert_eq!(
            line(Some(&ill), &well).unwrap(),
            "health: healthy (was disk-errors): the disk works again, and has had no errors for a minute; it had 3 in the 65 s \
             since the first"
        );
        assert_eq!(line(Some(&ill), &condition(Health::Closed, None, None)), None);
    }
}
