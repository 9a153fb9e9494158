//! The paths that a caller can select.

/// The engine for submitted requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Engine {
    /// io_uring, and one thread that sleeps until requests complete.
    IoUring,
    /// A few blocking threads, if io_uring is not permitted.
    ThreadPool,
}

impl Engine {
    /// The name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::ThreadPool => "threads",
        }
    }

    /// The warning for a device that was meant to use io_uring and does not.
    #[must_use]
    pub fn warning(self) -> Option<&'static str> {
        (self == Self::ThreadPool).then_some(
            "io_uring is not available (a seccomp profile, as in containers, or kernel.io_uring_disabled): requests go through a few \
             blocking threads, which limits the queue depth and adds latency",
        )
    }
}
