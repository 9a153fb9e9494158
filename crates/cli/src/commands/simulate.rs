//! `flashwright simulate`: hit ratios of policies at sizes over a trace.

mod admission;
mod unused_flags;

use std::path::PathBuf;
use std::process::ExitCode;

use bench::bar::{Bar, Unit};
use bench::simulate::policies::POLICIES;
use bench::simulate::{
    self, FlashSettings, Named, Plan, RuleBook, SeriesInterval, Settings, Shard, SimulateError,
    SimulatedAdmission, Size, SizeOnHit, Warmup, plot, report,
};
use bench::trace::{ZeroSize, open};
use clap::Args;
use serde_json::json;

use crate::choice::{Choice, name_of, one_of};
use crate::files::Files;
use crate::output::{Common, Finding, make_folder, write_file, write_parquet, write_picture};
use crate::quantity;
use crate::trace_flags::{TenantColumns, TraceFlags};

/// The command line of `simulate`.
#[derive(Debug, Args)]
#[command(after_help = policies_help(), after_long_help = format!("{}\n{}", policies_help(), crate::examples::SIMULATE))]
pub struct Arguments {
    /// Trace files, block traces merged by time, others read one after the other; - is standard input
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Policies to simulate, separated by commas
    #[arg(
        long,
        short,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "fifo,lru,s3fifo,sieve"
    )]
    policy: Vec<String>,
    /// Cache sizes, separated by commas: bytes (2922721, 64MiB, 2GiB), a percentage of the footprint (10%), or a number of objects
    /// (1000obj)
    #[arg(long, short, value_name = "SIZE,...", value_delimiter = ',', default_value = "1%,10%", value_parser = typed_size)]
    size: Vec<TypedSize>,
    /// Count every object as 1 instead of its size; --size is then in objects. A size such as 1000obj implies it
    #[arg(long, conflicts_with_all = ["first_size", "size_on_hit", "by_tenant"])]
    ignore_size: bool,
    /// Requests that warm up the caches and are not counted: a number, a percentage, or those of a time (90s, 1h)
    #[arg(long, alias = "warm-up", value_name = "N|N%|TIME", default_value = "20%", value_parser = warmup)]
    warmup: Warmup,
    /// Report hits over time, in intervals of a number of requests or of the trace's time (60s, 1h), warm-up included
    #[arg(long, value_name = "N|TIME", value_parser = interval, conflicts_with_all = ["by_tenant", "sample"])]
    interval: Option<SeriesInterval>,
    /// Write these intervals to FILE as CSV
    #[arg(long, value_name = "FILE", requires = "interval")]
    interval_csv: Option<PathBuf>,
    /// Whose rules to follow where implementations differ [default: libcachesim]
    #[arg(long, value_parser = one_of(&RULES))]
    rules: Option<RuleBook>,
    /// When a cached object is requested with a new size: ignore that size, or update the object,
    /// which leaves if it has outgrown the cache [default: ignore]
    #[arg(long, value_name = "ACTION", value_parser = one_of(&ON_HIT))]
    size_on_hit: Option<SizeOnHit>,
    /// Missed objects that a cache admits: reject-first (those that missed before), below:BYTES, probability:P,
    /// size-probability:E (an object of N bytes with the probability e^(-E*N)), adaptsize or adaptsize:REQUESTS (the same with a tuned E,
    /// every 30000 requests or as given) [default: all]
    #[arg(long, value_name = "RULE", value_parser = admission::parsed)]
    admission: Option<SimulatedAdmission>,
    /// Keep every object at the size of its first request
    #[arg(long)]
    first_size: bool,
    /// Let no object expire, even if the trace has TTLs
    #[arg(long)]
    ignore_ttl: bool,
    /// lru, lru2q, tinylfu: ignore hits within this many seconds of the last one that counted [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = quantity::number::<u32>)]
    refresh: Option<u32>,
    /// Simulate a sample of the objects (such as 1%) and the most popular ones, and estimate ratios, with 95 % intervals
    #[arg(long, value_name = "N%", value_parser = quantity::share)]
    sample: Option<f64>,
    /// Report hit ratios by tenant too, naming the N with the most requests [default N: 20]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "20", value_parser = quantity::count::<u32>)]
    by_tenant: Option<u32>,
    #[command(flatten)]
    tenants: TenantColumns,
    /// Simulate one of N shares of the objects, chosen by key, in a cache of 1/N of each size; the counts of all shares add up
    #[arg(long, value_name = "I/N", value_parser = str::parse::<Shard>)]
    shard: Option<Shard>,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = quantity::count::<u32>)]
    threads: Option<u32>,
    /// Write the results to FILE as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the rows of the result to FILE as Parquet
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// Plot hit ratios over cache size, as SVG and PNG files in DIRECTORY
    #[arg(long, value_name = "DIRECTORY")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    reading: TraceFlags,
    #[command(flatten)]
    flash: FlashArguments,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A cache size as typed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TypedSize {
    /// A number without a unit: bytes, or objects with `--ignore-size`.
    Number(u64),
    Bytes(u64),
    Objects(u64),
    Footprint(f64),
}

/// Parameters of flash caches.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flash caches")]
struct FlashArguments {
    /// log, hash-log, set-associative, kangaroo: DRAM in front of flash, an LRU whose evictions go to flash [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = quantity::bytes)]
    dram: Option<u64>,
    /// log, hash-log: bytes of that DRAM that the index takes per byte of flash [default: 0]
    #[arg(long, value_name = "RATIO", requires = "dram")]
    index_ratio: Option<f64>,
    /// log, hash-log, set-associative, kangaroo: overhead of each object [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = quantity::number::<u32>)]
    object_overhead: Option<u32>,
    /// log, hash-log, set-associative, kangaroo: treat larger objects as having this size, overhead included
    #[arg(long, value_name = "BYTES", value_parser = quantity::number::<u32>)]
    object_limit: Option<u32>,
    /// Block size [default: 256KiB for log; 1/448 of the cache for hash-log; others 64MiB, or 1/512 of the cache if that is less]
    #[arg(long, value_name = "BYTES", value_parser = quantity::bytes)]
    block_size: Option<u64>,
    /// set-associative, kangaroo: set size [default: 4096]
    #[arg(long, value_name = "BYTES", value_parser = quantity::bytes)]
    set_size: Option<u64>,
}

const RULES: [Choice<RuleBook>; 2] = [
    ("libcachesim", Some("libCacheSim's, as in published miss ratios"), RuleBook::Reference),
    ("paper", Some("The papers', as in this cache's engine"), RuleBook::Paper),
];
const ON_HIT: [Choice<SizeOnHit>; 2] =
    [("ignore", None, SizeOnHit::Ignore), ("update", None, SizeOnHit::Update)];

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let plan = match plan(arguments) {
        Ok(plan) => plan,
        Err(error) => return arguments.common.refuse(&error),
    };
    let config = json!({
        "reading": arguments.reading.config(&arguments.traces),
        "policies": arguments.policy,
        "sample": arguments.sample,
        "shard": arguments.shard.map(|shard| shard.to_string()),
        "by_tenant": arguments.by_tenant,
        "tenant_columns": arguments.tenants.tenant_columns,
        "rules": name_of(&RULES, &plan.settings.rule_book),
        "interval": arguments.interval.map(|interval| match interval {
            SeriesInterval::Accesses(requests) => json!({ "requests": requests }),
            SeriesInterval::Seconds(seconds) => json!({ "seconds": seconds }),
        }),
        "size_on_hit": name_of(&ON_HIT, &plan.settings.size_on_hit),
        "admission": arguments.admission.map(admission::text),
        "first_size": arguments.first_size,
        "ignore_size": plan.ignore_size,
        "ignore_ttl": arguments.ignore_ttl,
        "refresh_seconds": arguments.refresh.unwrap_or(0),
    });
    arguments.common.conclude("simulate", &config, simulated(arguments, &plan))
}

fn plan(arguments: &Arguments) -> Result<Plan, String> {
    if arguments.by_tenant.is_some() && arguments.sample.is_some() {
        return Err(SimulateError::NoTenantsInSample.to_string());
    }
    if arguments.by_tenant.is_none() && !arguments.tenants.tenant_columns.is_empty() {
        return Err("--tenant-columns: needs --by-tenant".to_owned());
    }
    let (sizes, ignore_size) = arguments.sizes()?;
    if let Some(rule) = arguments.admission {
        admission::check(rule, ignore_size, arguments.sample.is_some())?;
    }
    let named = |name: &str| arguments.common.custom_policy(name).map_or_else(|| name.parse(), Ok);
    let policies: Result<Vec<Named>, _> = arguments.policy.iter().map(|name| named(name.trim())).collect();
    let policies = policies.map_err(|error| error.to_string())?;
    unused_flags::warnings(arguments, &policies).iter().for_each(|message| arguments.common.warn(message));
    if arguments.interval.is_some() && !arguments.common.wants_json() && arguments.interval_csv.is_none() {
        return Err("--interval: needs --json or --interval-csv, since the text has no intervals".to_owned());
    }
    let outputs = [
        arguments.common.result_file(),
        arguments.csv.as_deref(),
        arguments.parquet.as_deref(),
        arguments.interval_csv.as_deref(),
    ];
    Files::reading(&arguments.traces).writing(outputs).check()?;
    if let Some(folder) = &arguments.plot {
        make_folder("--plot", folder)?;
    }
    let is_random = arguments.sample.is_some()
        || arguments.admission.is_some_and(SimulatedAdmission::is_random)
            && policies.iter().any(Named::has_rules)
        || policies.iter().any(Named::is_random);
    let seed = if is_random { arguments.common.seed() } else { 1 };
    let settings = Settings {
        rule_book: arguments.rules.unwrap_or(RuleBook::Reference),
        size_on_hit: arguments.size_on_hit.unwrap_or(SizeOnHit::Ignore),
        refresh_seconds: arguments.refresh.unwrap_or(0),
        any_weight: false,
        admission: arguments.admission.unwrap_or_default(),
        seed,
    };
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Plan {
        policies,
        sizes,
        settings,
        flash: arguments.flash.settings()?,
        warmup: arguments.warmup,
        series: arguments.interval,
        first_size: arguments.first_size,
        ignore_size,
        ignore_ttl: arguments.ignore_ttl,
        sample: arguments.sample,
        tenants: arguments.by_tenant.map(|shown| shown as usize),
        shard: arguments.shard,
        threads: arguments.threads.map_or_else(cores, |threads| threads as usize),
    })
}

impl Arguments {
    /// The sizes, and whether they are in objects.
    fn sizes(&self) -> Result<(Vec<Size>, bool), String> {
        let in_objects = |size: &&TypedSize| matches!(size, TypedSize::Objects(_));
        let ignore_size = self.ignore_size || self.size.iter().any(|size| in_objects(&size));
        let flags = [
            ("--first-size", self.first_size),
            ("--size-on-hit", self.size_on_hit.is_some()),
            ("--by-tenant", self.by_tenant.is_some()),
        ];
        if let Some((flag, _)) = flags.iter().find(|(_, given)| *given && ignore_size) {
            return Err(format!(
                "{flag}: cannot be combined with --size in objects, which ignores the sizes of objects"
            ));
        }
        let size = |size: &TypedSize| match *size {
            TypedSize::Footprint(share) => Ok(Size::Footprint(share)),
            TypedSize::Number(number) | TypedSize::Objects(number) => Ok(Size::Bytes(number)),
            TypedSize::Bytes(bytes) if !ignore_size => Ok(Size::Bytes(bytes)),
            TypedSize::Bytes(bytes) => Err(format!(
                "--size: {bytes} bytes cannot be combined with --ignore-size or a size in objects: write 1000obj or 10%"
            )),
        };
        let sizes: Result<Vec<Size>, String> = self.size.iter().map(size).collect();
        Ok((sizes?, ignore_size))
    }
}

impl FlashArguments {
    fn settings(&self) -> Result<FlashSettings, String> {
        if let Some(ratio) = self.index_ratio.filter(|ratio| !(0.0..1.0).contains(ratio)) {
            return Err(format!("--index-ratio {ratio}: must be at least 0 and below 1"));
        }
        if self.block_size == Some(0) || self.set_size == Some(0) || self.object_limit == Some(0) {
            return Err("--block-size, --set-size and --object-limit must be at least one byte".to_owned());
        }
        if let Some(bytes) = self.block_size.filter(|bytes| *bytes > 1 << 30) {
            return Err(format!("--block-size {bytes}: must be at most {} bytes (1 GiB)", 1 << 30));
        }
        let usual = FlashSettings::default();
        Ok(FlashSettings {
            dram_bytes: self.dram.unwrap_or(usual.dram_bytes),
            index_ratio: self.index_ratio.unwrap_or(usual.index_ratio),
            object_overhead_bytes: self.object_overhead.unwrap_or(usual.object_overhead_bytes),
            object_at_most_bytes: self.object_limit.unwrap_or(usual.object_at_most_bytes),
            block_bytes: self.block_size,
            set_bytes: self.set_size.unwrap_or(usual.set_bytes),
        })
    }
}

fn simulated(arguments: &Arguments, plan: &Plan) -> Result<Finding, String> {
    let mut input = arguments.reading.input(arguments.traces.clone());
    if arguments.by_tenant.is_some() {
        input.options.tenants = arguments.tenants.selection();
    }
    if plan.ignore_size && arguments.reading.zero_size.is_none() {
        input.options.zero_size = ZeroSize::Keep;
    }
    let trace = open(&input.paths, Some(&input.format), &input.options).map_err(|error| error.to_string())?;
    let stop = arguments.common.stop()?;
    let bar = Bar::new(Unit::Custom, arguments.common.quiet);
    let progress = |done, total: Option<u64>| {
        arguments.common.set_progress(done, total);
        bar.set(done, total.unwrap_or(0), format!("{} requests", bench::report::numbers::grouped(done)));
    };
    let outcome = simulate::run(plan, trace, &stop, progress);
    bar.finish();
    let outcome = outcome.map_err(|error| match error {
        SimulateError::Empty => format!("{}: {error}", input.names()),
        other => other.to_string(),
    })?;
    outcome
        .read
        .remarks()
        .iter()
        .chain(&outcome.read.messages)
        .for_each(|message| arguments.common.warn(message));
    if arguments.by_tenant.is_some() && outcome.tenants.is_empty() {
        arguments.common.warn("--by-tenant: none of the counted requests names a tenant");
    }
    for row in outcome.empty_rows() {
        let (policy, size) = (row.label(), outcome.size_text(row.size_bytes));
        arguments.common.warn(format_args!("--size: {policy} of {size} admits no object of this trace"));
    }
    for (policy, size, block) in plan.smaller_blocks(&outcome.rows) {
        let (size, block) = (report::bytes(size), report::bytes(block));
        arguments.common.warn(format_args!(
            "--block-size: {policy} of {size} has blocks of {block}, since a cache needs several"
        ));
    }
    if let Some(csv) = &arguments.csv {
        write_file(csv, report::csv(&outcome).as_bytes())?;
    }
    if let Some(csv) = &arguments.interval_csv {
        write_file(csv, report::series_csv(&outcome).as_bytes())?;
    }
    if let Some(folder) = &arguments.plot {
        for picture in plot::pictures(&outcome).map_err(|error| error.to_string())? {
            write_picture(folder, picture.name, &picture.svg)?;
        }
    }
    let result = report::json(&outcome);
    write_parquet(arguments.parquet.as_ref(), &result, "rows")?;
    Ok(Finding::new(result, report::text(&outcome)))
}

fn typed_size(text: &str) -> Result<TypedSize, String> {
    let text = text.trim();
    if text.ends_with('%') {
        return match quantity::share(text)? {
            share if share > 0.0 => Ok(TypedSize::Footprint(share)),
            _ => Err("a cache of 0 % holds nothing".to_owned()),
        };
    }
    if let Some(number) = text.strip_suffix("obj") {
        return quantity::count(number.trim_end()).map(TypedSize::Objects);
    }
    match quantity::bytes(text)
        .map_err(|error| format!("{error}, 10% of the footprint, or 1000obj for objects"))?
    {
        0 => Err("a cache of 0 bytes holds nothing".to_owned()),
        number if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(TypedSize::Number(number)),
        bytes => Ok(TypedSize::Bytes(bytes)),
    }
}

fn warmup(text: &str) -> Result<Warmup, String> {
    match text.trim() {
        share if share.ends_with('%') => match quantity::share(share)? {
            share if share <= 1.0 => Ok(Warmup::Share(share)),
            _ => Err(format!("{text} is more than 100% of the requests")),
        },
        time if is_time(time) => seconds(time).map(Warmup::Seconds),
        number => quantity::number(number).map(Warmup::Accesses).map_err(|_| {
            format!("{text:?} is not a number of requests, a percentage or a time: write 100000, 20% or 1h")
        }),
    }
}

fn interval(text: &str) -> Result<SeriesInterval, String> {
    match text.trim() {
        time if is_time(time) => seconds(time).map(SeriesInterval::Seconds),
        number => quantity::count(number).map(SeriesInterval::Accesses).map_err(|_| {
            format!("{text:?} is not a number of requests above 0 or a time: write 100000, 60s or 1h")
        }),
    }
}

/// Whether a time was meant: 5m is five minutes, 5M five million requests.
fn is_time(text: &str) -> bool {
    text.ends_with(['s', 'm', 'h', 'n'])
}

fn seconds(text: &str) -> Result<u32, String> {
    let time = quantity::duration(text)?;
    match u32::try_from(time.as_secs()) {
        Ok(seconds) if seconds > 0 && time.subsec_nanos() == 0 => Ok(seconds),
        _ => Err(format!("{text}: must be whole seconds, at least 1s")),
    }
}

fn policies_help() -> String {
    let lines = POLICIES.iter().map(|about| format!("  {:<16} {}\n", about.name, about.about));
    format!("Policies:\n{}", lines.collect::<String>())
}
