//! The drive and workload of a series, derived from its name.
//!
//! `Cachelib/DRIVE/…/socN/fdp|nofdp/…` is a cache with N % of its space in buckets, `FIO/…/3syn/DISTRIBUTION/fdp|fdp_share|nofdp/…`
//! three writers side by side, `FIO/ssda` and `FIO/ssdb` one stream of random writes.

use ssd::Card;
use workload::fio::JobFile;

use super::Series;
use crate::drive::log::DriveLog;
use crate::jobs::mixed::Mixed;

pub(super) struct Setup {
    pub(super) card: Card,
    pub(super) scale: u32,
    /// The jobs, with placement or without.
    pub(super) file: JobFile,
    pub(super) tolerance: f64,
    pub(super) remark: Option<String>,
}

/// Accepted difference where all parameters of the drive are known.
const EMULATOR_TOLERANCE: f64 = 0.05;
/// Accepted difference for one stream on a real drive. Its write amplification depends on the spare space alone.
const STREAM_TOLERANCE: f64 = 0.05;
/// Accepted difference for caches on real drives, whose firmware is not published.
const DRIVE_TOLERANCE: f64 = 0.10;

/// The emulator collects in the background below 10 % of free units and in the foreground below 1 %; about this share stays free in
/// the steady states of its 12 series with three streams.
const KEPT_FREE: f64 = 0.0275;

/// Share that stays free under a cache with placement, which loads the emulator so little that background collection keeps more units
/// free. With this share, the model meets the steady state of the cache's log.
const KEPT_FREE_OF_CACHE: f64 = 0.0875;

/// Share of the drive that a cache writes. The logs do not give it; with this one value, the model meets the steady states of all caches
/// on the real drive, with and without placement.
const CACHE_WRITES: f64 = 0.96;

/// Bytes per second of all jobs together. Low enough that the model is never the bottleneck, so that the shares are those of the file.
const RATE: f64 = 100e6;

impl Setup {
    pub(super) fn of(series: &Series) -> Option<Self> {
        let parts: Vec<&str> = series.name.split('/').collect();
        let has_placement = parts.iter().any(|part| part.starts_with("fdp"));
        match parts[..] {
            ["Cachelib", ..] => cache(series, &parts, has_placement),
            ["FIO", _, "3syn", distribution, mode, ..] => {
                three_streams(series, distribution, mode, has_placement)
            }
            ["FIO", "ssda", ..] => one_stream(series, (pm9d3a()?.0, 256)),
            ["FIO", "ssdb", ..] => one_stream(series, fadu()?),
            _ => None,
        }
    }
}

fn pm9d3a() -> Option<(Card, u32)> {
    Some((Card::load("pm9d3a").ok()?, 4096))
}

/// The drive begins to collect after 1.067 capacities: its spare space is the difference between binary and decimal units.
fn fadu() -> Option<(Card, u32)> {
    let mut card = Card::load("pm9d3a").ok()?;
    (card.space.raw_bytes, card.space.usable_bytes) = (3840 << 30, 3_840_000_000_000);
    card.space.unit_bytes = 4 << 30;
    Some((card, 256))
}

fn emulator((units, unit_bytes): (u64, u64), kept_free: f64, capacity_bytes: u64) -> Option<(Card, u32)> {
    let mut card = Card::load("warp448").ok()?;
    let kept = (units as f64 * (1.0 - kept_free)).round() as u64;
    card.space.unit_bytes = unit_bytes;
    (card.space.raw_bytes, card.space.usable_bytes) = (kept * unit_bytes, capacity_bytes);
    Some((card, (unit_bytes / (256 * 4096)) as u32))
}

fn one_stream(series: &Series, (card, scale): (Card, u32)) -> Option<Setup> {
    // The curve repeats each capacity, and twenty of them are enough.
    let percent = series.host_capacities().min(20.0) * 100.0;
    let job = format!(
        "[stream]\nrw=randwrite\nbs=128k\nioengine=libaio\niodepth=128\nfilename=/dev/x\nio_size={percent:.0}%\n"
    );
    let file = JobFile::parse(&job, |_| None).ok()?;
    Some(Setup { card, scale, file, tolerance: STREAM_TOLERANCE, remark: None })
}

/// Shares of the emulator's host writes; they are the same in all series. The sequential stream has 0.57: the curves of the `zoned` and
/// `zipf` series have a period of 1.53 to 1.62 capacities, and a pass over 90 % of the space takes 0.9 / 0.57 = 1.58. The random stream
/// has 0.6 of the rest: with that share, the model meets the `fdp` series of all four distributions. It meets the series `fdp_share` if
/// the sequential stream and the overwrites share a handle.
const SEQUENTIAL: f64 = 0.57;
const RANDOM: f64 = (1.0 - SEQUENTIAL) * 0.6;

fn three_streams(series: &Series, distribution: &str, mode: &str, has_placement: bool) -> Option<Setup> {
    let distribution = match distribution.split_once('_') {
        None if distribution == "uniform" => "random".to_owned(),
        None if distribution == "zoned" => "zoned:80/20:10/20:10/60".to_owned(),
        Some(("zipf", exponent)) => format!("zipf:{exponent}"),
        _ => return None,
    };
    let overwrite_handle = if mode == "fdp_share" { 1 } else { 2 };
    let (card, scale) = emulator((4086, 128 << 20), KEPT_FREE, series.capacity_bytes)?;
    let [sequential, random, overwrite] =
        [SEQUENTIAL, RANDOM, 1.0 - SEQUENTIAL - RANDOM].map(|share| (share * RATE) as u64);
    // The fills of both parts together write one capacity.
    let seconds = (series.host_capacities() - 1.0).max(0.1) * series.capacity_bytes as f64 / RATE;
    let job = format!(
        "[global]\nioengine=libaio\nfilename=/dev/x\nfdp=1\n\
         [fill-sequential]\nrw=write\nbs=128k\nsize=90%\nfdp_pli=1\n\
         [fill-random]\nrw=randwrite\nnorandommap\noffset=90%\nsize=10%\nfdp_pli=0\n\
         [sequential]\nstonewall\nrw=write\nbs=128k\nsize=90%\nrate={sequential}\ntime_based\nruntime={seconds:.0}\nfdp_pli=1\n\
         [overwrite]\nrw=randwrite\nnorandommap\nsize=90%\nrandom_distribution={distribution}\niodepth=32\nrate={overwrite}\ntime_based\nruntime={seconds:.0}\nfdp_pli={overwrite_handle}\n\
         [random]\nrw=randwrite\nnorandommap\noffset=90%\nsize=10%\niodepth=32\nrate={random}\ntime_based\nruntime={seconds:.0}\nfdp_pli=0\n"
    );
    let mut file = JobFile::parse(&job, |_| None).ok()?;
    file.jobs.iter_mut().for_each(|job| job.has_placement = has_placement);
    Some(Setup { card, scale, file, tolerance: EMULATOR_TOLERANCE, remark: None })
}

/// A share of the space for buckets, rewritten at random, and a ring of regions through the rest.
fn cache(series: &Series, parts: &[&str], has_placement: bool) -> Option<Setup> {
    let space = parts.iter().find_map(|part| part.strip_prefix("soc")?.parse::<f64>().ok())? / 100.0;
    let is_emulator = parts[1] == "cylon";
    let kept_free = if has_placement { KEPT_FREE_OF_CACHE } else { KEPT_FREE };
    let (card, scale) = match is_emulator {
        true => emulator((985, 256 << 20), kept_free, series.capacity_bytes)?,
        false => pm9d3a()?,
    };
    let (writes, remark) = bucket_share(&series.log, series.capacity_bytes as f64, space);
    let mixed = Mixed { used: CACHE_WRITES, random_space: space, random_writes: writes, has_placement };
    let file = mixed.file().ok()?;
    let tolerance = if is_emulator { EMULATOR_TOLERANCE } else { DRIVE_TOLERANCE };
    Some(Setup { card, scale, file, tolerance, remark })
}

/// Share of buckets in the host's writes where the log shows no wrap of the ring.
const UNSEEN_SHARE: f64 = 0.1;

/// The share of buckets in the host's writes. The write amplification rises when the ring has gone round its part of the space, after
/// (1 − s) / (1 − w) times the cache's size, for buckets with a share s of the space and w of the writes.
fn bucket_share(log: &DriveLog, capacity: f64, space: f64) -> (f64, Option<String>) {
    if space == 0.0 {
        return (0.0, None);
    }
    match first_wrap(log, capacity) {
        Some(wrap) => {
            let writes = 1.0 - (1.0 - space) * CACHE_WRITES / wrap;
            let remark = format!(
                "the ring wraps after {wrap:.2} capacities: {:.0} % of the writes are buckets",
                writes * 100.0
            );
            (writes, Some(remark))
        }
        None => {
            let percent = UNSEEN_SHARE * 100.0;
            let remark =
                format!("the log shows no wrap; assumed are {percent:.0} % of the writes for buckets");
            (UNSEEN_SHARE, Some(remark))
        }
    }
}

/// Capacities of host writes until the write amplification has risen half of the way from its level before the wrap to its last one.
fn first_wrap(log: &DriveLog, capacity: f64) -> Option<f64> {
    let end = log.host_bytes() as f64;
    if end < 1.8 * capacity {
        return None;
    }
    let before = log.dlwa_between(1.3 * capacity, 1.6 * capacity);
    let after = log.dlwa_between(0.9 * end, end);
    if after < before + 0.01 {
        return None;
    }
    const STEP: f64 = 0.05;
    let half = f64::midpoint(before, after);
    let mut ends = (0..).map(|step| 1.6 + f64::from(step) * STEP).take_while(|&at| at * capacity <= end);
    ends.find(|&at| log.dlwa_between((at - 2.0 * STEP) * capacity, at * capacity) >= half).map(|at| at - STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_share_comes_from_the_first_wrap_of_the_ring() {
        // Write amplification 1 for one capacity, 1.2 until the ring wraps after 4 times the cache's size, then 3.
        let mut text = "host_bytes,media_bytes\n".to_owned();
        let mut media = 0.0;
        for step in 0..=800 {
            let host = f64::from(step) * 0.01;
            text += &format!("{:.0},{media:.0}\n", host * 1e6);
            media += 1e4
                * if host < 1.0 {
                    1.0
                } else if host < 4.0 * CACHE_WRITES {
                    1.2
                } else {
                    3.0
                };
        }
        let log = DriveLog::parse(&text, None).unwrap();
        let (share, remark) = bucket_share(&log, 1e6, 0.2);
        assert!((share - 0.8).abs() < 0.01, "{share}");
        assert!(remark.unwrap().contains("80 % of the writes are buckets"));
        assert_eq!(bucket_share(&log.until(3_700_000), 1e6, 0.2).0, UNSEEN_SHARE);
    }
}
