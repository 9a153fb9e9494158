//! Random rewrites of a part of a drive beside a ring through the rest, as fio jobs: the writes of a cache with buckets and regions.

use workload::fio::{JobError, JobFile};

/// The writes of a cache.
#[derive(Debug, Clone, Copy)]
pub struct Mixed {
    /// Share of the drive that is written at all.
    pub used: f64,
    /// Share of that space that is rewritten at random.
    pub random_space: f64,
    /// Share of the bytes that are written to the random space.
    pub random_writes: f64,
    /// Whether each part has a placement handle of its own.
    pub has_placement: bool,
}

/// Bytes per second of both jobs together: low enough that the drive never delays them, so that their shares are as given.
const RATE: f64 = 100e6;

impl Mixed {
    /// Host writes until the ring has gone round its part for the first time, in capacities of the drive.
    #[must_use]
    pub fn wrap_capacities(&self) -> f64 {
        (1.0 - self.random_space) * self.used / (1.0 - self.random_writes)
    }

    /// The jobs, which write without end.
    ///
    /// # Errors
    /// A share is outside of 0 to 1.
    pub fn file(&self) -> Result<JobFile, JobError> {
        let mut file = JobFile::parse(&self.text(), |_| None)?;
        file.jobs.iter_mut().for_each(|job| job.has_placement = self.has_placement);
        Ok(file)
    }

    fn text(&self) -> String {
        let [used, random] = [self.used, self.used * self.random_space].map(|share| share * 100.0);
        let [random_rate, ring_rate] =
            [self.random_writes, 1.0 - self.random_writes].map(|share| (share * RATE).round().max(1.0));
        let mut text =
            "[global]\nioengine=libaio\nfilename=/dev/x\nfdp=1\niodepth=32\ntime_based\nruntime=10000d\n"
                .to_owned();
        if self.random_space > 0.0 {
            text += &format!(
                "[random]\nrw=randwrite\nnorandommap\nbs=4k\nsize={random}%\nrate={random_rate}\nfdp_pli=0\n"
            );
        }
        if self.random_space < 1.0 {
            text += &format!(
                "[ring]\nrw=write\nbs=128k\noffset={random}%\nsize={}%\nrate={ring_rate}\nfdp_pli=1\n",
                used - random
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_the_given_shares_of_space_and_writes() {
        let mixed = Mixed { used: 0.96, random_space: 0.25, random_writes: 0.8, has_placement: false };
        assert!((mixed.wrap_capacities() - 3.6).abs() < 1e-9);
        let file = mixed.file().unwrap();
        let [random, ring] = &file.jobs[..] else { panic!("{file:?}") };
        assert_eq!(
            (random.bytes_per_second[1], ring.bytes_per_second[1]),
            (Some(80_000_000), Some(20_000_000))
        );
        assert!(!random.has_placement && random.placement_ids == [0] && ring.placement_ids == [1]);
    }
}
