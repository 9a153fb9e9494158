//! Reports on a drive as text.

use std::fmt::Write;

use device::nvme::fdp::Isolation;

use super::info::{Info, NvmeInfo, PlacementInfo};
use super::precondition::{Outcome, Round};
use super::wear::Sample;

/// Formats bytes with the largest fitting unit.
#[must_use]
pub fn bytes(value: u128) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || scaled.fract() == 0.0 { 0 } else { 2 };
    format!("{scaled:.digits$} {}", UNITS[unit])
}

fn or_unknown(value: Option<String>) -> String {
    value.unwrap_or_else(|| "unknown".into())
}

/// All properties of a device.
#[must_use]
pub fn info(info: &Info) -> String {
    let mut text = String::new();
    let capacity = or_unknown(info.capacity_bytes.map(|it| bytes(it.into())));
    let blocks = info.block_bytes.map_or_else(String::new, |it| format!(" in blocks of {it} bytes"));
    line(&mut text, &format!("{}: {}, {capacity}{blocks}", info.path.display(), info.kind));
    row(&mut text, "model", &or_unknown(info.model.clone()));
    row(&mut text, "in use", info.in_use.as_deref().unwrap_or("no, as far as the system knows"));
    if let Some(nvme) = &info.nvme {
        namespace(&mut text, nvme);
        placement(&mut text, nvme, &nvme.placement);
        wear(&mut text, nvme);
    }
    for (what, why) in &info.unknown {
        row(&mut text, "unknown", &format!("{what}: {why}"));
    }
    text
}

fn namespace(text: &mut String, nvme: &NvmeInfo) {
    if let Some(controller) = &nvme.controller {
        let version =
            controller.version.map(|(major, minor, tertiary)| format!("{major}.{minor}.{tertiary}"));
        let identity = format!("{}, firmware {}", controller.serial, controller.firmware);
        row(text, "serial", &format!("{identity}, NVMe {}", or_unknown(version)));
    }
    let preferred = nvme.namespace.as_ref().and_then(|it| it.preferred_write_bytes);
    row(text, "best write", &or_unknown(preferred.map(|it| format!("a multiple of {}", bytes(it.into())))));
    let streams = match nvme.write_streams {
        None => "no write streams: this kernel is older than Linux 6.16".to_owned(),
        Some(0) => "no write streams: the kernel offers none for this namespace".to_owned(),
        Some(streams) => format!("{streams} write stream(s)"),
    };
    row(text, "block", &format!("{}, {streams}", nvme.block_path.display()));
    let longest = bytes(nvme.max_passthrough_bytes.into());
    row(text, "passthrough", &format!("{}, up to {longest} per command", nvme.generic_path.display()));
}

fn placement(text: &mut String, nvme: &NvmeInfo, placement: &PlacementInfo) {
    row(text, "placement", placement.state);
    if let Some(configuration) = &placement.configuration {
        let unit = or_unknown(configuration.reclaim_unit_bytes.map(|it| bytes(it.into())));
        let groups = configuration.reclaim_groups;
        row(
            text,
            "",
            &format!("reclaim units of {unit}, {groups} reclaim group(s), {}", isolation(configuration)),
        );
    }
    let block = nvme.namespace.as_ref().and_then(|it| it.block_bytes);
    for (number, handle) in placement.handles.iter().enumerate() {
        let role = if number == 0 { " (default)" } else { "" };
        let left = block.map_or_else(
            || format!("{} blocks", handle.blocks_left),
            |block| bytes(u128::from(handle.blocks_left) * u128::from(block)),
        );
        let ids = format!("identifier {:04X}h, reclaim unit handle {}", handle.placement_id, handle.handle);
        row(text, "", &format!("handle {number}{role}: {ids}, {left} left in its unit"));
    }
    if let Some(missing) = &placement.missing {
        let indented: Vec<&str> = missing.lines().collect();
        row(text, "missing", &indented.join("\n              "));
    }
}

fn isolation(configuration: &device::nvme::fdp::Configuration) -> String {
    let count = |wanted| configuration.handles.iter().filter(|&&it| it == wanted).count();
    let (initially, persistently) = (count(Isolation::Initially), count(Isolation::Persistently));
    format!("handles: {initially} initially isolated, {persistently} persistently isolated")
}

fn wear(text: &mut String, nvme: &NvmeInfo) {
    let wear = &nvme.wear;
    let written = wear.written.map(|it| {
        let host = or_unknown(it.host_bytes.map(bytes));
        let media = or_unknown(it.media_bytes.map(bytes));
        let ratio = or_unknown(it.write_amplification().map(|it| format!("{it:.3}")));
        format!("{host} by hosts, {media} by the drive, write amplification {ratio} ({})", it.source)
    });
    row(text, "written", &or_unknown(written));
    let used = or_unknown(wear.life_used_percent.map(|it| format!("{it} %")));
    let estimate = wear.endurance_estimate_bytes.map(|it| format!(" of {}", bytes(it)));
    row(text, "life used", &format!("{used}{}", estimate.unwrap_or_default()));
    row(text, "temperature", &or_unknown(wear.temperature_celsius.map(|it| format!("{it} °C"))));
    row(text, "powered on", &or_unknown(wear.power_on_hours.map(|it| format!("{it} h"))));
}

/// A sample of counters, in a line.
#[must_use]
pub fn sample(sample: &Sample) -> String {
    let written = sample.wear.written;
    let of = |value: Option<u128>| or_unknown(value.map(bytes));
    let ratio = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"));
    format!(
        "{}  host {}  media {}  DLWA {} since last, {} since first  life used {}",
        sample.unix_seconds,
        of(written.and_then(|it| it.host_bytes)),
        of(written.and_then(|it| it.media_bytes)),
        ratio(sample.amplification_since_last),
        ratio(sample.amplification_since_first),
        or_unknown(sample.wear.life_used_percent.map(|it| format!("{it} %"))),
    )
}

/// A round of preconditioning, in a line.
#[must_use]
pub fn round(number: usize, round: &Round) -> String {
    let how = if round.sequential { "sequential" } else { "random" };
    let ratio = round.write_amplification.map_or_else(|| "unknown".to_owned(), |it| format!("{it:.3}"));
    let rate = round.rate / f64::from(1 << 20);
    format!("round {number}: {how}, {}, {rate:.1} MiB/s, DLWA {ratio}", bytes(round.written_bytes.into()))
}

/// The result of preconditioning.
#[must_use]
pub fn outcome(outcome: &Outcome) -> String {
    let written: u64 = outcome.rounds.iter().map(|round| round.written_bytes).sum();
    let rounds = outcome.rounds.len();
    let verdict = if outcome.steady { "steady" } else { "NOT STEADY" };
    format!("{verdict} after {} in {rounds} rounds", bytes(written.into()))
}

fn row(text: &mut String, name: &str, value: &str) {
    line(text, &format!("  {name:<12}{value}"));
}

fn line(message: &mut String, text: &str) {
    let _ = writeln!(message, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        let shown = [0, 512, 1024, 1536, 4 << 20, 1_920_383_410_176].map(bytes);
        assert_eq!(shown, ["0 B", "512 B", "1 KiB", "1.50 KiB", "4 MiB", "1.75 TiB"]);
    }

    #[test]
    fn unknown_values_are_printed_as_unknown_not_as_zero() {
        let unknown = vec![("wear".to_owned(), "a file".to_owned())];
        let about = Info { path: "/x".into(), kind: "file", unknown, ..Info::default() };
        let text = info(&about);
        assert!(text.starts_with("/x: file, unknown\n"), "{text}");
        assert!(text.contains("unknown     wear: a file"), "{text}");
        assert!(!text.contains('0'), "{text}");
    }
}
