//! The cost of a run: CPU time of the whole process, elapsed time, resident memory.

use std::time::{Duration, Instant};

/// The start of a measurement.
pub struct Start {
    cpu: Duration,
    wall: Instant,
}

/// The cost since a [`Start`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    /// User and system time of all threads.
    pub cpu: Duration,
    /// Elapsed time.
    pub wall: Duration,
}

impl Start {
    pub fn now() -> Self {
        Self { cpu: process_cpu(), wall: Instant::now() }
    }

    pub fn spent(&self) -> Spent {
        Spent { cpu: process_cpu() - self.cpu, wall: self.wall.elapsed() }
    }
}

impl Spent {
    pub fn cpu_ns_per(&self, operations: usize) -> f64 {
        self.cpu.as_nanos() as f64 / operations as f64
    }

    pub fn cpu_us_per(&self, operations: usize) -> f64 {
        self.cpu_ns_per(operations) / 1e3
    }

    pub fn per_second(&self, operations: usize) -> f64 {
        operations as f64 / self.wall.as_secs_f64()
    }
}

fn process_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Memory of this process that is resident now, bytes.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has /proc/self/statm");
    let pages: u64 =
        statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).expect("statm has it second");
    pages * rustix::param::page_size() as u64
}

/// The median; the lower one for an even number.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}
