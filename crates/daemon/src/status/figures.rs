//! A volume's figures by their stable names, as JSON and as text. Figures that Flashcache has, have its names.

use std::fmt::Write as _;
use std::sync::Arc;

use block::export::{Admission, ClientName, ClientRules};
use block::sets::{SetPolicy, Tuning};
use block::volume::superblock::FORMAT_VERSION;
use block::volume::{Condition, DeviceErrors, Health, Recovery, Stats, Superblock, Volume};
use device::counters::CounterTable;
use device::names::noun;
use device::{Counters, Device, Engine};
use serde_json::{Map, Value, json};

use super::requests;
use crate::front_end::Monitor;
use crate::settings::{SETTINGS, shown};

/// All figures of an open volume.
pub fn of_volume(volume: &Volume, recovery: &Recovery) -> Value {
    let (superblock, stats) = (volume.superblock(), volume.stats());
    let mut value = of_superblock(&superblock);
    value["world"] = "real".into();
    value["state"] = of_state(&stats, &volume.condition());
    if has_hot_list(&superblock.tuning) {
        value["state"]["hot_blocks"] = stats.hot_blocks.into();
        value["state"]["warm_blocks"] = stats.warm_blocks.into();
    }
    value["counters"] = of_counters(&stats);
    value["recovery"] = of_recovery(recovery);
    value["recovery"]["recovery_seconds"] = (recovery.elapsed_ns as f64 / 1e9).into();
    value
}

/// The result of opening a volume.
pub fn of_recovery(recovery: &Recovery) -> Value {
    json!({
        "was_clean": recovery.was_clean,
        "blocks": recovery.blocks,
        "dirty_blocks": recovery.dirty_blocks,
        "journal_blocks": recovery.journal_blocks,
        "commits": recovery.commits,
        "notes": recovery.log_entries,
        "rolled_back": recovery.rolled_back,
        "rolled_back_blocks": recovery.rolled_back_blocks,
        "lost_last_entry": recovery.lost_last_entry,
        "damaged_blocks": recovery.damaged_blocks,
        "dropped_blocks": recovery.dropped_blocks,
    })
}

/// The contents of a superblock.
pub fn of_superblock(superblock: &Superblock) -> Value {
    let layout = &superblock.layout;
    json!({
        "volume": {
            "uuid": format!("{:032x}", superblock.uuid),
            "format": superblock.format,
            "newest_format": FORMAT_VERSION,
            "disk_bytes": superblock.disk.bytes,
            "disk_label": superblock.disk.label,
            "disk_marked": superblock.disk.is_marked,
            "block_bytes": layout.block_bytes,
            "sector_bytes": Some(superblock.disk.sector_bytes).filter(|bytes| *bytes > 0),
            "sets": layout.sets,
            "ways": layout.ways,
            "placement": superblock.placement.name(),
            "run_bytes": superblock.placement.run_bytes(),
            "checksums": superblock.checksums,
            "ordered": superblock.ordered,
        },
        "tuning": of_tuning(&superblock.tuning),
    })
}

/// Settings by name.
pub fn of_tuning(tuning: &Tuning) -> Value {
    let values = SETTINGS.iter().map(|setting| (setting.name.to_owned(), (setting.get)(tuning)));
    Value::Object(values.collect())
}

/// The name of a health state.
pub fn health_name(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::DiskErrors => "disk-errors",
        Health::FlashFailed => "flash-failed",
        Health::Closed => "closed",
    }
}

fn has_hot_list(tuning: &Tuning) -> bool {
    matches!(tuning.policy, SetPolicy::Lru2q { .. })
}

fn of_state(stats: &Stats, condition: &Condition) -> Value {
    let [flash, disk] = [&condition.flash, &condition.disk].map(Option::as_ref);
    let first = |trouble: Option<&DeviceErrors>| trouble.map(|trouble| trouble.first_error.to_string());
    let errors = |trouble: Option<&DeviceErrors>| trouble.map_or(0, |trouble| trouble.errors);
    let seconds = |trouble: Option<&DeviceErrors>| trouble.map(|trouble| trouble.elapsed_ns as f64 / 1e9);
    json!({
        "health": health_name(condition.health),
        "flash_first_error": first(flash),
        "flash_errors": errors(flash),
        "flash_errors_seconds": seconds(flash),
        "disk_first_error": first(disk),
        "disk_errors": errors(disk),
        "disk_errors_seconds": seconds(disk),
        "capacity_blocks": stats.capacity_blocks,
        "held_blocks": stats.held_blocks,
        "dirty_blocks": stats.dirty_blocks,
        "uncommitted_blocks": stats.uncommitted_blocks,
        "hot_blocks": null,
        "warm_blocks": null,
        "memory_bytes": stats.memory_bytes,
        "journal_used_blocks": stats.journal_used_blocks,
        "journal_blocks": stats.journal_blocks,
        "latency_ns_p99": stats.latency_ns_p99,
        "clean_seconds_left": stats.clean_seconds_left,
    })
}

fn of_counters(stats: &Stats) -> Value {
    let counters = &stats.counters;
    let mut all: Map<String, Value> = counters
        .named()
        .into_iter()
        .chain(stats.io.named())
        .map(|(name, count)| (name, count.into()))
        .collect();
    for (name, percent) in [
        ("read_hit_percent", counters.read_hit_percent()),
        ("write_hit_percent", counters.write_hit_percent()),
        ("dirty_write_hit_percent", counters.dirty_write_hit_percent()),
    ] {
        all.insert(name.into(), percent.into());
    }
    for (name, count) in [("lru_promotions", stats.promotions), ("lru_demotions", stats.demotions)] {
        all.insert(name.into(), count.into());
    }
    Value::Object(all)
}

/// How requests reach the kernel, counters of a device since it was opened, and the media writes if known.
pub fn of_device(device: &dyn Device) -> Value {
    let Counters { read_bytes, written_bytes, trimmed_bytes, media_written_bytes, .. } = device.counters();
    let dlwa = media_written_bytes.filter(|_| written_bytes > 0);
    json!({
        "io": device.engine().map(Engine::name),
        "bytes_read": read_bytes,
        "bytes_host": written_bytes,
        "bytes_trimmed": trimmed_bytes,
        "bytes_media": media_written_bytes,
        "dlwa": dlwa.map(|media_bytes| media_bytes as f64 / written_bytes as f64),
    })
}

/// The rules by the names of their settings.
pub fn of_rules(rules: &ClientRules) -> Value {
    let names = |list: &[ClientName]| -> Vec<String> { list.iter().map(ClientName::to_string).collect() };
    json!({
        "cache_all": u8::from(rules.cache_all),
        "uncached_clients": names(&rules.uncached),
        "cached_clients": names(&rules.cached),
    })
}

/// The rules for a status, with the requests and the current connections that they exclude.
pub(crate) fn of_admission(admission: &Admission, monitors: &[Arc<dyn Monitor>]) -> Value {
    let clients: Vec<_> = monitors.iter().filter_map(|monitor| monitor.clients()).collect();
    let excluded = (!clients.is_empty())
        .then(|| clients.iter().flatten().filter(|client| admission.excludes(client)).count());
    let mut value = of_rules(&admission.rules());
    value["kept_out_requests"] = admission.uncached_requests().into();
    value["kept_out_connections"] = excluded.into();
    value
}

/// Status as text: a heading per part, a line per figure.
pub fn text(status: &Value) -> String {
    let mut text = String::new();
    if let Some(serving) = status["serving"].as_str() {
        let _ = writeln!(text, "serving {serving}");
        if status["volume"].is_null() {
            let _ = writeln!(text, "no cache: the server was started without --flash");
        }
    }
    for part in
        ["volume", "tuning", "rules", "state", "counters", "flash", "disk", "connections", "fuse", "recovery"]
    {
        let Some(figures) = status[part].as_object() else { continue };
        let _ = writeln!(text, "{part}");
        for (name, value) in figures {
            let shown = match value {
                Value::Number(number) if number.is_f64() => format!("{:.1}", number.as_f64().unwrap_or(0.0)),
                value => match shown(value) {
                    Some(shown) => shown,
                    None => continue,
                },
            };
            let _ = writeln!(text, "  {name:<28} {shown}");
        }
    }
    let request_text = requests::text(&status["requests"]);
    if !request_text.is_empty() {
        let _ = write!(text, "requests\n{request_text}");
    }
    if let Some(error) = status["recording"]["error"].as_str() {
        let _ = writeln!(text, "WARNING: {error}");
    }
    for message in losses(&status["recovery"]) {
        let _ = writeln!(text, "WARNING: {message}");
    }
    if let Some(message) = status["volume"]["format"].as_u64().and_then(older) {
        let _ = writeln!(text, "{message}");
    }
    text
}

/// Data loss found by recovery, one sentence per kind.
pub fn losses(recovery: &Value) -> Vec<String> {
    let blocks = |name: &str| recovery[name].as_u64().filter(|&blocks| blocks > 0);
    let rolled_back = blocks("rolled_back_blocks").map(|blocks| {
        format!(
            "the last flush was not on flash as it was written, and {blocks} written {} of it {} dropped. After a power cut \
             that is correct: the flush had not been acknowledged. If the machine kept its power, flash has lost \
             acknowledged writes: check the data on the disk, and replace the flash",
            noun(blocks, "block"),
            if blocks == 1 { "was" } else { "were" }
        )
    });
    let is_lost = recovery["lost_last_entry"].as_bool() == Some(true);
    let lost = is_lost.then(|| {
        "the last record of writes is damaged on flash, and the writes that it recorded were dropped; their number is unknown. \
         After a power cut that is correct: the flush had not been acknowledged. If the machine kept its power, flash has lost \
         acknowledged writes: check the data on the disk, and replace the flash"
            .to_owned()
    });
    let damaged = blocks("damaged_blocks").map(|blocks| {
        format!(
            "{blocks} {} of the last acknowledged flush {} damaged on flash: reads fail until they are written again. \
             `block check --full` names them; restore them from a backup, and replace the flash",
            noun(blocks, "block"),
            if blocks == 1 { "is" } else { "are" }
        )
    });
    rolled_back.into_iter().chain(lost).chain(damaged).collect()
}

/// A note about a volume in an older format.
pub fn older(format: u64) -> Option<String> {
    let is_older = format < u64::from(FORMAT_VERSION);
    is_older.then(|| format!("format {format}; `block upgrade` upgrades it to {FORMAT_VERSION}"))
}
