//! The workload of the photo cache studies and the size of the drive: generated, or a given trace.
//!
//! With a trace, the ratio of drive capacity to footprint is that of the generated workload, to the nearest power of two, and
//! the request rate is the same. A drive has a minimum size ([`ssd::card`]), so a trace of small objects gets a larger cache
//! than its share.

use ssd::Card;
use ssd::card::MIN_SCALED_PAGES;
use workload::generate::cdn::{Cdn, CdnConfig};
use workload::trace::Accesses;

use crate::study::error::StudyError;
use crate::study::given::GivenTrace;
use crate::study::runner::Runner;

/// Card of the drive.
pub const CARD: &str = "photo";
/// Divisor of the drive and block size of production; photos keep their size.
pub const SCALE: u32 = 32;
/// Block size in production.
pub const BLOCK_BYTES: u32 = 64 << 20;
/// Requests of a run.
const REQUESTS: u64 = 20_000_000;
/// Warm-up requests. The caches are filled at least fifteen times by then, and the write amplification of RIPQ has stopped rising.
const WARM_REQUESTS: u64 = 10_000_000;
/// Makes the most popular photos more popular than the default, so that a cache of a quarter of the size has the same hit
/// ratio, and the drive is larger relative to the workload.
const ZIPF_SHIFT: f64 = 2e-7;
/// Total size of the objects of the generated workload. A constant, because generating it takes ten seconds.
const FOOTPRINT_BYTES: u64 = 63_200_000_000;

/// Requests of a run and the scale of its drive.
#[derive(Debug, Clone)]
pub struct Demand {
    /// Divisor of the drive and block size of production.
    pub(super) scale: u32,
    /// Requests of the run.
    pub(super) requests: u64,
    /// Requests of the warm-up.
    pub(super) warm_requests: u64,
    seed: u64,
    given: Option<GivenTrace>,
}

impl Demand {
    /// The workload of the runner's studies.
    ///
    /// # Errors
    /// All objects of the trace fit into the smallest drive.
    pub fn of(runner: &Runner) -> Result<Self, StudyError> {
        let seed = runner.seed;
        match &runner.given {
            None => Ok(Self::of_generated(seed)),
            Some(given) => Self::of_trace(given, seed),
        }
    }

    fn of_generated(seed: u64) -> Self {
        Self { scale: SCALE, requests: REQUESTS, warm_requests: WARM_REQUESTS, seed, given: None }
    }

    fn of_trace(given: &GivenTrace, seed: u64) -> Result<Self, StudyError> {
        let card = Card::load(CARD).map_err(|error| StudyError::Output(error.to_string()))?;
        let smallest = (card.space.unit_bytes / u64::from(card.space.page_bytes) / MIN_SCALED_PAGES) as u32;
        let scale = scale_for_footprint(given.footprint_bytes, FOOTPRINT_BYTES).min(smallest);
        let demand = Self {
            scale,
            requests: given.requests,
            warm_requests: (given.requests as f64 * WARM_REQUESTS as f64 / REQUESTS as f64) as u64,
            seed,
            given: Some(given.clone()),
        };
        let drive_bytes = card.space.usable_bytes / u64::from(scale);
        match drive_bytes < given.footprint_bytes {
            true => Ok(demand),
            false => Err(StudyError::Output(format!(
                "{given}: all objects fit into a drive of {drive_bytes} bytes, the smallest model, so there is \
                 nothing to measure"
            ))),
        }
    }

    /// Opens the requests from the start.
    pub(super) fn open(&self) -> Result<Box<dyn Accesses>, StudyError> {
        match &self.given {
            None => Ok(Box::new(generated(self.seed))),
            Some(given) => given.open(),
        }
    }

    /// Whether an object larger than a block is truncated to the block, as for the few such photos of the generated workload.
    /// Such objects of a trace are not cached.
    pub(super) fn cuts_large(&self) -> bool {
        self.given.is_none()
    }

    pub(super) fn block_bytes(&self) -> u32 {
        BLOCK_BYTES / self.scale
    }

    /// Description for the result.
    pub(super) fn note(&self) -> String {
        let Self { scale, requests, warm_requests, .. } = self;
        let block_kib = self.block_bytes() >> 10;
        let unit_kib = (512 << 10) / scale;
        match &self.given {
            None => format!(
                "These runs always use the scale 1/{scale} and ignore --scale: blocks of {block_kib} KiB for 64 MiB, units of \
                 {} MiB for 512 MiB, photos at full size. The workload is `trace generate cdn --requests {requests} --days 60 \
                 --zipf-shift 2e-7 --ageing-scale 8 --ageing-end 24`; 4000 requests a second, the first half to warm up.",
                unit_kib >> 10
            ),
            Some(given) => format!(
                "{given}. Scale 1/{scale}: blocks of {block_kib} KiB for 64 MiB, units of {unit_kib} KiB for 512 MiB, objects \
                 at full size, not cached if larger than a block. {requests} requests at 4000/s, the first \
                 {warm_requests} to warm up.",
            ),
        }
    }
}

/// Scale, a power of two, at which the ratio of drive to footprint is the same as for a footprint of `generated_bytes` at
/// [`SCALE`].
fn scale_for_footprint(footprint_bytes: u64, generated_bytes: u64) -> u32 {
    let times = generated_bytes as f64 / footprint_bytes as f64;
    let power = (times * f64::from(SCALE)).log2().round();
    2f64.powf(power.clamp(0.0, 31.0)) as u32
}

/// Workload of the photo studies: that of `trace generate cdn` for [`REQUESTS`], with [`ZIPF_SHIFT`].
pub fn photo_workload() -> CdnConfig {
    CdnConfig { zipf_shift: ZIPF_SHIFT, ..CdnConfig::default().lasting(REQUESTS) }
}

fn generated(seed: u64) -> Cdn {
    Cdn::new(&photo_workload(), seed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use workload::trace::Survey;

    use super::*;

    #[test]
    fn scale_is_inverse_to_footprint() {
        assert_eq!(scale_for_footprint(10_000, 10_000), SCALE);
        assert_eq!(scale_for_footprint(2_500, 10_000), SCALE * 4);
        assert_eq!(scale_for_footprint(11_000_000, 10_000), 1, "never larger than the drive");
    }

    #[test]
    fn note_has_the_command_line_of_the_workload() {
        let CdnConfig { requests, span_seconds, zipf_shift, ageing, .. } = photo_workload();
        let flags = format!(
            "--requests {requests} --days {} --zipf-shift {zipf_shift:e} --ageing-scale {} --ageing-end {}`",
            span_seconds / (24 * 60 * 60),
            ageing.scale,
            ageing.end
        );
        let note = Demand::of_generated(1).note();
        assert!(note.contains(&flags), "{flags} is not in: {note}");
    }

    #[test]
    #[ignore = "generates 40 million requests"]
    fn footprint_is_that_of_the_generated_workload() {
        for seed in [1, 2] {
            let (mut workload, mut survey, mut batch) = (generated(seed), Survey::default(), Vec::new());
            while survey.requests() < REQUESTS && workload.next_batch(&mut batch).unwrap() {
                batch.truncate((REQUESTS - survey.requests()) as usize);
                survey.add(&batch);
            }
            let share = survey.footprint_bytes as f64 / FOOTPRINT_BYTES as f64;
            assert!((0.98..1.02).contains(&share), "seed {seed}: {} bytes", survey.footprint_bytes);
        }
    }
}
