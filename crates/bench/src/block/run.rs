//! Replays the same requests on several caches.

use block::sets::{ConfigError, SetsConfig};

use super::disk::DiskModel;
use super::heat::HeatMap;
use super::replay::{Replay, Summary};
use super::source::{After, BlockTraceError, Source};
use crate::run::stop::Stop;

/// Error of a replay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A setting is out of bounds.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] BlockTraceError),
    /// The replay was stopped.
    #[error("interrupted")]
    Interrupted,
}

/// Results of one cache.
pub struct Outcome {
    /// The counters.
    pub summary: Summary,
    /// The work of the sets over time.
    pub heat: HeatMap,
}

/// Replays `source` on a cache for each of `configs`. `advance` receives the number of requests so far.
///
/// # Errors
/// A setting is out of bounds, the trace cannot be read, or the replay was stopped.
pub fn side_by_side(
    configs: &[SetsConfig],
    disk: DiskModel,
    source: &mut Source,
    stop: &Stop,
    advance: &dyn Fn(u64),
) -> Result<Vec<Outcome>, ReplayError> {
    let mut lanes = configs.iter().map(|config| Lane::new(*config, disk)).collect::<Result<Vec<_>, _>>()?;
    let (mut chunk, mut requests) = (Vec::new(), 0);
    loop {
        let after = source.fill(&mut chunk)?;
        each_on_a_thread(&mut lanes, |lane| lane.take(&chunk, after));
        requests += chunk.len() as u64;
        advance(requests);
        if stop.is_set() {
            return Err(ReplayError::Interrupted);
        }
        if after == After::End {
            break;
        }
    }
    Ok(lanes.into_iter().map(|lane| Outcome { summary: lane.replay.summary(), heat: lane.heat }).collect())
}

struct Lane {
    replay: Replay,
    heat: HeatMap,
}

impl Lane {
    fn new(config: SetsConfig, disk: DiskModel) -> Result<Self, ConfigError> {
        let replay = Replay::new(config, disk)?;
        let heat = HeatMap::new(replay.sets());
        Ok(Self { replay, heat })
    }

    fn take(&mut self, chunk: &[workload::block::BlockRequest], after: After) {
        for part in chunk.chunks(self.heat.until_next_column()) {
            part.iter().for_each(|request| self.replay.request(request));
            self.heat.note(self.replay.sets(), part.len());
        }
        if after == After::Warm {
            self.replay.zero_counts();
            self.heat = HeatMap::new(self.replay.sets());
        }
    }
}

fn each_on_a_thread<T: Send>(items: &mut [T], work: impl Fn(&mut T) + Sync) {
    if let [one] = items {
        return work(one);
    }
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let each = items.len().div_ceil(threads).max(1);
    let work = &work;
    std::thread::scope(|scope| {
        for part in items.chunks_mut(each) {
            scope.spawn(move || part.iter_mut().for_each(work));
        }
    });
}

#[cfg(test)]
mod tests {
    use block::sets::Preset;

    use super::super::source::InnodbConfig;
    use super::*;

    fn small() -> Source {
        let config =
            InnodbConfig { volume_bytes: 256 << 20, buffer_pool_bytes: 4 << 20, ..InnodbConfig::default() };
        Source::innodb(config, 1, 60_000, 20_000)
    }

    #[test]
    fn replays_in_one_pass_equal_separate_replays() {
        let configs = [Preset::V2, Preset::V3].map(|preset| preset.config(16 << 20));
        let run = |configs: &[SetsConfig]| -> Vec<Summary> {
            let outcomes =
                side_by_side(configs, DiskModel::default(), &mut small(), &Stop::default(), &|_| {});
            outcomes.expect("it runs").into_iter().map(|outcome| outcome.summary).collect()
        };
        let together = run(&configs);
        for (config, summary) in configs.iter().zip(&together) {
            assert_eq!(run(&[*config])[0].counters, summary.counters);
        }
        assert!(together[1].counters.hit_percent() > together[0].counters.hit_percent());
    }

    #[test]
    fn stop_ends_replay_with_interrupted_error() {
        let stop = Stop::default();
        stop.set(crate::run::stop::StopReason::Interrupt);
        let configs = [Preset::V2.config(16 << 20)];
        let outcome = side_by_side(&configs, DiskModel::default(), &mut small(), &stop, &|_| {});
        assert!(matches!(outcome, Err(ReplayError::Interrupted)));
    }
}
