//! Preconditioning: fills a drive until it is steady.
//!
//! One sequential pass maps every block. Then rounds of random writes follow until the write rate of the last rounds is
//! steady, and also the write amplification if the drive reports it. An empty drive is faster as long as it has erased
//! blocks, so figures measured then do not describe the drive.

use std::collections::VecDeque;
use std::sync::Arc;

use device::{Clock, Device, IoBuffer, IoSlice, Request};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::DriveError;
use crate::steady::is_steady;

/// Parameters of preconditioning.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of a random write.
    pub write_bytes: u64,
    /// Writes in flight.
    pub depth: usize,
    /// Limit of random writes, as a multiple of the capacity.
    pub max_passes: f64,
    /// Seed of the offsets and of the data.
    pub seed: u64,
}

/// The capacity divided by this is the size of a round of random writes. Steadiness is tested over five rounds.
const ROUND_SHARE: u64 = 5;

/// Bytes of a write of the sequential pass.
const SEQUENTIAL_BYTES: u64 = 1 << 20;

/// Length of the random data from which all writes are taken: longer than the window in which drives compress.
const DATA_BYTES: usize = 16 << 20;

/// The measurements of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// Whether it was part of the sequential pass.
    pub sequential: bool,
    /// Bytes written by this program.
    pub written_bytes: u64,
    /// Bytes per second.
    pub rate: f64,
    /// Media bytes divided by the bytes written by this program; `None` if the drive does not report media writes.
    pub write_amplification: Option<f64>,
}

/// The result of preconditioning.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Whether it became steady.
    pub steady: bool,
    /// All rounds.
    pub rounds: Vec<Round>,
}

/// Called with the bytes written, the maximum, and the rounds so far. Returns whether to continue.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64, &[Round]) -> bool;

/// Fills `device`.
///
/// # Errors
/// The device fails, the options do not fit it, or `watch` returned false.
pub fn run(
    device: &dyn Device,
    clock: &dyn Clock,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Outcome, DriveError> {
    let geometry = device.geometry();
    let block = u64::from(geometry.block_bytes);
    let fits = options.write_bytes > 0 && options.write_bytes.is_multiple_of(block);
    if !fits || options.write_bytes > u64::from(geometry.max_io_bytes).min(geometry.capacity_bytes) {
        return Err(DriveError::Stopped(format!(
            "--write-size {}: must be a multiple of {block} bytes, and at most {}",
            options.write_bytes,
            u64::from(geometry.max_io_bytes).min(geometry.capacity_bytes)
        )));
    }
    let capacity = geometry.capacity_bytes;
    let most = capacity.saturating_add((capacity as f64 * options.max_passes) as u64);
    let mut filling = Filling::new(device, clock, options, watch, most);
    filling.sequential_pass()?;
    let round_bytes = (capacity / ROUND_SHARE).max(options.write_bytes);
    while filling.done_bytes + round_bytes <= most && !filling.is_steady() {
        filling.random_round(round_bytes)?;
    }
    device.execute(Request::Flush)?;
    Ok(Outcome { steady: filling.is_steady(), rounds: filling.rounds })
}

struct Filling<'a> {
    device: &'a dyn Device,
    clock: &'a dyn Clock,
    options: &'a Options,
    watch: Watch<'a>,
    most_bytes: u64,
    done_bytes: u64,
    random: StdRng,
    data: Arc<IoBuffer>,
    rounds: Vec<Round>,
}

impl<'a> Filling<'a> {
    fn new(
        device: &'a dyn Device,
        clock: &'a dyn Clock,
        options: &'a Options,
        watch: Watch<'a>,
        most_bytes: u64,
    ) -> Self {
        let mut random = StdRng::seed_from_u64(options.seed);
        let mut data = IoBuffer::zeroed(DATA_BYTES);
        random.fill_bytes(&mut data);
        let data = Arc::new(data);
        Self { device, clock, options, watch, most_bytes, done_bytes: 0, random, data, rounds: Vec::new() }
    }

    fn sequential_pass(&mut self) -> Result<(), DriveError> {
        let geometry = self.device.geometry();
        let (block, capacity) = (u64::from(geometry.block_bytes), geometry.capacity_bytes);
        let longest = SEQUENTIAL_BYTES.min(geometry.max_io_bytes.into());
        let step = longest - longest % block;
        let mut offset = 0;
        while offset < capacity {
            let end = capacity.min(offset + (capacity / ROUND_SHARE).next_multiple_of(step));
            let places = (offset..end).step_by(step as usize).map(|at| (at, step.min(end - at)));
            self.round(true, &mut { places })?;
            offset = end;
        }
        Ok(())
    }

    fn random_round(&mut self, round_bytes: u64) -> Result<(), DriveError> {
        let (len, capacity) = (self.options.write_bytes, self.device.geometry().capacity_bytes);
        let mut random = StdRng::seed_from_u64(self.random.random());
        let slots = capacity / len;
        let places = (0..round_bytes / len).map(|_| (random.random_range(0..slots) * len, len));
        self.round(false, &mut { places })
    }

    /// Writes to all `places` with the configured queue depth, and measures the rate.
    fn round(
        &mut self,
        sequential: bool,
        places: &mut dyn Iterator<Item = (u64, u64)>,
    ) -> Result<(), DriveError> {
        let (start_ns, before) = (self.clock.monotonic_ns(), self.device.counters());
        let (mut in_flight, start_bytes) = (VecDeque::with_capacity(self.options.depth), self.done_bytes);
        for (offset, len) in places {
            if in_flight.len() >= self.options.depth.max(1) {
                self.end_one(&mut in_flight)?;
            }
            let data = self.random_data(len);
            in_flight.push_back((len, self.device.write(offset, data)));
        }
        while !in_flight.is_empty() {
            self.end_one(&mut in_flight)?;
        }
        let (written_bytes, after) = (self.done_bytes - start_bytes, self.device.counters());
        let seconds = (self.clock.monotonic_ns() - start_ns).max(1) as f64 / 1e9;
        let media = after.media_written_bytes.zip(before.media_written_bytes);
        let media = media.and_then(|(after, before)| after.checked_sub(before));
        self.rounds.push(Round {
            sequential,
            written_bytes,
            rate: written_bytes as f64 / seconds,
            write_amplification: media.map(|media| media as f64 / written_bytes as f64),
        });
        Ok(())
    }

    fn end_one(&mut self, in_flight: &mut VecDeque<(u64, device::Pending)>) -> Result<(), DriveError> {
        if let Some((len, pending)) = in_flight.pop_front() {
            pending.wait()?;
            self.done_bytes += len;
        }
        if (self.watch)(self.done_bytes, self.most_bytes, &self.rounds) {
            return Ok(());
        }
        in_flight.drain(..).for_each(|(_, pending)| drop(pending.wait()));
        Err(DriveError::Stopped(format!("stopped after {} bytes; the drive is not steady", self.done_bytes)))
    }

    /// Random data for a write of `len` bytes: a part of the prepared buffer, or its own buffer if it is long.
    fn random_data(&mut self, len: u64) -> IoSlice {
        let block = self.device.geometry().block_bytes as usize;
        let len = len as usize;
        if len > DATA_BYTES / 2 {
            let mut own = IoBuffer::zeroed(len);
            self.random.fill_bytes(&mut own);
            return own.into();
        }
        let start = self.random.random_range(0..(DATA_BYTES - len) / block) * block;
        IoSlice::new(Arc::clone(&self.data), start..start + len)
    }

    /// Tests the rates, and the write amplification if it is known.
    fn is_steady(&self) -> bool {
        let random = || self.rounds.iter().filter(|round| !round.sequential);
        let rates: Vec<f64> = random().map(|round| round.rate).collect();
        let amplifications: Option<Vec<f64>> = random().map(|round| round.write_amplification).collect();
        is_steady(&rates) && amplifications.is_none_or(|values| is_steady(&values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::{MemoryDevice, SystemClock};

    fn options() -> Options {
        Options { write_bytes: 4096, depth: 8, max_passes: 8.0, seed: 1 }
    }

    #[test]
    fn sequential_pass_precedes_random_writes() {
        let device = MemoryDevice::new(6 << 20);
        let outcome = run(&device, &SystemClock, &options(), &mut |_, _, _| true).unwrap();
        let sequential: u64 =
            outcome.rounds.iter().filter(|it| it.sequential).map(|it| it.written_bytes).sum();
        assert_eq!(sequential, 6 << 20);
        let request = Request::read(0, 6 << 20);
        let whole = device.execute(request).unwrap();
        assert!(
            whole.chunks(4096).all(|block| block.iter().any(|&byte| byte != 0)),
            "every block is written"
        );
        assert!(
            outcome.rounds.iter().all(|round| round.write_amplification.is_none()),
            "a memory device reports no media writes"
        );
        let random = outcome.rounds.iter().filter(|it| !it.sequential).count();
        assert!((5..=40).contains(&random), "{random} rounds of a fifth each, eight passes at most");
    }

    #[test]
    fn preconditioning_stopped_by_its_callback_ends_early() {
        let device = MemoryDevice::new(6 << 20);
        let error = run(&device, &SystemClock, &options(), &mut |done, _, _| done < 1 << 20).unwrap_err();
        assert!(error.to_string().contains("stopped after"), "{error}");
        let written = device.counters().written_bytes;
        assert!((1 << 20..6 << 20).contains(&written), "{written}");
    }

    #[test]
    fn writes_that_do_not_fit_the_device_are_refused() {
        let device = MemoryDevice::new(6 << 20);
        for write_bytes in [0, 100, 1 << 40] {
            let options = Options { write_bytes, ..options() };
            run(&device, &SystemClock, &options, &mut |_, _, _| true).unwrap_err();
        }
    }

    #[test]
    fn huge_number_of_passes_does_not_overflow() {
        let device = MemoryDevice::new(6 << 20);
        let options = Options { max_passes: 1e300, ..options() };
        let mut most = 0;
        let all = &mut |done: u64, of: u64, _: &[Round]| {
            most = of;
            done < 12 << 20
        };
        let random = |rounds: &[Round]| rounds.iter().any(|round| !round.sequential);
        match run(&device, &SystemClock, &options, all) {
            Ok(outcome) => assert!(random(&outcome.rounds), "random rounds follow the sequential pass"),
            Err(stopped) => assert!(matches!(stopped, DriveError::Stopped(_)), "{stopped}"),
        }
        assert_eq!(most, u64::MAX);
    }
}
