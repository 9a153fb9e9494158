//! What a photo cache is asked for, and how large the cache is: the generated workload, or a trace that was given.
//!
//! A trace has a drive that is as large beside its footprint as the generated workload's is beside what that run asks
//! for, to the nearest power of two, and is asked as often a second. A drive has a least size ([`ssd::card`]): a trace of
//! small objects has a larger cache than its share.

use ssd::Card;
use ssd::card::MIN_SCALED_PAGES;
use workload::generate::cdn::{Cdn, CdnConfig};
use workload::trace::{Accesses, Survey};

use crate::study::{GivenTrace, Runner, StudyError};

/// The card of the drive.
pub const CARD: &str = "photo";
/// The drive, and blocks, are so much smaller than in production; photos are as large.
pub const SCALE: u32 = 32;
/// A block, in production.
pub const BLOCK_BYTES: u32 = 64 << 20;
/// Requests of a run.
const REQUESTS: u64 = 20_000_000;
/// Requests before anything is measured. Caches have been filled fifteen times by then and more; the write amplification of
/// RIPQ rises until about then.
const WARM_REQUESTS: u64 = 10_000_000;
/// The most popular photos are more popular than by default: a cache of about a quarter of the size hits as often, and the
/// drive is so much larger beside what is asked for.
const ZIPF_SHIFT: f64 = 2e-7;

/// A run's requests and its scale.
#[derive(Debug, Clone)]
pub struct Demand {
    /// The drive, and blocks, are so much smaller than in production.
    pub(super) scale: u32,
    /// Of the run.
    pub(super) requests: u64,
    /// Those before anything is measured.
    pub(super) warm_requests: u64,
    seed: u64,
    given: Option<GivenTrace>,
}

impl Demand {
    /// What `runner`'s studies run on.
    ///
    /// # Errors
    /// A trace whose objects all fit into the smallest drive.
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
        let asked_for = footprint_bytes(&mut generated(seed), REQUESTS);
        let smallest = (card.space.unit_bytes / u64::from(card.space.page_bytes) / MIN_SCALED_PAGES) as u32;
        let scale = scale_beside(given.footprint_bytes, asked_for).min(smallest);
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
                "{given}: all of it fits into a drive of {drive_bytes} bytes, the smallest that is modelled; there is \
                 nothing to measure"
            ))),
        }
    }

    /// From the beginning.
    pub(super) fn open(&self) -> Result<Box<dyn Accesses>, StudyError> {
        match &self.given {
            None => Ok(Box::new(generated(self.seed))),
            Some(given) => given.open(),
        }
    }

    /// Whether an object that is larger than a block is put in as far as it goes, as are the few such photos of the
    /// generated workload. Of a trace it stays out.
    pub(super) fn cuts_large(&self) -> bool {
        self.given.is_none()
    }

    pub(super) fn block_bytes(&self) -> u32 {
        BLOCK_BYTES / self.scale
    }

    /// In words.
    pub(super) fn note(&self) -> String {
        let Self { scale, requests, warm_requests, .. } = self;
        let block_kib = self.block_bytes() >> 10;
        let unit_kib = (512 << 10) / scale;
        match &self.given {
            None => format!(
                "These runs use their own scale, 1/{scale}, whatever --scale says: blocks of {block_kib} KiB for 64 MiB, units of \
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

/// The scale at which a drive is to `footprint_bytes` what it is to `asked_for_bytes` at [`SCALE`], as a power of two.
fn scale_beside(footprint_bytes: u64, asked_for_bytes: u64) -> u32 {
    let times = asked_for_bytes as f64 / footprint_bytes as f64;
    let power = (times * f64::from(SCALE)).log2().round();
    2f64.powf(power.clamp(0.0, 31.0)) as u32
}

/// What the photo studies' caches are asked for: the workload of `trace generate cdn` for [`REQUESTS`], with [`ZIPF_SHIFT`].
pub fn photo_workload() -> CdnConfig {
    CdnConfig { zipf_shift: ZIPF_SHIFT, ..CdnConfig::default().lasting(REQUESTS) }
}

fn generated(seed: u64) -> Cdn {
    Cdn::new(&photo_workload(), seed)
}

/// What the objects of the first `requests` take together.
fn footprint_bytes(workload: &mut Cdn, requests: u64) -> u64 {
    let (mut survey, mut batch) = (Survey::default(), Vec::new());
    while survey.requests() < requests
        && workload.next_batch(&mut batch).expect("a generator has nothing to fail at")
    {
        batch.truncate((requests - survey.requests()) as usize);
        survey.add(&batch);
    }
    survey.footprint_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_of_the_same_footprint_has_the_same_scale_and_a_quarter_of_it_a_quarter() {
        assert_eq!(scale_beside(10_000, 10_000), SCALE);
        assert_eq!(scale_beside(2_500, 10_000), SCALE * 4);
        assert_eq!(scale_beside(11_000_000, 10_000), 1, "never larger than the drive");
    }

    #[test]
    fn the_note_tells_the_workload_as_the_command_line_makes_it() {
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
    fn a_footprint_is_of_the_requests_that_are_made() {
        let config = CdnConfig { requests: 20_000, objects: 4_000, ..CdnConfig::default() };
        let some = footprint_bytes(&mut Cdn::new(&config, 1), 100);
        let more = footprint_bytes(&mut Cdn::new(&config, 1), 10_000);
        let all = footprint_bytes(&mut Cdn::new(&config, 1), u64::MAX);
        assert!(0 < some && some < more && more < all, "{some} {more} {all}");
    }
}
