//! Cleaning that nobody waits for: Flashcache's `do_sync` and `stop_sync`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::volume::Volume;

use super::control::unless;

/// The latest such cleaning.
#[derive(Default)]
pub struct Syncing(Mutex<Option<Arc<Run>>>);

/// A cleaning, and its thread's last word.
#[derive(Default)]
struct Run {
    is_stopped: AtomicBool,
    stage: Mutex<Stage>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    GoingOn,
    /// It was asked for once more: what has become dirty since it began is none of its business, but that of one after it.
    AskedAgain,
    Over,
}

impl Syncing {
    /// Brings to the disk what is dirty now.
    pub fn begin(&self, volume: &Volume) -> Result<(), String> {
        let mut latest = lock(&self.0);
        if latest.as_ref().is_some_and(|run| run.will_go_on()) {
            return Ok(());
        }
        let run = Arc::new(Run::default());
        let (working, volume) = (Arc::clone(&run), volume.clone());
        let thread = std::thread::Builder::new().name("block-sync".into());
        thread
            .spawn(move || working.work(&volume))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        *latest = Some(run);
        Ok(())
    }

    /// Begins to write nothing more, though what is under way may still end.
    pub fn stop(&self) {
        if let Some(run) = &*lock(&self.0) {
            run.is_stopped.store(true, Ordering::Release);
        }
    }

    /// One that is stopped is not.
    pub fn is_going_on(&self) -> bool {
        lock(&self.0).as_ref().is_some_and(|run| run.is_going_on(*lock(&run.stage)))
    }
}

impl Run {
    fn work(&self, volume: &Volume) {
        loop {
            // A disk that fails is told of by the health.
            let cleaned = pollster::block_on(unless(&self.is_stopped, volume.clean()));
            let mut stage = lock(&self.stage);
            if cleaned.is_none() || *stage != Stage::AskedAgain {
                *stage = Stage::Over;
                return;
            }
            *stage = Stage::GoingOn;
        }
    }

    /// Whether it will bring to the disk what is dirty now: asked while it works, it does.
    fn will_go_on(&self) -> bool {
        let mut stage = lock(&self.stage);
        let is_going_on = self.is_going_on(*stage);
        if is_going_on {
            *stage = Stage::AskedAgain;
        }
        is_going_on
    }

    fn is_going_on(&self, stage: Stage) -> bool {
        stage != Stage::Over && !self.is_stopped.load(Ordering::Acquire)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
