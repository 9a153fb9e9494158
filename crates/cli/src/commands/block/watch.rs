//! Prints a line per second, with flashstat's columns.

use std::path::Path;
use std::time::Duration;

use daemon::control;
use serde_json::Value;

use crate::output::Common;

/// Heading and counter of each rate per second.
const RATES: [(&str, &str); 12] = [
    ("read/s", "reads"),
    ("write/s", "writes"),
    ("diskr/s", "disk_reads"),
    ("diskw/s", "disk_writes"),
    ("ssdr/s", "ssd_reads"),
    ("ssdw/s", "ssd_writes"),
    ("uread/s", "uncached_reads"),
    ("uwrit/s", "uncached_writes"),
    ("metaw/s", "metadata_ssd_writes"),
    ("clean/s", "cleanings"),
    ("repl/s", "replacement"),
    ("wrepl/s", "write_replacement"),
];

/// Heading, part and whole of each share: in this second, and since the start.
const SHARES: [(&str, &str, &str); 3] = [
    ("hit%", "read_hits", "reads"),
    ("whit%", "write_hits", "writes"),
    ("dwhit%", "dirty_write_hits", "writes"),
];

/// Lines between two headings.
const PAGE: usize = 20;

/// Prints until a signal arrives, the server ends, or the reader closes the pipe. Returns the last status, and the reason if there is no
/// further one.
#[expect(clippy::disallowed_methods, reason = "the command line may sleep")]
pub fn run(path: &Path, common: &Common) -> Result<(Value, Option<String>), String> {
    let stop = common.stop()?;
    let ask = || control::ask(path, "status", |_| {});
    let mut before = ask()?;
    control::part_of_cache(&before, "counters")?;
    for line in 0.. {
        if line % PAGE == 0 && !is_read(common, &heading())? {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
        if stop.is_set() {
            break;
        }
        let now = match ask() {
            Ok(now) => now,
            Err(error) => return Ok((before, Some(error))),
        };
        let is_read = is_read(common, &row(&before, &now))?;
        before = now;
        if !is_read {
            break;
        }
    }
    Ok((before, None))
}

/// Prints a line; returns whether the reader still reads.
fn is_read(common: &Common, line: &str) -> Result<bool, String> {
    common.print(&format!("{line}\n"))
}

fn heading() -> String {
    let rates = RATES.iter().map(|(name, _)| format!("{name:>8}"));
    let shares = SHARES.iter().map(|(name, ..)| format!("{name:>9}"));
    rates.chain(shares).chain(["    dirty".to_owned()]).collect()
}

fn row(before: &Value, now: &Value) -> String {
    let count = |status: &Value, name: &str| status["counters"][name].as_u64().unwrap_or(0);
    let grown = |name: &str| count(now, name).saturating_sub(count(before, name)) as f64;
    let up = |status: &Value| status["up_seconds"].as_f64().unwrap_or(0.0);
    let seconds = (up(now) - up(before)).max(1e-3);
    let rates = RATES.iter().map(|(_, name)| format!("{:>8.0}", grown(name) / seconds));
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole * 100.0 } else { 0.0 };
    let shares = SHARES.iter().map(|(_, part, whole)| {
        let ever = share(count(now, part) as f64, count(now, whole) as f64);
        format!("{:>9}", format!("{:.0}|{ever:.0}", share(grown(part), grown(whole))))
    });
    let dirty = format!("{:>9}", now["state"]["dirty_blocks"].as_u64().unwrap_or(0));
    rates.chain(shares).chain([dirty]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn row_has_rates_and_shares_of_the_interval_and_total_shares() {
        let before = json!({ "up_seconds": 10.0, "counters": { "reads": 1000, "read_hits": 500 } });
        let now = json!({
            "up_seconds": 12.0,
            "counters": { "reads": 2000, "read_hits": 1400, "cleanings": 7 },
            "state": { "dirty_blocks": 42 },
        });
        let row = row(&before, &now);
        assert_eq!(row.len(), heading().len());
        let columns: Vec<&str> = row.split_whitespace().collect();
        assert_eq!((columns[0], columns[9], columns[12], columns[15]), ("500", "4", "90|70", "42"));
    }
}
