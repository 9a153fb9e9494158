//! Operations on an open volume, whether it is served or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::Poll;

use block::sets::Tuning;
use block::volume::Volume;
use device::event_loop::wait_for;
use device::names::noun;
use device::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::control::PROGRESS_INTERVAL;
use crate::settings::Given;
use crate::status::figures;

/// Changes settings of an open volume, all or none.
pub fn set<'a>(volume: &Volume, assignments: impl IntoIterator<Item = &'a str>) -> Result<Value, String> {
    let mut tuning = volume.superblock().tuning;
    let mut given = Given::to(&mut tuning);
    assignments.into_iter().try_for_each(|assignment| given.apply("", assignment))?;
    wait_for(volume.set_tuning(tuning)).map_err(|error| error.to_string())?;
    Ok(settings_json(&tuning))
}

pub(crate) fn settings_json(tuning: &Tuning) -> Value {
    json!({ "tuning": figures::of_tuning(tuning) })
}

/// Brings an open volume to the newest format.
pub fn upgrade(volume: &Volume) -> Result<Value, String> {
    let before = wait_for(volume.upgrade()).map_err(|error| error.to_string())?;
    Ok(json!({ "format_before": before, "format": volume.superblock().format }))
}

/// Cleans all dirty blocks of an open volume. `progress` receives the remaining blocks and time, and returns whether to continue.
pub fn flush(volume: &Volume, mut progress: impl FnMut(&Value) -> bool) -> Result<Value, String> {
    let (started_ns, dirty_before) = (SystemClock.monotonic_ns(), volume.stats().dirty_blocks);
    let (sender, ended) = channel();
    let cleaned = volume.clone();
    let stopped = Arc::new(AtomicBool::new(false));
    let is_stopped = Arc::clone(&stopped);
    let thread = std::thread::Builder::new().name("block-flush".into());
    let thread = thread.spawn(move || {
        let cleaning = unless(&is_stopped, cleaned.clean());
        // After a stop there is no receiver.
        wait_for(cleaning).map(|result| sender.send(result))
    });
    thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    loop {
        match ended.recv_timeout(PROGRESS_INTERVAL) {
            Ok(Ok(())) => break,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(RecvTimeoutError::Disconnected) => return Err("the thread of the flush panicked".into()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let left = volume.stats().dirty_blocks;
        let passed_seconds = (SystemClock.monotonic_ns() - started_ns) as f64 / 1e9;
        let done = dirty_before.saturating_sub(left);
        let seconds_left = (done > 0).then(|| passed_seconds * left as f64 / done as f64);
        if !progress(&json!({ "dirty_blocks": left, "seconds_left": seconds_left })) {
            stopped.store(true, Ordering::Release);
            return Err(format!("stopped with {left} dirty {} left", noun(left, "block")));
        }
    }
    let seconds = (SystemClock.monotonic_ns() - started_ns) as f64 / 1e9;
    let left = volume.stats().dirty_blocks;
    Ok(json!({ "dirty_blocks_before": dirty_before, "dirty_blocks": left, "seconds": seconds }))
}

/// The result of `work`, or `None` if `is_stopped` is set first: then `work` is dropped at its next step.
pub async fn unless<T>(is_stopped: &AtomicBool, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| match is_stopped.load(Ordering::Acquire) {
        true => Poll::Ready(None),
        false => work.as_mut().poll(context).map(Some),
    })
    .await
}
