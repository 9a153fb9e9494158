//! Forecasts the write amplification at the end of a test from its beginning.
//!
//! A drive that was empty relocates nothing until its spare space is used up. A ring beside random rewrites then relocates little until it
//! has gone round the drive once, after (1 - s) / (1 - w) capacities, for random rewrites of a share s of the space with a share w of the
//! writes. Logs of real drives show 1.14 for eight capacities and 3.57 from the tenth on. A constant rate alone is therefore no proof of
//! a steady state: without more knowledge, the final value lies between the present one and that of uniform writes.

use ssd::model::dlwa;

use super::log::DriveLog;

/// Knowledge of the drive and the workload beside the log.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Capacity of the drive.
    pub capacity_bytes: u64,
    /// Over-provisioning, (P - S) / S; `None` is taken from the log if collection begins in it.
    pub op_ratio: Option<f64>,
    /// Capacities that the host writes until a ring has gone round the drive, if that is known.
    pub wrap_capacities: Option<f64>,
}

/// A forecast.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// Whether the write amplification changes no more.
    pub is_steady: bool,
    /// The final write amplification; `None` if it is not steady.
    pub value: Option<f64>,
    /// Bounds of the final write amplification.
    pub interval: (f64, f64),
    /// Write amplification of the last part of the log.
    pub present: f64,
    /// Capacities that the host wrote.
    pub written_capacities: f64,
    /// Capacities after which the drive began to relocate data.
    pub onset_capacities: Option<f64>,
    /// The over-provisioning that the bounds assume, and its origin.
    pub op_ratio: (f64, &'static str),
    /// Bytes that the host should write before the test can be judged again; 0 if it is steady.
    pub needed_bytes: u64,
    /// Why the test should go on, or why it can stop.
    pub reason: String,
}

/// Write amplification above this means that the drive relocates data.
const ONSET_DLWA: f64 = 1.02;

/// Over-provisioning that is assumed if it is unknown: the difference between binary and decimal units.
const LEAST_USUAL_OP: f64 = 0.07;

/// Mixed writes relocate up to this much more than uniform ones: pages of different lifetimes share units.
const ABOVE_UNIFORM: f64 = 1.15;

/// A permutation in each pass, fio's default, costs about half of uniform writes. Lower plateaus may be those of a ring in its first pass.
const LEAST_FINAL_SHARE: f64 = 0.45;

/// Capacities until a ring has wrapped if 95 % of the writes are random rewrites of small parts. Real caches had 74 to 90 %.
const LONGEST_WRAP: f64 = 20.0;

/// Whole capacities that must agree, as in SNIA's steady-state rule.
const ROUNDS: usize = 5;

/// Largest deviation of a round from their mean. A drive that swings by 10 % rose by another 12 % later.
const DEVIATION: f64 = 0.05;

/// Half width of the interval around a steady value, as a share of it.
const STEADY_INTERVAL: f64 = 0.1;

/// Forecasts from a log that begins with the test.
#[must_use]
pub fn forecast(log: &DriveLog, known: Known) -> Forecast {
    let capacity = known.capacity_bytes as f64;
    let written = log.host_bytes() as f64 / capacity;
    let onset = onset(log, capacity);
    let op_ratio = op_ratio(known, onset);
    let uniform = dlwa::theorem_1(1.0, 1.0 + op_ratio.0).map_or(f64::INFINITY, |it| it.dlwa);
    let rounds = rounds(log, capacity);
    let present = rounds.last().copied().unwrap_or_else(|| log.dlwa_between(0.0, log.host_bytes() as f64));
    let wrap = known.wrap_capacities.map_or(LONGEST_WRAP, |wrap| wrap * 1.5 + ROUNDS as f64);
    let mean = rounds.iter().sum::<f64>() / rounds.len().max(1) as f64;
    let is_level =
        rounds.len() == ROUNDS && rounds.iter().all(|round| (round / mean - 1.0).abs() <= DEVIATION);
    let is_high = known.wrap_capacities.is_none() && mean >= LEAST_FINAL_SHARE * uniform;
    let needed =
        if is_level && is_high { written } else { wrap.max(onset.unwrap_or(written) + ROUNDS as f64 + 1.0) };
    let is_steady = is_level && (is_high || written >= wrap);
    let low = rounds.iter().copied().fold(present, f64::min);
    let interval = if is_steady {
        (mean * (1.0 - STEADY_INTERVAL), mean * (1.0 + STEADY_INTERVAL))
    } else {
        // A ring's phase makes a plateau fall, too.
        let least = low.min(uniform) * if written > 3.0 { 0.9 } else { 0.98 };
        (least, (uniform * ABOVE_UNIFORM).max(present * 1.1))
    };
    let interval = (interval.0.max(1.0), interval.1);
    let more = (needed - written).max(if is_steady { 0.0 } else { 1.0 });
    Forecast {
        is_steady,
        value: is_steady.then_some(mean),
        interval,
        present,
        written_capacities: written,
        onset_capacities: onset,
        op_ratio,
        needed_bytes: if is_steady { 0 } else { (more * capacity) as u64 },
        reason: reason(is_steady, is_level, onset, written, wrap),
    }
}

fn reason(is_steady: bool, is_level: bool, onset: Option<f64>, written: f64, wrap: f64) -> String {
    match (is_steady, onset) {
        (true, _) => {
            "the last five drive capacities deviate by at most 5 % from their mean, and no first wrap can follow".into()
        }
        (_, None) => {
            format!("do not stop: the drive has relocated nothing yet after {written:.1} drive capacities")
        }
        _ if is_level => format!(
            "do not stop: the value is level but low, and a ring may not have wrapped the drive before {wrap:.0} drive capacities"
        ),
        _ => "do not stop: the write amplification still changes".into(),
    }
}

/// Write amplification of the last whole capacities, oldest first; fewer than five if the log is shorter.
fn rounds(log: &DriveLog, capacity: f64) -> Vec<f64> {
    let end = log.host_bytes() as f64;
    let count = ((end / capacity) as usize).min(ROUNDS);
    (0..count)
        .rev()
        .map(|back| log.dlwa_between(end - (back + 1) as f64 * capacity, end - back as f64 * capacity))
        .collect()
}

/// When collection began, in capacities: the first of two successive twentieths of a capacity that relocate data.
fn onset(log: &DriveLog, capacity: f64) -> Option<f64> {
    let (end, step) = (log.host_bytes() as f64 / capacity, 0.05);
    let relocates = |number: usize| {
        let from = number as f64 * step * capacity;
        log.dlwa_between(from, from + step * capacity) > ONSET_DLWA
    };
    let steps = (end / step) as usize;
    (1..steps)
        .find(|&number| relocates(number - 1) && relocates(number))
        .map(|number| (number - 1) as f64 * step)
}

fn op_ratio(known: Known, onset: Option<f64>) -> (f64, &'static str) {
    match (known.op_ratio, onset) {
        (Some(op_ratio), _) => (op_ratio, "given"),
        // A drive that was empty begins to collect when its spare space is used up, too.
        (None, Some(onset)) if (1.02..1.6).contains(&onset) => {
            (onset - 1.0, "from the beginning of collection in the log")
        }
        _ => (LEAST_USUAL_OP, "assumed: the log does not show the beginning of collection"),
    }
}
