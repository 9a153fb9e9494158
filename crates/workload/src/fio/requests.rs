//! The requests of one job, in order, without their times.

use rand::Rng;

use super::random_map::RandomMap;
use super::skew::{Sampler, unit};
use super::{BlockSizes, Distribution, Job, Mix, PerKind, kind_index};
use crate::block::BlockKind;
use crate::generate::random::{self, Stream};

/// A range of the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte of the range.
    pub first_byte: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A request without a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Read, write or trim.
    pub kind: BlockKind,
    /// First byte of the range.
    pub first_byte: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Generates the requests of one clone of a job.
pub struct Requests {
    mix: Mix,
    is_random: bool,
    run_length: u32,
    skip_bytes: u64,
    read_share: f64,
    random_share: PerKind<f64>,
    lengths: PerKind<Lengths>,
    align_bytes: PerKind<u64>,
    smallest_bytes: u64,
    extent: Extent,
    samplers: PerKind<Sampler>,
    map: Option<RandomMap>,
    /// Next sequential offset in the extent.
    next_byte: PerKind<u64>,
    /// Requests left that follow the last random offset.
    run_left: u32,
    /// The write that follows a trim of the same block.
    second_half: Option<Operation>,
    transferred_bytes: u64,
    /// Bytes after which the job ends; `None` for a job that ends by time.
    limit_bytes: Option<u64>,
    requests_left: Option<u64>,
    random: Stream,
}

impl Requests {
    /// The requests of `job` in `extent`. `limit_bytes` is the transfer of one repetition; `None` means the extent's length. `worker` gives
    /// each clone its own random numbers. `scale` is the divisor of the extent: a Zipf distribution keeps the shape that it has over all
    /// blocks of the undivided one.
    #[must_use]
    pub fn new(
        job: &Job,
        (extent, scale): (Extent, u64),
        limit_bytes: Option<u64>,
        seed: u64,
        worker: usize,
    ) -> Self {
        let mut random = random::stream(seed, worker);
        let kinds = || job.pattern.mix.kinds().iter().map(|&kind| kind_index(kind));
        let smallest_bytes = kinds().map(|at| job.block_bytes[at].smallest()).min().unwrap_or(1);
        let align_bytes: PerKind<u64> =
            std::array::from_fn(|at| job.align_bytes[at].unwrap_or_else(|| job.block_bytes[at].smallest()));
        let samplers = std::array::from_fn(|at| {
            let blocks = (extent.bytes / align_bytes[at]).max(1);
            Sampler::new(&job.distribution[at], (blocks, scale), align_bytes[at], &mut random)
        });
        let has_map = job.pattern.is_random
            && job.has_random_map
            && kinds().all(|at| job.distribution[at] == Distribution::Uniform);
        let halves = if job.pattern.mix == Mix::TrimsThenWrites { 2 } else { 1 };
        let repetition = limit_bytes.unwrap_or(extent.bytes) * halves;
        Self {
            mix: job.pattern.mix,
            is_random: job.pattern.is_random,
            run_length: job.pattern.run_length,
            skip_bytes: job.pattern.skip_bytes,
            read_share: job.read_share,
            random_share: job.random_share,
            lengths: std::array::from_fn(|at| Lengths::new(&job.block_bytes[at])),
            align_bytes,
            smallest_bytes,
            extent,
            samplers,
            map: has_map.then(|| RandomMap::new((extent.bytes / smallest_bytes).max(1))),
            next_byte: [0; 3],
            run_left: 0,
            second_half: None,
            transferred_bytes: 0,
            limit_bytes: (!job.is_time_based).then(|| repetition.saturating_mul(job.loops)),
            requests_left: job.max_requests,
            random,
        }
    }

    /// Bytes after which the job ends by itself.
    #[must_use]
    pub fn limit_bytes(&self) -> Option<u64> {
        self.limit_bytes
    }

    /// The next request; `None` at the end.
    #[expect(clippy::should_implement_trait, reason = "callers also need the limit while they iterate")]
    pub fn next(&mut self) -> Option<Operation> {
        if self.requests_left == Some(0) {
            return None;
        }
        let left = self.limit_bytes.map(|limit| limit.saturating_sub(self.transferred_bytes));
        if left == Some(0) {
            return None;
        }
        let operation = match self.second_half.take() {
            Some(write) => write,
            None => self.generate(left.unwrap_or(u64::MAX)),
        };
        self.transferred_bytes += operation.bytes;
        self.requests_left = self.requests_left.map(|left| left - 1);
        Some(operation)
    }

    fn generate(&mut self, most_bytes: u64) -> Operation {
        let kind = self.kind();
        let at = kind_index(kind);
        // The last request is shorter if less is left, but never less than a block.
        let bytes = self.lengths[at].draw(&mut self.random).min(most_bytes.max(self.smallest_bytes));
        let (offset, bytes) = if self.begins_anywhere(at) {
            self.random_range(at, bytes)
        } else {
            self.sequential_range(at, bytes)
        };
        // The requests of a run follow one random offset, in whichever direction.
        self.next_byte[at] = offset + bytes + if self.is_random { 0 } else { self.skip_bytes };
        let operation = Operation { kind, first_byte: self.extent.first_byte + offset, bytes };
        if self.mix == Mix::TrimsThenWrites {
            self.second_half = Some(Operation { kind: BlockKind::Write, ..operation });
        }
        operation
    }

    fn kind(&mut self) -> BlockKind {
        match self.mix {
            Mix::Reads => BlockKind::Read,
            Mix::Writes => BlockKind::Write,
            Mix::Trims | Mix::TrimsThenWrites => BlockKind::Discard,
            Mix::ReadsAndWrites if unit(&mut self.random) < self.read_share => BlockKind::Read,
            Mix::ReadsAndWrites => BlockKind::Write,
        }
    }

    fn begins_anywhere(&mut self, at: usize) -> bool {
        if !self.is_random {
            return false;
        }
        if self.run_left > 0 {
            self.run_left -= 1;
            return false;
        }
        let share = self.random_share[at];
        let is_random = share >= 1.0 || unit(&mut self.random) < share;
        if is_random {
            self.run_left = self.run_length - 1;
        }
        is_random
    }

    fn random_range(&mut self, at: usize, bytes: u64) -> (u64, u64) {
        let offset = self.samplers[at].next(&mut self.random) * self.align_bytes[at];
        let Some(map) = &mut self.map else {
            return (offset, self.clip(offset, bytes));
        };
        if map.is_full() {
            map.clear();
        }
        let unit_bytes = self.smallest_bytes;
        let Some(block) = map.next_free(offset / unit_bytes) else { return (offset, bytes) };
        let taken = map.take(block, bytes.div_ceil(unit_bytes));
        (block * unit_bytes, bytes.min(taken * unit_bytes))
    }

    /// The range behind the last one, or at the beginning of the extent after its end.
    fn sequential_range(&self, at: usize, bytes: u64) -> (u64, u64) {
        let next = self.next_byte[at];
        let is_past_end = next + self.smallest_bytes.min(self.extent.bytes) > self.extent.bytes;
        let offset = if is_past_end { 0 } else { next };
        (offset, self.clip(offset, bytes))
    }

    /// Shortens a request that reaches past the extent.
    fn clip(&self, offset: u64, bytes: u64) -> u64 {
        bytes.min(self.extent.bytes.saturating_sub(offset)).max(self.smallest_bytes.min(self.extent.bytes))
    }
}

/// Draws lengths.
struct Lengths {
    least: u64,
    steps: u64,
    /// Cumulative shares; empty for a range.
    split: Vec<(f64, u64)>,
}

impl Lengths {
    fn new(sizes: &BlockSizes) -> Self {
        match sizes {
            BlockSizes::Range(least, most) => Self { least: *least, steps: most / least, split: Vec::new() },
            BlockSizes::Split(lengths) => {
                let cumulative = lengths.iter().scan(0.0, |sum, &(bytes, share)| {
                    *sum += share;
                    Some((*sum, bytes))
                });
                Self { least: sizes.smallest(), steps: 1, split: cumulative.collect() }
            }
        }
    }

    fn draw(&self, random: &mut Stream) -> u64 {
        if self.split.is_empty() {
            let step = if self.steps > 1 { random::below(random.next_u64(), self.steps) } else { 0 };
            return self.least * (step + 1);
        }
        let draw = unit(random);
        self.split.iter().find(|length| draw < length.0).or(self.split.last()).map_or(self.least, |it| it.1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::JobFile;
    use super::*;

    fn requests(text: &str, bytes: u64, limit: Option<u64>) -> Requests {
        let file = JobFile::parse(text, |_| None).unwrap();
        Requests::new(&file.jobs[0], (Extent { first_byte: 1 << 20, bytes }, 1), limit, 1, 0)
    }

    fn all(mut requests: Requests) -> Vec<Operation> {
        std::iter::from_fn(|| requests.next()).collect()
    }

    #[test]
    fn random_map_writes_each_block_once_a_pass() {
        let blocks = all(requests("[j]\nrw=randwrite\n", 1 << 20, Some(2 << 20)));
        assert_eq!(blocks.len(), 512);
        for pass in blocks.chunks(256) {
            let offsets: HashSet<u64> = pass.iter().map(|it| it.first_byte).collect();
            assert_eq!(offsets.len(), 256);
            assert!(offsets.iter().all(|at| (1 << 20..2 << 20).contains(at) && at % 4096 == 0));
        }
        assert_ne!(blocks[..256], blocks[256..]);
    }

    #[test]
    fn norandommap_repeats_blocks_within_a_pass() {
        let blocks = all(requests("[j]\nrw=randwrite\nnorandommap\n", 4 << 20, None));
        let offsets: HashSet<u64> = blocks.iter().map(|it| it.first_byte).collect();
        // Of n draws among n blocks, 1 - 1/e = 63 % are distinct.
        assert!((600..700).contains(&(offsets.len() * 1000 / blocks.len())), "{}", offsets.len());
    }

    #[test]
    fn sequential_job_wraps_until_its_bytes_are_written() {
        let offsets = |text, limit| -> Vec<u64> {
            all(requests(text, 16_384, limit)).iter().map(|it| (it.first_byte - (1 << 20)) / 4096).collect()
        };
        assert_eq!(offsets("[j]\nrw=write\n", None), [0, 1, 2, 3]);
        assert_eq!(offsets("[j]\nrw=write\n", Some(24_576)), [0, 1, 2, 3, 0, 1]);
        assert_eq!(offsets("[j]\nrw=write\nloops=2\n", None), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(offsets("[j]\nrw=write:4k\n", None), [0, 2, 0, 2]);
        assert_eq!(offsets("[j]\nrw=write\nnumber_ios=3\n", None), [0, 1, 2]);
    }

    #[test]
    fn trimwrite_trims_each_block_and_then_writes_it() {
        let operations = all(requests("[j]\nrw=randtrimwrite\n", 64 << 10, None));
        assert_eq!(operations.len(), 32);
        for pair in operations.chunks(2) {
            assert_eq!((pair[0].kind, pair[1].kind), (BlockKind::Discard, BlockKind::Write));
            assert_eq!(pair[0].first_byte, pair[1].first_byte);
        }
    }

    #[test]
    fn run_length_makes_requests_follow_a_random_offset() {
        let operations = all(requests("[j]\nrw=randwrite:4\nnorandommap\n", 1 << 30, Some(4 << 20)));
        let follows = operations.windows(2).filter(|it| it[0].first_byte + it[0].bytes == it[1].first_byte);
        assert_eq!(follows.count(), operations.len() / 4 * 3);
    }

    #[test]
    fn read_write_mix_and_split_lengths_have_the_configured_shares() {
        let text = "[j]\nrw=randrw\nrwmixread=20\nnorandommap\nbssplit=4k/75:8k/25\nba=4k\n";
        let operations = all(requests(text, 1 << 30, Some(400 << 20)));
        let share = |count: usize| count as f64 / operations.len() as f64;
        let reads = share(operations.iter().filter(|it| it.kind == BlockKind::Read).count());
        let long = share(operations.iter().filter(|it| it.bytes == 8192).count());
        assert!((reads - 0.2).abs() < 0.01 && (long - 0.25).abs() < 0.01, "{reads} {long}");
    }
}
