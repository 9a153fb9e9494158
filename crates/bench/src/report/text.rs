//! CacheBench's result lines, so that scripts written for them keep working. Where CacheBench prints 0 for an unknown value, `unknown`
//! is printed.

use cache::stats::{FlashStats, PoolStats, UpkeepStats};
use workload::trace::{Cut, ReplayStats};

use super::RunReport;
use super::numbers::{counted, grouped, line, percent};
use crate::run::InstanceReport;
use crate::run::counts::{Counts, ratio};
use crate::run::destructors::DestructorCounts;
use crate::run::latency::Histogram;
use crate::run::misses::Misses;
use crate::run::sweeps::Sweeps;
use crate::run::target::{FlashDevice, OutcomeCount, Snapshot};

const GIB: f64 = (1_u64 << 30) as f64;
const PERCENTILES: [(&str, f64); 8] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p999", 0.999),
    ("p9999", 0.9999),
    ("p99999", 0.999_99),
    ("p999999", 0.999_999),
    ("p100", 1.0),
];

/// Optional parts of the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextOptions {
    /// Latency percentiles of finds and allocations.
    pub api_latency: bool,
    /// Memory of each size class.
    pub class_memory: Option<SizeFormat>,
}

/// Format of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeFormat {
    /// `1.50 MB`, with 2^20 bytes per MB as in CacheBench.
    HumanReadable,
    /// Bytes.
    Raw,
}

/// The results of one instance.
#[must_use]
pub fn results(report: &InstanceReport, options: TextOptions) -> String {
    let mut out = String::from("== Test Results ==\n== Allocator Stats ==\n");
    out += &allocator(&report.snapshot, &report.counts, Some((report, options)));
    if report.settings.print_flash_counters {
        out += &flash_counters(&report.snapshot);
    }
    if let Some(sweeps) = report.sweeps {
        out += &dram_iterator(sweeps);
    }
    out += &super::events::to_text(report);
    for (_, text, value) in report.stressor.iter().flat_map(|stressor| &stressor.figures) {
        line(&mut out, format_args!("{text}: {}", grouped(*value)));
    }
    if let Some(DestructorCounts { from_dram, from_flash, .. }) = &report.destructors {
        line(&mut out, format_args!("Destructor executed from RAM {from_dram}, from NVM {from_flash}"));
    }
    out += "\n== Throughput Stats ==\n";
    out += &throughput(&report.counts, report.seconds);
    if let Some(warmup) = report.warmup.filter(|it| it.ended) {
        let (ops, gib) = (grouped(warmup.counts.ops), gib(Some(warmup.flash_bytes)));
        let text =
            format!("{ops} operations, {:.2} s, {} GiB written to flash", warmup.seconds, gib.trim_start());
        line(&mut out, format_args!("Warm-up       : {text} are not counted"));
    }
    out += &super::arrivals::to_text(report);
    out += &super::tenants::to_text(report);
    out += &how_inserts_ended(&report.snapshot);
    if let Some(trace) = &report.trace {
        out += &generator(trace);
        out += &objects(&report.counts, report.seconds);
    }
    if let Some(Misses { path, requests }) = &report.misses {
        line(
            &mut out,
            format_args!("{:18}: {}, {} requests", "missTrace", path.display(), grouped(*requests)),
        );
    }
    out
}

/// Figures of the iterations over DRAM.
fn dram_iterator(Sweeps { mode, sweeps, items, bytes, ns, .. }: Sweeps) -> String {
    let mut out = "\n== DRAM Iterator Stats ==\n".to_owned();
    let a_sweep = ns.checked_div(sweeps).map_or_else(|| "unknown".to_owned(), grouped);
    line(&mut out, format_args!("Mode          : {mode}"));
    line(&mut out, format_args!("Sweeps        : {}, {a_sweep} ns each", grouped(sweeps)));
    line(&mut out, format_args!("Items visited : {}", grouped(items)));
    line(&mut out, format_args!("Bytes visited : {}", grouped(bytes)));
    out
}

/// Counts of inserts and of offers to flash by outcome. Each insert and each offer has exactly one outcome.
fn how_inserts_ended(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let mut add = |name: &str, outcomes: &[OutcomeCount]| {
        let shown = outcomes.iter().filter(|(name, count)| *count > 0 || *name == "stored");
        let outcomes: Vec<String> =
            shown.map(|(name, count)| format!("{} {}", grouped(*count), outcome_text(name))).collect();
        if !outcomes.is_empty() {
            line(&mut out, format_args!("{name:14}: {}", outcomes.join(", ")));
        }
    };
    let stats = &snapshot.stats;
    add("RAM inserts", &stats.inserts.ends());
    if stats.chained.ends().iter().any(|(_, count)| *count > 0) {
        add("RAM chained", &stats.chained.ends());
    }
    if let Some(flash) = &stats.flash {
        add("NVM inserts", &flash.put_ends());
        let lost = flash.lost_items();
        if lost > 0 {
            line(&mut out, format_args!("NVM lost items: {}, to failed writes or damage", grouped(lost)));
        }
    }
    format!("\n== How Inserts Ended ==\n{out}")
}

/// Formats `rejected_too_large` as `rejected: too large`.
fn outcome_text(name: &str) -> String {
    let why =
        |verb: &str| name.strip_prefix(verb).map(|why| format!("{verb}: {}", why.trim_start_matches('_')));
    let text = why("rejected").or_else(|| why("dropped")).unwrap_or_else(|| name.to_owned());
    text.replace('_', " ")
}

/// Statistics of reading the trace, in CacheBench's wording, and the first invalid rows.
fn generator(trace: &ReplayStats) -> String {
    let name = match trace.cut {
        Cut::Pages => "KVReplayGenerator",
        Cut::Chunks { .. } => "BlockChunkReplayGenerator",
        Cut::Pieces { .. } => "PieceWiseReplayGenerator",
    };
    let mut out = format!("\n== {name} Stats ==\n");
    let million = (trace.rows + trace.rejected_rows) as f64 / 1e6;
    line(
        &mut out,
        format_args!("Total Processed Samples: {million} million (parse error: {})", trace.rejected_rows),
    );
    if trace.filtered_rows > 0 {
        line(&mut out, format_args!("Left out by replayOps: {}", counted(trace.filtered_rows, "row")));
    }
    for message in trace.messages.iter().take(5) {
        line(&mut out, format_args!("  {message}"));
    }
    out
}

/// Figures of requests for several items, in CacheBench's wording. `extract_latency.sh` reads the second and the fifth word after
/// `egressBytesPerSec`.
fn objects(counts: &Counts, seconds: f64) -> String {
    let mut out = String::new();
    if counts.objects == 0 {
        return out;
    }
    let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let gib = |bytes: f64| format!("{:6.2}", bytes / GIB);
    let (requested, fetched) = (counts.egress_bytes, counts.ingress_bytes);
    let of_objects = |count: u64| percent(ratio(count, counts.objects));
    line(
        &mut out,
        format_args!(
            "{:18}: {} GB, {:18}: {:>7}",
            "getBytes",
            gib(requested as f64),
            "success",
            percent(counts.byte_hit_ratio())
        ),
    );
    line(
        &mut out,
        format_args!(
            "{:18}: {} GB, {:18}: {} GB, {:18}: {} GB/s, {:18}: {} GB/s, {:18}: {:>7}",
            "egressBytes",
            gib(requested as f64),
            "ingressBytes",
            gib(fetched as f64),
            "egressBytesPerSec",
            gib(per_second(requested)),
            "ingressBytesPerSec",
            gib(per_second(fetched)),
            "ingressEgressratio",
            percent(ratio(fetched, requested))
        ),
    );
    line(
        &mut out,
        format_args!(
            "{:18}: {}, {:18}: {}/s, {:18}: {:>7}, {:18}: {:>7}",
            "objectGet",
            grouped(counts.objects),
            "objectGetPerSec",
            grouped(per_second(counts.objects) as u64),
            "success",
            of_objects(counts.object_hits + counts.object_partial_hits),
            "full success",
            of_objects(counts.object_hits)
        ),
    );
    out
}

/// The last lines: warnings, failures, and the verdict.
#[must_use]
pub fn verdict(report: &RunReport) -> String {
    let mut out = String::new();
    for remark in report.remarks() {
        line(&mut out, format_args!("Warning: {remark}"));
    }
    for failure in report.failures() {
        line(&mut out, format_args!("{failure}"));
    }
    for found in report.instances.iter().flat_map(|it| &it.inconsistencies).take(5) {
        line(&mut out, format_args!("  {found}"));
    }
    if let Some(why) = report.instances.iter().find_map(|it| it.stopped) {
        let done: u64 = report.instances.iter().map(InstanceReport::ops_with_warmup).sum();
        let total = report.instances.iter().map(|it| it.settings.total_ops()).fold(0, u64::saturating_add);
        line(
            &mut out,
            format_args!("Ended early, {why}: {} of {} operations", grouped(done), grouped(total)),
        );
    }
    out += if report.passed() { "Finished!\n" } else { "Failed.\n" };
    out
}

/// The allocator's block, in CacheBench's order.
pub fn allocator(
    snapshot: &Snapshot,
    counts: &Counts,
    at_the_end: Option<(&InstanceReport, TextOptions)>,
) -> String {
    let mut out = String::new();
    let stats = &snapshot.stats;
    let (dram, flash) = (stats.dram_total(), stats.flash.as_ref());
    line(&mut out, format_args!("Items in RAM  : {}", grouped(dram.items)));
    line(&mut out, format_args!("Items in NVM  : {}", grouped(flash.map_or(0, FlashStats::items))));
    let allocated = dram.allocation_attempts.saturating_sub(dram.allocation_failures);
    attempts(&mut out, "Alloc Attempts", allocated, dram.allocation_attempts);
    attempts(&mut out, "Evict Attempts", dram.evictions, dram.evictions + dram.eviction_failures);
    line(&mut out, format_args!("RAM Evictions : {}", grouped(dram.evictions)));
    for pool in &stats.pools {
        line(&mut out, format_args!("Fraction of pool {} used : {:.2}", pool.pool.0, pool.used_fraction()));
    }
    if let Some(format) = at_the_end.and_then(|(_, options)| options.class_memory) {
        class_memory(&mut out, &stats.pools, format);
    }
    line(&mut out, format_args!("Cache Gets    : {}", grouped(counts.gets)));
    line(&mut out, format_args!("Hit Ratio     : {:>6}", percent(counts.hit_ratio())));
    if let Some((report, _)) = at_the_end.filter(|(_, options)| options.api_latency) {
        api_latency(&mut out, "Cache Find API latency", &report.latencies.gets());
        api_latency(
            &mut out,
            "Cache Allocate API latency",
            &report.latencies.of(crate::run::latency::Timed::Set),
        );
    }
    if let Some(flash) = flash {
        flash_block(&mut out, snapshot, flash, counts);
    }
    slabs(&mut out, &stats.upkeep);
    out
}

fn attempts(out: &mut String, name: &str, succeeded: u64, attempts: u64) {
    let success = ratio(succeeded, attempts).unwrap_or(1.0);
    line(out, format_args!("{name}: {} Success: {}", grouped(attempts), percent(Some(success))));
}

fn class_memory(out: &mut String, pools: &[PoolStats], format: SizeFormat) {
    let classes = || {
        pools.iter().flat_map(move |pool| {
            let classes = pool.classes.iter().enumerate().filter(|(_, class)| class.slabs > 0);
            classes.map(move |(number, class)| {
                let chunk = size(u64::from(class.chunk_bytes), format);
                let memory_bytes = u64::from(class.slabs) * u64::from(pool.slab_bytes);
                (
                    format!("pid{:2} cid{number:4} {chunk:>10}", pool.pool.0),
                    class.allocated_bytes,
                    memory_bytes,
                )
            })
        })
    };
    for (name, _, memory_bytes) in classes() {
        line(out, format_args!("{name} memorySize: {:>10}", size(memory_bytes, format)));
    }
    for (name, used_bytes, memory_bytes) in classes() {
        let used = ratio(used_bytes, memory_bytes).unwrap_or(0.0);
        line(out, format_args!("{name} usageFraction: {used:.2}"));
    }
}

fn size(bytes: u64, format: SizeFormat) -> String {
    let unit = if format == SizeFormat::Raw { 0 } else { bytes.max(1).ilog2() / 10 };
    match ["B", "KB", "MB", "GB"].get(unit as usize) {
        Some(name) if unit > 0 => format!("{:.2}{name}", bytes as f64 / f64::from(1_u32 << (10 * unit))),
        Some(name) if format == SizeFormat::HumanReadable => format!("{bytes}{name}"),
        Some(_) => bytes.to_string(),
        None => format!("{:.2}TB", bytes as f64 / (GIB * 1024.0)),
    }
}

fn flash_block(out: &mut String, snapshot: &Snapshot, flash: &FlashStats, counts: &Counts) {
    let (puts, latency) = (&flash.puts, snapshot.device_latency());
    let device::Counters { written_bytes, media_written_bytes, .. } = flash.device;
    line(out, format_args!("RAM Hit Ratio : {:>6}", percent(counts.hit_ratio_dram())));
    line(out, format_args!("NVM Hit Ratio : {:>6}", percent(counts.hit_ratio_flash())));
    line(out, format_args!("RAM eviction rejects expiry : {}", grouped(puts.rejected_expired)));
    line(out, format_args!("RAM eviction rejects clean : {}", grouped(puts.clean)));
    device_latency(out, "NVM Read  Latency", latency.map(|(reads, _)| reads));
    device_latency(out, "NVM Write Latency", latency.map(|(_, writes)| writes));
    line(out, format_args!("NVM bytes written (physical)  : {} GB", gib(Some(written_bytes))));
    line(out, format_args!("NVM bytes written (logical)   : {} GB", gib(Some(flash.logical_bytes()))));
    line(out, format_args!("NVM bytes written (nand)      : {} GB", gib(media_written_bytes)));
    line(out, format_args!("NVM app write amplification   : {}", plain(flash.write_amplification())));
    let dlwa = media_written_bytes.and_then(|media| ratio(media, written_bytes));
    line(out, format_args!("NVM dev write amplification   : {}", plain(dlwa)));
    let gets = snapshot.stats.gets;
    let of_gets = ratio(gets.coalesced, gets.hits_flash + gets.misses);
    line(
        out,
        format_args!(
            "NVM Gets      : {}, Coalesced : {}",
            grouped(gets.hits_flash + gets.misses),
            percent(of_gets)
        ),
    );
    line(
        out,
        format_args!(
            "NVM Puts      : {}, Success   : {}, Clean   : {}, AbortsFromDel   : {}, AbortsFromGet   : {}",
            grouped(puts.offered),
            percent(ratio(puts.stored.saturating_sub(flash.unwritten_items()), puts.offered)),
            percent(ratio(puts.clean, puts.offered)),
            grouped(puts.overtaken.saturating_sub(puts.stayed)),
            grouped(puts.stayed),
        ),
    );
    line(
        out,
        format_args!(
            "NVM Evicts    : {}, Clean   : unknown, Unclean   : unknown, Double    : unknown",
            grouped(flash.evictions())
        ),
    );
    // CacheBench skips a delete if DRAM knows that flash lacks the key. Here every delete looks it up in the flash index, in memory.
    line(out, format_args!("NVM Deletes   : {} Skipped Deletes: 0", grouped(flash.removes())));
    if let Some(device) = &snapshot.device {
        flash_device(out, device);
    }
}

fn flash_device(out: &mut String, device: &FlashDevice) {
    for (consumer, handle) in &device.placement {
        let role = if *handle == 0 { " (the default: no handle was free)" } else { "" };
        line(out, format_args!("NVM placement : {consumer} writes with handle {handle}{role}"));
    }
    if let Some(engine) = device.engine {
        line(out, format_args!("NVM I/O path  : {}", engine.name()));
    }
    if device.buffered {
        line(out, format_args!("NVM I/O went through the page cache: latencies are not those of the device"));
    }
}

fn slabs(out: &mut String, upkeep: &UpkeepStats) {
    if upkeep.slabs_released == 0 {
        return;
    }
    line(out, format_args!("Released {} slabs", grouped(upkeep.slabs_released)));
    let evictions = (upkeep.release_evictions, upkeep.release_evictions_failed);
    for (name, (done, failed)) in
        [("Moves    ", (upkeep.moves, upkeep.moves_failed)), ("Evictions", evictions)]
    {
        let success = ratio(done, done + failed).or(Some(1.0));
        let attempts = grouped(done + failed);
        line(out, format_args!("  {name} : attempts: {attempts:>10}, success: {:>6}", percent(success)));
    }
}

/// Throughput, in CacheBench's order.
pub fn throughput(counts: &Counts, seconds: f64) -> String {
    let mut out = String::new();
    line(&mut out, format_args!("{:10}: {:.2} million", "Total Ops", counts.ops as f64 / 1e6));
    line(&mut out, format_args!("{:10}: {}", "Total sets", grouped(counts.sets)));
    let mut rate = |name: &str, count: u64, word: &str, missed: u64| {
        let per_second = if seconds > 0.0 { (count as f64 / seconds) as u64 } else { 0 };
        let share = ratio(count.saturating_sub(missed), count);
        line(
            &mut out,
            format_args!("{name:10}: {:>9}/s, {word:10}: {:>7}", grouped(per_second), percent(share)),
        );
    };
    rate("get", counts.gets, "success", counts.get_misses);
    rate("couldExist", counts.could_exist, "success", counts.could_exist_misses);
    rate("set", counts.sets, "success", counts.set_failures);
    rate("del", counts.deletes, "found", counts.delete_misses);
    if counts.updates > 0 {
        rate("update", counts.updates, "success", counts.update_misses);
    }
    if counts.add_chained > 0 {
        rate("addChained", counts.add_chained, "success", counts.add_chained_failures);
    }
    out
}

fn flash_counters(snapshot: &Snapshot) -> String {
    let mut out = String::from("== NVM Counters Map ==\n");
    snapshot.each_listed_counter(|name, value| line(&mut out, format_args!("{name}  :  {value}")));
    out
}

/// Eight lines whose sixth word is the number: `extract_latency.sh` relies on both.
fn device_latency(out: &mut String, name: &str, histogram: Option<&Histogram>) {
    for (label, share) in PERCENTILES {
        let microseconds = histogram.and_then(|it| it.quantile_ns(share)).map(|ns| ns as f64 / 1e3);
        match microseconds {
            Some(value) => line(out, format_args!("{name:20} {label:8} : {value:>10.2} us")),
            None => line(out, format_args!("{name:20} {label:8} : {:>10} us", "unknown")),
        }
    }
}

fn api_latency(out: &mut String, name: &str, histogram: &Histogram) {
    for (label, share) in PERCENTILES {
        match histogram.quantile_ns(share) {
            Some(value) => line(out, format_args!("{name:20} {label:8} : {value:>10} ns")),
            None => line(out, format_args!("{name:20} {label:8} : {:>10} ns", "unknown")),
        }
    }
}

fn plain(value: Option<f64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:6.2}"))
}

fn gib(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unknown".to_owned(), |bytes| format!("{:6.2}", bytes as f64 / GIB))
}
