//! Background cleaning: Flashcache's `do_sync` and `stop_sync`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::volume::Volume;
use device::event_loop::wait_for;

use crate::operations::unless;

/// The latest background cleaning.
#[derive(Default)]
pub struct BackgroundSync(Mutex<Option<Arc<Run>>>);

/// A cleaning, and the state of its thread.
#[derive(Default)]
struct Run {
    is_stopped: AtomicBool,
    stage: Mutex<Stage>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Running,
    /// Requested again: blocks that became dirty since the start need another pass.
    Repeat,
    Ended,
}

impl BackgroundSync {
    /// Cleans all blocks that are dirty now.
    pub fn begin(&self, volume: &Volume) -> Result<(), String> {
        let mut latest = lock(&self.0);
        if latest.as_ref().is_some_and(|run| run.repeat()) {
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

    /// Stops starting new writes; writes in flight complete.
    pub fn stop(&self) {
        if let Some(run) = &*lock(&self.0) {
            run.is_stopped.store(true, Ordering::Release);
        }
    }

    /// Whether it is running; false once stopped.
    pub fn is_running(&self) -> bool {
        lock(&self.0).as_ref().is_some_and(|run| run.is_running(*lock(&run.stage)))
    }
}

impl Run {
    fn work(&self, volume: &Volume) {
        loop {
            // Disk failures are reported by the health.
            let cleaned = wait_for(unless(&self.is_stopped, volume.clean()));
            let mut stage = lock(&self.stage);
            if cleaned.is_none() || *stage != Stage::Repeat {
                *stage = Stage::Ended;
                return;
            }
            *stage = Stage::Running;
        }
    }

    /// Requests another pass if the thread still works; returns whether it does.
    fn repeat(&self) -> bool {
        let mut stage = lock(&self.stage);
        let is_running = self.is_running(*stage);
        if is_running {
            *stage = Stage::Repeat;
        }
        is_running
    }

    fn is_running(&self, stage: Stage) -> bool {
        stage != Stage::Ended && !self.is_stopped.load(Ordering::Acquire)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
