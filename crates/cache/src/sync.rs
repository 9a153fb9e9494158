//! The locks of the DRAM tier and of the log of small items: parking_lot's in the product, shuttle's if a test explores schedules
//! (`RUSTFLAGS="--cfg shuttle"`).
#![allow(unexpected_cfgs, reason = "`shuttle` is set by hand, for the schedule-exploring tests only")]

#[cfg(not(all(test, shuttle)))]
mod locks {
    pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

    /// A point at which a schedule may switch threads: between two operations on state that threads share.
    #[inline(always)]
    pub fn step() {}
}

#[cfg(all(test, shuttle))]
mod locks {
    pub use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    pub fn step() {
        shuttle::thread::yield_now();
    }

    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no test panics while it holds a lock and goes on")
        }
    }

    #[derive(Debug, Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }

        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect("no test panics while it holds a lock and goes on")
        }

        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("no test panics while it holds a lock and goes on")
        }
    }
}

pub(crate) use locks::*;
