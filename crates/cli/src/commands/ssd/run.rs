//! `flashwright ssd run`: patterns of writes, or fio jobs, on the model drive without a cache.

mod job;
mod pace;
mod result;
mod unheeded;

use std::process::ExitCode;

use bench::report::numbers::percentiles;
use bench::run::latency::Histogram;
use bench::run::stop::Stop;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use ssd::run::{self, Arrival, Counted, Length, Load, Order, Pattern, Served};
use ssd::{Card, Drive, Ftl, Isolation, Shape, ShapeError, Untimed, Upkeep, VictimPolicy};

use crate::output::{Common, Finding};
use crate::quantity;
use pace::Pace;

/// Headings of the flags that shape the drive, the writes and the timing.
const DRIVE: &str = "Drive";
const WRITES: &str = "Writes";
const TIMING: &str = "Timing";

/// The command line of `ssd run`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Drive card: a name from `ssd cards`, or the path of a TOML file
    card: String,
    /// Write pattern
    #[arg(long, help_heading = WRITES, value_enum, default_value = "uniform")]
    pattern: PatternName,
    /// Over-provisioning, (P - S) / S, instead of the card's; the raw capacity stays
    #[arg(long, help_heading = DRIVE, value_name = "SHARE", value_parser = quantity::share)]
    op: Option<f64>,
    #[arg(long, help = gc_help(), help_heading = DRIVE, value_name = "POLICY", value_parser = |text: &str| text.parse::<VictimPolicy>())]
    gc: Option<VictimPolicy>,
    /// Pages per reclaim unit, instead of the card's; the number of units stays
    #[arg(long, help_heading = DRIVE, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "scale")]
    pages_per_block: Option<u32>,
    /// Number of reclaim units, instead of the card's
    #[arg(long, help_heading = DRIVE, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    units: Option<u32>,
    /// Divide the drive's capacity by N; the numbers of units and handles stay
    #[arg(long, help_heading = DRIVE, value_name = "1/N", value_parser = quantity::scale, default_value = "1")]
    scale: u32,
    /// Data placement by handle: off is a conventional drive, on follows the card [default: off; with --job on if a job has fdp=1 and the
    /// card has handles]
    #[arg(long, help_heading = DRIVE, value_name = "KIND", value_enum)]
    placement: Option<PlacementName>,
    /// Where a conventional drive writes relocated data: apart from host data or with it [default: apart]
    #[arg(long, help_heading = DRIVE, value_name = "WHERE", value_enum)]
    collection_frontier: Option<CollectionFrontier>,
    /// mixed: share of the space that is written at random [default: 4%]
    #[arg(long, help_heading = WRITES, value_name = "SHARE", value_parser = quantity::share)]
    random_space: Option<f64>,
    /// mixed: share of the writes that go to the random space; the others cycle through the rest [default: 50%]
    #[arg(long, help_heading = WRITES, value_name = "SHARE", value_parser = quantity::share)]
    random_writes: Option<f64>,
    /// zipf: exponent [default: 0.99]
    #[arg(long, help_heading = WRITES, value_name = "X", value_parser = quantity::positive)]
    zipf_exponent: Option<f64>,
    /// Drive capacities to write before counting, after the first fill
    #[arg(long, alias = "warmup", help_heading = WRITES, value_name = "X", value_parser = quantity::positive, default_value = "6")]
    warm_up: f64,
    /// Drive capacities to write while counting
    #[arg(long, help_heading = WRITES, value_name = "X", value_parser = quantity::positive, default_value = "4")]
    measure: f64,
    /// Simulate the latency of each request, in virtual time
    #[arg(long, help_heading = TIMING)]
    timed: bool,
    /// timed: share of the requests that read a page
    #[arg(long, help_heading = TIMING, value_name = "SHARE", value_parser = quantity::share, default_value = "0%", requires = "timed")]
    reads: f64,
    /// timed: requests in flight
    #[arg(long, help_heading = TIMING, value_name = "N", default_value_t = 32, requires = "timed", value_parser = clap::value_parser!(u32).range(1..))]
    queue_depth: u32,
    /// timed: requests per second, however many are in flight, instead of a queue depth
    #[arg(long, help_heading = TIMING, value_name = "N", requires = "timed", value_parser = quantity::positive, conflicts_with = "queue_depth")]
    rate: Option<f64>,
    #[command(flatten)]
    job: job::JobFlags,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum PatternName {
    Uniform,
    Sequential,
    Zipf,
    Mixed,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum PlacementName {
    Off,
    On,
    InitiallyIsolated,
    PersistentlyIsolated,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, ValueEnum)]
enum CollectionFrontier {
    #[default]
    Apart,
    WithHost,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let (config, found) = match prepare(arguments) {
        Ok((card, shape)) => {
            let config = arguments.describe(&card, &shape);
            let run = if arguments.job.job.is_some() { job::execute } else { execute };
            (config, run(arguments, &card, &shape))
        }
        Err(error) => (Value::Null, Err(error)),
    };
    arguments.common.conclude("ssd run", &config, found)
}

fn gc_help() -> String {
    format!(
        "Victim policy of garbage collection: {}. d-choices:D takes the emptiest of D units drawn at random, d-choices is d-choices:2 \
         [default: the card's, otherwise greedy]",
        VictimPolicy::NAMES.join(", ")
    )
}

fn prepare(arguments: &Arguments) -> Result<(Card, Shape), String> {
    unheeded::check(arguments)?;
    arguments.common.check_result_file()?;
    let card = Card::load(&arguments.card).and_then(|card| card.scaled(arguments.scale));
    let card = card.map_err(|error| error.to_string())?;
    let mut shape = card.shape(true);
    let handles = shape.isolation.handles().len();
    let op_ratio = arguments.op.unwrap_or_else(|| shape.op_ratio());
    let by_default = match card.placement.is_some() && job::uses_placement(arguments)? {
        true => PlacementName::On,
        false => PlacementName::Off,
    };
    shape.isolation = match (arguments.placement.unwrap_or(by_default), &card.placement) {
        (PlacementName::Off, _) => {
            Isolation::Conventional { collection_apart: arguments.frontier() == CollectionFrontier::Apart }
        }
        (_, None) => return Err(format!("--placement: {} has no placement handles", card.name)),
        (PlacementName::On, Some(_)) => shape.isolation,
        (PlacementName::InitiallyIsolated, Some(_)) => Isolation::initially_isolated(handles),
        (PlacementName::PersistentlyIsolated, Some(_)) => Isolation::persistently_isolated(handles),
    };
    shape.unit_pages = arguments.pages_per_block.unwrap_or(shape.unit_pages);
    shape.units = arguments.units.unwrap_or(shape.units);
    if arguments.op.is_some() || arguments.pages_per_block.is_some() || arguments.units.is_some() {
        shape.logical_pages = (shape.data_pages() as f64 / (1.0 + op_ratio)).round() as u32;
    }
    Ok((card, shape))
}

impl Arguments {
    /// The card's garbage collection, with the policy of the flag if it is given.
    fn upkeep(&self, card: &Card) -> Upkeep {
        let of_card = card.upkeep(self.common.seed());
        Upkeep { victims: self.gc.unwrap_or(of_card.victims), ..of_card }
    }

    fn frontier(&self) -> CollectionFrontier {
        self.collection_frontier.unwrap_or_default()
    }

    fn pattern(&self) -> Pattern {
        match self.pattern {
            PatternName::Uniform => Pattern::one(Order::Uniform),
            PatternName::Sequential => Pattern::one(Order::Ring),
            PatternName::Zipf => Pattern::one(Order::Zipf(self.zipf_exponent.unwrap_or(0.99))),
            PatternName::Mixed => {
                Pattern::mixed(self.random_space.unwrap_or(0.04), self.random_writes.unwrap_or(0.5))
            }
        }
    }

    /// The placement of the run, which may follow from the job file.
    fn placement_name(&self, shape: &Shape) -> String {
        let of_shape = match shape.isolation {
            Isolation::Conventional { .. } => PlacementName::Off,
            Isolation::Handles(_) => PlacementName::On,
        };
        let name = self.placement.unwrap_or(of_shape).to_possible_value();
        name.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn describe(&self, card: &Card, shape: &Shape) -> Value {
        let streams = self.pattern().streams;
        let streams = streams.iter().map(|stream| {
            json!({ "space": stream.space, "writes": stream.writes, "order": format!("{:?}", stream.order).to_lowercase() })
        });
        json!({
            "card": card,
            "scale": format!("1/{}", self.scale),
            "page_bytes": shape.page_bytes,
            "pages_per_block": shape.unit_pages,
            "units": shape.units,
            "logical_pages": shape.logical_pages,
            "placement": self.placement_name(shape),
            "collection_frontier": self.frontier().to_possible_value().map(|value| value.get_name().to_owned()),
            "gc": self.upkeep(card).victims.to_string(),
            "job": self.job.job.as_deref().map(crate::output::name_of),
            "streams": self.job.job.is_none().then(|| streams.collect::<Vec<Value>>()),
            "warm_up_capacities": self.job.job.is_none().then_some(self.warm_up),
            "measured_capacities": self.job.job.is_none().then_some(self.measure),
            "timed": self.timed,
            "reads": self.timed.then_some(self.reads),
            "queue_depth": (self.timed && self.rate.is_none()).then_some(self.queue_depth),
            "requests_per_second": self.rate,
        })
    }
}

fn execute(arguments: &Arguments, card: &Card, shape: &Shape) -> Result<Finding, String> {
    arguments.check_load()?;
    let layout = shape.clone().layout().map_err(|error| by_its_flag(&error))?;
    arguments.check_length(layout.shape().logical_pages)?;
    arguments.pattern().check(shape.logical_pages).map_err(|error| format!("--pattern: {error}"))?;
    let upkeep = arguments.upkeep(card);
    pace::hint(arguments, &layout);
    let stop = arguments.common.stop()?;
    let (counted, state, stats, latency) = if arguments.timed {
        let mut drive = Drive::new(card, shape, upkeep).map_err(|error| error.to_string())?;
        let (counted, latency) = arguments.run_timed(&mut drive, &stop);
        (counted, drive.ftl().check(), drive.ftl().stats().clone(), latency)
    } else {
        let mut ftl = Ftl::new(layout, upkeep);
        let counted = arguments.run_counted(&mut ftl, &stop);
        (counted, ftl.check(), ftl.stats().clone(), Value::Null)
    };
    if counted == Counted::Nothing {
        return Err("interrupted: nothing was counted yet".into());
    }
    let failures = state.err().into_iter().map(|error| format!("the model's state: {error}")).collect();
    let mut result = result::json(arguments, (card, shape), &stats, &latency);
    result["was_stopped"] = (counted == Counted::Part).into();
    let text = result::text(&result);
    Ok(Finding { result, text, failures })
}

/// Names the flag that made the shape invalid: the card's own shape is valid.
fn by_its_flag(error: &ShapeError) -> String {
    let flag = match error.key {
        "unit_pages" => "--pages-per-block",
        "logical_pages" => "--op, --units",
        "page_bytes" => "--units, --pages-per-block",
        key => key,
    };
    format!("{flag}: {}", error.reason)
}

/// A drive keeps up if it completes this share of the offered load. It is below 1 because the last requests of a run complete after the
/// last arrival.
const KEEPS_UP: f64 = 0.95;

/// More than any drive's endurance, and few enough that page counts fit their integers.
const MOST_CAPACITIES: f64 = 1e6;

impl Arguments {
    /// Checks the load: a run ends after a number of writes, and its clock counts nanoseconds.
    fn check_load(&self) -> Result<(), String> {
        for (flag, capacities) in [("--warm-up", self.warm_up), ("--measure", self.measure)] {
            if capacities > MOST_CAPACITIES {
                return Err(format!(
                    "{flag}: {capacities} drive capacities; must be at most {MOST_CAPACITIES}"
                ));
            }
        }
        let of_mixed = [("--random-space", self.random_space), ("--random-writes", self.random_writes)];
        for (flag, share) in of_mixed.into_iter().filter_map(|(flag, share)| Some((flag, share?))) {
            if share <= 0.0 || share >= 1.0 {
                let text = "must be above 0% and below 100%: --pattern mixed has two parts that are written";
                return Err(format!("{flag}: {} %; {text}", share * 100.0));
            }
        }
        if self.reads >= 1.0 {
            return Err("--reads: must be below 100%: a run ends when enough is written".into());
        }
        match self.rate {
            Some(rate) if !(1e-3..=1e9).contains(&rate) => {
                Err(format!("--rate: {rate} requests/s; must be from 0.001 to 1000000000"))
            }
            _ => Ok(()),
        }
    }

    /// Warm-up and measurement are each at least one page. Without that, the counters would include the first fill.
    fn check_length(&self, logical_pages: u32) -> Result<(), String> {
        for (flag, capacities) in [("--warm-up", self.warm_up), ("--measure", self.measure)] {
            if (capacities * f64::from(logical_pages)).round() < 1.0 {
                return Err(format!(
                    "{flag}: {capacities} capacities of {logical_pages} pages are less than one page"
                ));
            }
        }
        Ok(())
    }

    fn length(&self) -> Length {
        Length { warm_up: self.warm_up, measured: self.measure }
    }

    fn run_counted(&self, ftl: &mut Ftl, stop: &Stop) -> Counted {
        let mut pace = Pace::new(self.common.quiet);
        let (pattern, length, seed) = (self.pattern(), self.length(), self.common.seed());
        let counted = run::run(ftl, &pattern, length, seed, &mut Untimed, |done, total| {
            pace.update(done, total);
            !stop.is_set()
        });
        pace.finish();
        counted
    }

    /// Runs in virtual time; the value has the latencies as in the result.
    fn run_timed(&self, drive: &mut Drive, stop: &Stop) -> (Counted, Value) {
        let arrival = match self.rate {
            Some(rate) => Arrival::EveryNs((1e9 / rate).round().max(1.0) as u64),
            None => Arrival::QueueDepth(self.queue_depth),
        };
        let load = Load { reads: self.reads, arrival };
        let mut histograms = [Histogram::default(), Histogram::default()];
        let mut pace = Pace::new(self.common.quiet);
        let (counted, took) = run::run_timed(
            drive,
            &self.pattern(),
            (self.length(), load),
            self.common.seed(),
            |served, latency_ns| histograms[usize::from(served == Served::Read)].record(latency_ns),
            |done, total| {
                pace.update(done, total);
                !stop.is_set()
            },
        );
        pace.finish();
        let [writes, reads] = &histograms;
        let requests = (writes.count() + reads.count()) as f64;
        let done = requests * 1e9 / took.completions_ns as f64;
        let offered = self.rate.map(|_| requests * 1e9 / took.arrivals_ns as f64);
        let latency = json!({
            "write": percentiles(writes),
            "read": percentiles(reads),
            "virtual_seconds": took.completions_ns as f64 / 1e9,
            "requests_per_second": done,
            "offered_per_second": offered,
            "keeps_up": offered.map(|offered| done >= KEEPS_UP * offered),
        });
        (counted, latency)
    }
}
