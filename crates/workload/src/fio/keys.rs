//! The keys of a job file: the field that each one sets, or the reason for which it is ignored or refused.

use super::values::{amount, bytes, count, flag, for_each_kind, nanoseconds, percentage};
use super::{AccessPattern, BlockSizes, Distribution, Job, Mix, PerKind};

/// How a key is handled.
pub(super) enum Handling {
    /// Its value is parsed into the job.
    Set(fn(&mut Job, &str, u32) -> Result<(), String>),
    /// It has no effect on what the drive receives.
    Silent,
    /// It is accepted with this warning, unless its value is 0.
    Warn(&'static str),
    /// It is refused for this reason, unless its value is 0 or `none`.
    Refuse(&'static str),
}

use Handling::{Refuse, Set, Silent, Warn};

/// Names of all keys that are recognised.
pub fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().flat_map(|(names, _)| names.iter().copied())
}

pub(super) fn find(name: &str) -> Option<&'static Handling> {
    KEYS.iter().find(|(names, _)| names.contains(&name)).map(|(_, handling)| handling)
}

const NO_CACHE: &str = "the model has no page cache: requests go to the drive";
const NO_FLUSH: &str =
    "ignored: the model acknowledges writes from a buffer that is protected against power loss";
const NO_BATCH: &str = "ignored: requests are submitted one by one";
const NO_PRIORITY: &str = "ignored: the model has no priorities";
const NO_CONTENT: &str = "the model drive stores no data to verify";
const NO_ZONES: &str = "the model drive has no zones";
const ONE_FILE: &str = "a job uses one file";
const NO_REPLAY: &str = "a recorded log is not a job";

#[rustfmt::skip]
static KEYS: &[(&[&str], Handling)] = &[
    (&["rw", "readwrite"], Set(|job, text, base| set(&mut job.pattern, pattern(text, base)))),
    (&["bs", "blocksize"], Set(|job, text, base| update(&mut job.block_bytes, for_each_kind(text, ',', |text| block(text, base))))),
    (&["bsrange", "blocksize_range"], Set(|job, text, base| update(&mut job.block_bytes, for_each_kind(text, ',', |text| block_range(text, base))))),
    (&["bssplit"], Set(|job, text, base| update(&mut job.block_bytes, for_each_kind(text, ',', |text| block_split(text, base))))),
    (&["ba", "blockalign"], Set(|job, text, base| update(&mut job.align_bytes, for_each_kind(text, ',', |text| positive(text, base).map(Some))))),
    (&["rwmixread"], Set(|job, text, _| set(&mut job.read_share, percentage(text)))),
    (&["rwmixwrite"], Set(|job, text, _| set(&mut job.read_share, percentage(text).map(|share| 1.0 - share)))),
    (&["size"], Set(|job, text, base| set(&mut job.size, amount(text, base).map(Some)))),
    (&["io_size", "io_limit"], Set(|job, text, base| set(&mut job.io_size, amount(text, base).map(Some)))),
    (&["offset"], Set(|job, text, base| set(&mut job.offset, amount(text, base)))),
    (&["offset_increment"], Set(|job, text, base| set(&mut job.offset_increment, amount(text, base)))),
    (&["filesize"], Set(|job, text, base| set(&mut job.file_bytes, amount(text, base).map(Some)))),
    (&["filename"], Set(|job, text, _| set(&mut job.file, file(text)))),
    (&["numjobs"], Set(|job, text, _| set(&mut job.clones, count(text, 1).map(|clones| clones.min(u64::from(u32::MAX)) as u32)))),
    (&["loops"], Set(|job, text, _| set(&mut job.loops, count(text, 1)))),
    (&["number_ios"], Set(|job, text, _| set(&mut job.max_requests, count(text, 1).map(Some)))),
    (&["norandommap"], Set(|job, text, _| set(&mut job.has_random_map, flag(text).map(|without| !without)))),
    (&["random_distribution"], Set(|job, text, base| update(&mut job.distribution, for_each_kind(text, ',', |text| Distribution::parse(text, base))))),
    (&["percentage_random"], Set(|job, text, _| update(&mut job.random_share, for_each_kind(text, ',', percentage)))),
    (&["iodepth"], Set(|job, text, _| set(&mut job.queue_depth, count(text, 1).map(|depth| depth.min(65_536) as u32)))),
    (&["ioengine"], Set(|job, text, _| set(&mut job.is_synchronous, is_synchronous(text)))),
    (&["rate"], Set(|job, text, base| update(&mut job.bytes_per_second, for_each_kind(text, ',', |text| positive(text, base).map(Some))))),
    (&["rate_iops"], Set(|job, text, base| update(&mut job.requests_per_second, for_each_kind(text, ',', |text| positive(text, base).map(Some))))),
    (&["rate_process"], Set(|job, text, _| set(&mut job.is_poisson, one_of(text, &["linear", "poisson"]).map(|at| at == 1)))),
    (&["thinktime"], Set(|job, text, _| set(&mut job.think_ns, nanoseconds(text, 1_000)))),
    (&["thinktime_blocks"], Set(|job, text, _| set(&mut job.think_blocks, count(text, 1)))),
    (&["startdelay"], Set(|job, text, _| set(&mut job.start_delay_ns, nanoseconds(text, SECOND_NS)))),
    (&["runtime", "timeout"], Set(|job, text, _| set(&mut job.runtime_ns, nanoseconds(text, SECOND_NS).map(|ns| (ns > 0).then_some(ns))))),
    (&["ramp_time"], Set(|job, text, _| set(&mut job.ramp_ns, nanoseconds(text, SECOND_NS)))),
    (&["time_based"], Set(|job, text, _| set(&mut job.is_time_based, flag(text)))),
    (&["fdp"], Set(|job, text, _| set(&mut job.has_placement, flag(text)))),
    (&["dataplacement"], Set(|job, text, _| set(&mut job.has_placement, one_of(text, &["none", "fdp"]).map(|at| at == 1)))),
    (&["fdp_pli", "plids"], Set(|job, text, _| set(&mut job.placement_ids, identifiers(text)))),
    (&["fdp_pli_select", "plid_select"], Set(|job, text, _| set(&mut job.random_placement, one_of(text, &["roundrobin", "random"]).map(|at| at == 1)))),
    (&["stonewall", "wait_for_previous"], Set(|job, text, _| set(&mut job.waits_for_all, flag(text)))),
    (&["wait_for"], Set(|job, text, _| set(&mut job.waits_for, Ok(Some(text.to_owned()))))),
    (&["exitall"], Set(|job, text, _| set(&mut job.ends_all, flag(text)))),
    (&["exit_what"], Set(|_, text, _| one_of(text, &["group", "all"]).map(drop))),
    (&["random_generator"], Set(|_, text, _| one_of(text, &["tausworthe", "tausworthe64", "lfsr"]).map(drop))),
    (&["rw_sequencer"], Set(|_, text, _| one_of(text, &["sequential"]).map(drop))),
    (&["io_submit_mode"], Set(|_, text, _| one_of(text, &["inline", "offload"]).map(drop))),
    (&["kb_base"], Set(|_, text, _| one_of(text, &["1024", "1000"]).map(drop))),
    (&["direct"], Set(|_, text, _| flag(text).map(drop))),
    (&["sg_write_mode"], Set(|_, text, _| one_of(text, &["write"]).map(drop))),
    (&["buffered"], Warn(NO_CACHE)),
    (&["fsync"], Warn(NO_FLUSH)),
    (&["fdatasync"], Warn(NO_FLUSH)),
    (&["sync"], Warn(NO_FLUSH)),
    (&["sync_file_range"], Warn(NO_FLUSH)),
    (&["write_barrier"], Warn(NO_FLUSH)),
    (&["end_fsync"], Warn(NO_FLUSH)),
    (&["fsync_on_close"], Warn(NO_FLUSH)),
    (&["iodepth_batch", "iodepth_batch_submit"], Warn(NO_BATCH)),
    (&["iodepth_batch_complete", "iodepth_batch_complete_min"], Warn(NO_BATCH)),
    (&["iodepth_batch_complete_max"], Warn(NO_BATCH)),
    (&["iodepth_low"], Warn(NO_BATCH)),
    (&["prio"], Warn(NO_PRIORITY)),
    (&["prioclass"], Warn(NO_PRIORITY)),
    (&["cmdprio"], Warn(NO_PRIORITY)),
    (&["cmdprio_class"], Warn(NO_PRIORITY)),
    (&["cmdprio_percentage"], Warn(NO_PRIORITY)),
    (&["cmdprio_bssplit"], Warn(NO_PRIORITY)),
    (&["write_hint"], Warn("ignored: the model places data by fdp_pli alone")),
    (&["rate_min", "ratemin"], Warn("ignored: a job that is slower than this does not end")),
    (&["rate_iops_min"], Warn("ignored: a job that is slower than this does not end")),
    (&["rate_cycle", "ratecycle"], Warn("ignored: rates hold from request to request")),
    (&["max_latency"], Warn("ignored: a job with slower requests does not end")),
    (&["buffer_compress_percentage"], Warn("ignored: the model does not compress")),
    (&["dedupe_percentage"], Warn("ignored: the model does not deduplicate")),
    (&["continue_on_error", "ignore_error"], Silent),
    (&["verify"], Refuse(NO_CONTENT)),
    (&["verify_pattern"], Refuse(NO_CONTENT)),
    (&["verify_only"], Refuse(NO_CONTENT)),
    (&["do_verify"], Refuse(NO_CONTENT)),
    (&["verify_backlog"], Refuse(NO_CONTENT)),
    (&["verify_async"], Refuse(NO_CONTENT)),
    (&["verify_interval"], Refuse(NO_CONTENT)),
    (&["verify_fatal"], Silent),
    (&["verify_dump"], Silent),
    (&["trim_percentage"], Refuse("trims of verified blocks need verify, and the model drive stores no data to verify")),
    (&["trim_backlog"], Refuse("trims of verified blocks need verify, and the model drive stores no data to verify")),
    (&["zonemode"], Refuse(NO_ZONES)),
    (&["zonesize"], Refuse(NO_ZONES)),
    (&["zonerange"], Refuse(NO_ZONES)),
    (&["zoneskip"], Refuse(NO_ZONES)),
    (&["max_open_zones"], Refuse(NO_ZONES)),
    (&["read_iolog"], Refuse(NO_REPLAY)),
    (&["nrfiles", "nr_files"], Set(|_, text, _| match count(text, 1)? { 1 => Ok(()), _ => Err(ONE_FILE.into()) })),
    (&["opendir"], Refuse(ONE_FILE)),
    (&["openfiles"], Silent),
    (&["flow"], Refuse("jobs do not wait for each other; limit them with rate or rate_iops")),
    (&["flow_id", "flow_sleep"], Silent),
    (&["latency_target"], Refuse("the queue depth is not adjusted to a latency; run the job once for each iodepth")),
    (&["latency_window", "latency_percentile", "latency_run"], Silent),
    (&["steadystate", "ss"], Refuse("runs do not end at a steady state; give a runtime or an io_size")),
    (&["steadystate_duration", "ss_dur", "steadystate_ramp_time", "ss_ramp"], Silent),
    (&["fill_device", "fill_fs"], Refuse("give size=100% instead")),
    (&["bs_unaligned", "blocksize_unaligned"], Refuse("requests are aligned to their block size")),
    (&["bs_is_seq_rand"], Refuse("block sizes are for reads, writes and trims")),
    (&["offset_align"], Refuse("give an aligned offset instead")),
    (&["file_append"], Refuse("give the offset instead")),
    (&["exec_prerun", "exec_postrun"], Refuse("no programs are started")),
    (&["thinktime_spin"], Silent),
    (&["thinktime_blocks_type"], Set(|_, text, _| one_of(text, &["complete", "issue"]).map(drop))),
    (&["thinktime_iotime"], Refuse("pauses follow a number of requests: give thinktime_blocks instead")),
    (&["serialize_overlap"], Silent),
    // Names, files and threads of the process that runs fio.
    (&["name", "description", "directory", "filename_format", "unique_filename", "group_reporting", "new_group", "thread", "threads"], Silent),
    (&["create_serialize", "create_fsync", "create_on_open", "allow_file_create", "fallocate", "fadvise_hint", "overwrite", "unlink"], Silent),
    (&["unlink_each_loop", "pre_read", "invalidate", "lockfile", "lockmem", "allow_mounted_write", "file_service_type", "atomic"], Silent),
    (&["mem", "iomem", "mem_align", "hugepage-size", "cpumask", "cpus_allowed", "cpus_allowed_policy", "numa_cpu_nodes"], Silent),
    (&["numa_mem_policy", "nice", "uid", "gid", "cgroup", "cgroup_weight", "cgroup_nodelete", "ioscheduler", "clocksource", "gtod_cpu"], Silent),
    (&["randrepeat", "allrandrepeat", "randseed", "use_os_rand", "exitall_on_error", "error_dump", "ignore_zone_limits"], Silent),
    // Keys of the I/O engine that affect the host only.
    (&["hipri", "userspace_reap", "fixedbufs", "registerfiles", "sqthread_poll", "sqthread_poll_cpu", "nonvectored", "uncached", "nowait"], Silent),
    (&["force_async", "cmd_type", "md_per_io_size", "cmdprio_split", "xnvme_be", "xnvme_async", "xnvme_sync", "xnvme_dev_nsid"], Silent),
    // Contents of the data.
    (&["zero_buffers", "refill_buffers", "scramble_buffers", "buffer_pattern", "buffer_compress_chunk", "dedupe_mode"], Silent),
    // Keys of the measurements and output of fio.
    (&["write_bw_log", "write_lat_log", "write_iops_log", "write_hist_log", "write_iolog", "bwavgtime", "iopsavgtime", "per_job_logs"], Silent),
    (&["log_avg_msec", "log_hist_msec", "log_hist_coarseness", "log_max_value", "log_offset", "log_prio", "log_compression"], Silent),
    (&["log_store_compressed", "log_unix_epoch", "log_entries", "log_issue_time", "log_alternate_epoch", "clat_percentiles", "lat_percentiles"], Silent),
    (&["slat_percentiles", "percentile_list", "significant_figures", "disk_util", "gtod_reduce", "disable_lat", "disable_clat"], Silent),
    (&["disable_slat", "disable_bw", "disable_bw_measurement", "unified_rw_reporting", "unit_base", "stats", "eta", "eta-newline", "minimal"], Silent),
];

const SECOND_NS: u64 = 1_000_000_000;

fn set<T>(field: &mut T, value: Result<T, String>) -> Result<(), String> {
    *field = value?;
    Ok(())
}

/// Replaces the directions that have a value.
fn update<T>(field: &mut PerKind<T>, values: Result<[Option<T>; 3], String>) -> Result<(), String> {
    for (field, value) in field.iter_mut().zip(values?) {
        if let Some(value) = value {
            *field = value;
        }
    }
    Ok(())
}

fn positive(text: &str, kb_base: u32) -> Result<u64, String> {
    match bytes(text, kb_base)? {
        0 => Err(format!("{text:?} is not above 0")),
        value => Ok(value),
    }
}

fn one_of(text: &str, valid: &[&str]) -> Result<usize, String> {
    let found = valid.iter().position(|name| *name == text.trim());
    found.ok_or_else(|| format!("{text:?} is not supported; valid is {}", valid.join(" or ")))
}

/// `randwrite`, `randwrite:8` (requests per random offset), `write:4k` (bytes to skip).
fn pattern(text: &str, kb_base: u32) -> Result<AccessPattern, String> {
    let (name, modifier) =
        text.split_once(':').map_or((text, None), |(name, modifier)| (name, Some(modifier)));
    let (mix, is_random) = match name.trim() {
        "read" => (Mix::Reads, false),
        "write" => (Mix::Writes, false),
        "trim" => (Mix::Trims, false),
        "randread" => (Mix::Reads, true),
        "randwrite" => (Mix::Writes, true),
        "randtrim" => (Mix::Trims, true),
        "rw" | "readwrite" => (Mix::ReadsAndWrites, false),
        "randrw" => (Mix::ReadsAndWrites, true),
        "trimwrite" => (Mix::TrimsThenWrites, false),
        "randtrimwrite" => (Mix::TrimsThenWrites, true),
        other => {
            return Err(format!(
                "{other:?} is not supported; valid is read, write, trim, rw, randread, randwrite, randtrim, randrw, trimwrite or randtrimwrite"
            ));
        }
    };
    let mut pattern = AccessPattern { mix, is_random, run_length: 1, skip_bytes: 0 };
    match modifier.map(str::trim) {
        None => (),
        Some(text) if text.starts_with('-') => {
            return Err(format!(
                "a negative step ({text}) is not supported; valid is a number of bytes to skip"
            ));
        }
        Some(text) if is_random => pattern.run_length = count(text, 1)?.min(u64::from(u32::MAX)) as u32,
        Some(text) => pattern.skip_bytes = bytes(text, kb_base)?,
    }
    Ok(pattern)
}

fn block(text: &str, kb_base: u32) -> Result<BlockSizes, String> {
    // `bs=4k-16k` is a range, too.
    if text.contains('-') {
        return block_range(text, kb_base);
    }
    positive(text, kb_base).map(|bytes| BlockSizes::Range(bytes, bytes))
}

fn block_range(text: &str, kb_base: u32) -> Result<BlockSizes, String> {
    let (least, most) =
        text.split_once('-').ok_or_else(|| format!("{text:?} is not a range: write 4k-16k"))?;
    let (least, most) = (positive(least, kb_base)?, positive(most, kb_base)?);
    if least > most {
        return Err(format!("{text:?}: the first size is larger than the second"));
    }
    Ok(BlockSizes::Range(least, most))
}

/// `4k/60:64k/` : lengths with percentages; those without one share what is left.
fn block_split(text: &str, kb_base: u32) -> Result<BlockSizes, String> {
    let mut lengths = Vec::new();
    for part in text.split(':') {
        let (length, percent) = part.split_once('/').unwrap_or((part, ""));
        let percent = if percent.trim().is_empty() { None } else { Some(percentage(percent)?) };
        lengths.push((positive(length, kb_base)?, percent));
    }
    let given: f64 = lengths.iter().filter_map(|length| length.1).sum();
    let open = lengths.iter().filter(|length| length.1.is_none()).count();
    if given > 1.0 + 1e-9 || (open == 0 && given < 1.0 - 1e-9) {
        return Err(format!("the shares add up to {:.0} %, not 100 %", given * 100.0));
    }
    let rest = (1.0 - given).max(0.0) / open.max(1) as f64;
    Ok(BlockSizes::Split(
        lengths.into_iter().map(|(length, share)| (length, share.unwrap_or(rest))).collect(),
    ))
}

fn file(text: &str) -> Result<Option<String>, String> {
    // fio separates several files by colons, and a colon in a name is written `\:`.
    if text.replace("\\:", "").contains(':') {
        return Err(format!("{text:?} names several files; {ONE_FILE}"));
    }
    Ok(Some(text.to_owned()))
}

fn identifiers(text: &str) -> Result<Vec<u16>, String> {
    let parse =
        |text: &str| text.trim().parse().map_err(|_| format!("{text:?} is not a placement identifier"));
    text.split(',').map(parse).collect()
}

/// Whether an I/O engine is synchronous. An engine that does not send the job's requests to a drive is an error.
fn is_synchronous(text: &str) -> Result<bool, String> {
    const SYNCHRONOUS: [&str; 8] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "sg"];
    const ASYNCHRONOUS: [&str; 9] =
        ["libaio", "io_uring", "io_uring_cmd", "posixaio", "null", "xnvme", "libblkio", "spdk", "windowsaio"];
    let name = text.trim();
    if ASYNCHRONOUS.contains(&name) || SYNCHRONOUS.contains(&name) {
        return Ok(SYNCHRONOUS.contains(&name));
    }
    Err(format!(
        "{name:?} does not send requests to a local drive; valid is {} or {}",
        ASYNCHRONOUS.join(", "),
        SYNCHRONOUS.join(", ")
    ))
}
