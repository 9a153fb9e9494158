//! `flashwright evaluate`: tests a drive, or the model of one, as the flash of a cache.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::evaluate::criteria::Criteria;
use bench::evaluate::life::Life;
use bench::evaluate::plan::{PlacementModes, Plan, PlanOptions, lengths};
use bench::evaluate::profile::{PROFILES, Profile};
use bench::evaluate::run::RunOptions;
use bench::evaluate::stages::Offer;
use bench::evaluate::subject::{Model, Real, Subject, Target, WARRANTY_YEARS};
use bench::evaluate::{EvaluationOptions, EvaluationResult, evaluate, json, plot, text};
use bench::picture::Format;
use bench::report::numbers::drive_writes;
use bench::{drive, environment};
use clap::Args;
use device::names;
use serde_json::{Value, json};
use ssd::model::lifetime::Endurance;

use crate::choice::{Choice, one_of};
use crate::commands::confirm::confirm;
use crate::files::Files;
use crate::output::{Common, Finding, write_plot};
use crate::quantity;
use crate::signals::Changing;

/// Headings of the flags for pass criteria and for endurance.
const CRITERIA: &str = "Pass criteria";
const ENDURANCE: &str = "Rated endurance";

/// The command line of `evaluate`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Drive (/dev/nvme0n1, /dev/ng0n1), file:PATH, or card of a model drive (see `ssd cards`; sim:CARD or a TOML file)
    drive: Target,
    /// Print the steps, the bytes they write and the time they take, and exit
    #[arg(long)]
    plan: bool,
    /// Workloads to run: kv, cdn, graph [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = profile)]
    profile: Vec<&'static Profile>,
    /// Whether to write with placement handles
    #[arg(long, value_name = "MODE", default_value = "both", value_parser = one_of(&PLACEMENTS))]
    placement: PlacementModes,
    /// Rates to offer besides the maximum: ops/s, percentages of the maximum, or `life`, at which the drive lasts --min-years
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', value_parser = offer, default_value = "life,25%,50%,75%,90%")]
    rates: Vec<Offer>,
    /// Share of the drive that the cache uses
    #[arg(long = "use", value_name = "SHARE", value_parser = quantity::share, default_value = "100%")]
    share: f64,
    /// Requests in flight [default: 64 on a card, 32 on a drive]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// Check every value found against what was set; takes memory for each key
    #[arg(long)]
    check: bool,
    /// End the fill as soon as a forecast proves that the write amplification is final (see `ssd forecast`), and not before, within the
    /// longest fill that the plan allows
    #[arg(long)]
    stop_early: bool,
    /// Cards: divide the capacity by N [default: down to about 1 GB]
    #[arg(long, value_name = "1/N", value_parser = quantity::scale)]
    scale: Option<u32>,
    /// Drives: time for each step of the plan, 10s or more [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    budget: Option<Duration>,
    /// Files: create DRIVE with this size, and remove it afterwards
    #[arg(long, value_name = "SIZE", value_parser = device::size::parse_size)]
    size: Option<u64>,
    /// Maximum p99 read latency of the drive
    #[arg(long, help_heading = CRITERIA, value_name = "TIME", value_parser = quantity::fine_duration, default_value = "5ms")]
    max_read_p99: Duration,
    /// Maximum p99 write latency of the drive [default: none]
    #[arg(long, help_heading = CRITERIA, value_name = "TIME", value_parser = quantity::fine_duration)]
    max_write_p99: Option<Duration>,
    /// Minimum lifetime of the drive in years; 0 is none
    #[arg(long, help_heading = CRITERIA, value_name = "YEARS", value_parser = quantity::amount, default_value = "5")]
    min_years: f64,
    /// Minimum share of the offered rate that is reached
    #[arg(long, help_heading = CRITERIA, value_name = "SHARE", value_parser = quantity::part, default_value = "95%")]
    min_reached: f64,
    /// Minimum hit ratio of gets
    #[arg(long, help_heading = CRITERIA, value_name = "SHARE", value_parser = quantity::part, default_value = "0%")]
    min_hit_ratio: f64,
    /// Minimum ops/s at which every profile must pass [default: none]
    #[arg(long, help_heading = CRITERIA, value_name = "RATE", value_parser = rate)]
    min_rate: Option<u64>,
    /// Terabytes written
    #[arg(long, help_heading = ENDURANCE, value_name = "TB", value_parser = quantity::positive, conflicts_with = "dwpd")]
    tbw: Option<f64>,
    /// Drive writes per day
    #[arg(long, help_heading = ENDURANCE, value_name = "X", value_parser = quantity::positive)]
    dwpd: Option<f64>,
    /// Years that --dwpd holds for [default: 5]
    #[arg(long, help_heading = ENDURANCE, value_name = "YEARS", value_parser = quantity::positive, requires = "dwpd")]
    warranty_years: Option<f64>,
    /// Write amplification that the rating assumes [default: the card's, otherwise 1]
    #[arg(long, help_heading = ENDURANCE, value_name = "X", value_parser = quantity::amplification)]
    rated_dlwa: Option<f64>,
    /// Plot read latency and life against throughput to FILE (.svg or .png)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Do not ask before destroying data
    #[arg(long)]
    yes: bool,
    /// Overwrite the drive even if it holds data
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

const PLACEMENTS: [Choice<PlacementModes>; 3] = [
    ("both", Some("Off, and on if the drive has handles"), PlacementModes::Both),
    ("off", None, PlacementModes::Unplaced),
    ("on", None, PlacementModes::Placed),
];

/// Default and minimum time of each step on a drive: a rate's share must suffice for percentiles.
const BUDGET: Duration = Duration::from_secs(3600);
const LEAST_BUDGET: Duration = Duration::from_secs(10);
const MOST_RATES: usize = 32;

fn profile(name: &str) -> Result<&'static Profile, String> {
    PROFILES.iter().find(|profile| profile.name == name).ok_or_else(|| {
        let names = PROFILES.iter().map(|profile| profile.name);
        let all: Vec<&str> = names.clone().collect();
        format!("unknown profile; {}the profiles are {}", names::hint(name, names), all.join(", "))
    })
}

fn offer(text: &str) -> Result<Offer, String> {
    if text == "life" {
        return Ok(Offer::Life);
    }
    if text.ends_with('%') {
        let share = quantity::part(text)?;
        let least = 0.001;
        return if share < least {
            Err(format!("{text} is less than 0.1%"))
        } else {
            Ok(Offer::Share(share))
        };
    }
    rate(text).map(Offer::Rate).map_err(|error| format!("{error}; or a percentage such as 25%, or `life`"))
}

/// Operations per second.
fn rate(text: &str) -> Result<u64, String> {
    let rate: u64 = quantity::count(text)?;
    let most = 100_000_000;
    if rate > most { Err(format!("{text}: must be at most {most} ops/s")) } else { Ok(rate) }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let (config, found) = match prepare(arguments) {
        Ok((subject, plan, options)) => {
            (arguments.config(&subject, &plan, &options), conclude(arguments, &subject, &plan, &options))
        }
        Err(error) => (Value::Null, Err(error)),
    };
    arguments.common.conclude("evaluate", &config, found)
}

/// Reports all usage errors before anything is written.
fn prepare(arguments: &Arguments) -> Result<(Subject, Plan, EvaluationOptions), String> {
    arguments.check()?;
    let subject = arguments.subject()?;
    let budget = arguments.budget.unwrap_or(BUDGET);
    let mut offers = arguments.rates.clone();
    offers.extend(arguments.min_rate.map(Offer::Rate));
    let workers = if matches!(subject, Subject::Model(_)) { 64 } else { 32 };
    let options = PlanOptions {
        profiles: PROFILES.iter().filter(|it| arguments.wants(it)).collect(),
        ways: arguments.placement,
        share: arguments.share,
        workers: arguments.workers.unwrap_or(workers),
        checked: arguments.check,
        budget,
        rates: offers.len(),
    };
    let plan = Plan::new(&subject, &options)?;
    let (endurance, rated) = arguments.endurance(&subject).unzip();
    let capacity_bytes = subject.capacity_bytes() as f64;
    let life = Life { endurance, min_years: arguments.min_years, capacity_bytes };
    let lengths = lengths(&subject, budget, offers.len());
    let how = RunOptions {
        seed: arguments.common.seed(),
        lengths,
        offers,
        life,
        stop_early: arguments.stop_early,
        interrupt: arguments.common.new_stop(),
    };
    let notes = notes(&subject, &plan, rated.is_none());
    let options = EvaluationOptions {
        how,
        criteria: arguments.criteria(),
        rated,
        notes,
        quiet: arguments.common.quiet,
    };
    Ok((subject, plan, options))
}

/// Notes about figures that the drive does not provide.
fn notes(subject: &Subject, plan: &Plan, unrated: bool) -> Vec<String> {
    let unplaced = plan.unplaced.iter().map(|why| format!("not measured with placement: {why}"));
    let mut notes: Vec<String> = unplaced.collect();
    if let Subject::Real(real) = subject
        && real.is_file()
    {
        notes.push(
            "this is a file, not a drive: the figures include its file system and everything below it"
                .to_owned(),
        );
    }
    if unrated {
        notes.push("lifetime is not judged: give the rated endurance with --tbw TB or --dwpd X".to_owned());
    }
    notes
}

impl Arguments {
    fn wants(&self, profile: &Profile) -> bool {
        self.profile.is_empty() || self.profile.contains(&profile)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(file) = &self.plot {
            Format::of(file).map_err(|error| error.to_string())?;
        }
        let outputs = [self.common.result_file(), self.plot.as_deref()];
        let drive = match &self.drive {
            Target::Path(path) => Some(path.clone()),
            Target::Card(_) => None,
        };
        Files::default().keeping("drive", drive).writing(outputs).check()?;
        if !(0.05..=1.0).contains(&self.share) {
            return Err("--use: must be from 5% to 100%".into());
        }
        if self.rates.len() > MOST_RATES {
            return Err(format!("--rates: {} rates are too many; at most {MOST_RATES}", self.rates.len()));
        }
        let is_card = matches!(self.drive, Target::Card(_));
        let flags = [
            ("--budget", self.budget.is_some(), "is for drives: a card's run is bounded by --scale"),
            ("--size", self.size.is_some(), "is for files: a card has its own size"),
            ("--force", self.force, "is for drives: a card holds nothing"),
        ];
        let unheeded = flags.iter().find(|(_, given, _)| *given && is_card);
        if let Some((flag, _, why)) = unheeded {
            return Err(format!("{flag}: {why}"));
        }
        if self.scale.is_some() && !is_card {
            return Err("--scale: is for cards: a real drive cannot be scaled".into());
        }
        match self.budget {
            Some(budget) if !(LEAST_BUDGET..=Duration::from_secs(30 * 86_400)).contains(&budget) => {
                Err("--budget: must be from 10s to 720h".into())
            }
            _ => Ok(()),
        }
    }

    fn subject(&self) -> Result<Subject, String> {
        match &self.drive {
            Target::Card(card) => Model::new(card, self.scale).map(Box::new).map(Subject::Model),
            Target::Path(path) => Real::new(path, self.size, self.force).map(Box::new).map(Subject::Real),
        }
    }

    fn criteria(&self) -> Criteria {
        Criteria {
            max_read_p99: self.max_read_p99,
            max_write_p99: self.max_write_p99,
            min_years: self.min_years,
            min_reached: self.min_reached,
            min_hit_ratio: self.min_hit_ratio,
            min_rate: self.min_rate,
        }
    }

    /// The rated endurance: the user's flags take precedence over the drive or the card.
    fn endurance(&self, subject: &Subject) -> Option<(Endurance, String)> {
        let of_subject = match subject {
            Subject::Model(model) => model.card.endurance.dlwa(),
            Subject::Real(_) => 1.0,
        };
        let rated_dlwa = self.rated_dlwa.unwrap_or(of_subject);
        if let Some(tbw) = self.tbw {
            return Some((Endurance::from_tbw(tbw, rated_dlwa), format!("{tbw} TB written (--tbw)")));
        }
        let Some(dwpd) = self.dwpd else { return subject.rated(self.rated_dlwa) };
        let years = self.warranty_years.unwrap_or(WARRANTY_YEARS);
        let endurance = Endurance::from_dwpd(subject.capacity_bytes() as f64, dwpd, years, rated_dlwa);
        Some((endurance, format!("{} for {years} years (--dwpd)", drive_writes(dwpd))))
    }

    fn config(&self, subject: &Subject, plan: &Plan, options: &EvaluationOptions) -> Value {
        let life = options.how.life;
        json!({
            "drive": json::subject(subject),
            "criteria": json::criteria(&options.criteria),
            "plan": json::plan(plan),
            "flash_bytes": plan.flash_bytes,
            "rated": options.rated,
            "rated_media_bytes": life.endurance.map(|it| it.media_bytes()),
            "checked": self.check,
        })
    }
}

fn conclude(
    arguments: &Arguments,
    subject: &Subject,
    plan: &Plan,
    options: &EvaluationOptions,
) -> Result<Finding, String> {
    let common = &arguments.common;
    common.say(header(subject, options).trim_end());
    common.say(plan.text(subject).trim_end());
    if arguments.plan {
        options.notes.iter().for_each(|note| common.say(&format_args!("note: {note}")));
        let result = json!({ "world": world(subject) });
        return Ok(Finding::new(result, String::new()));
    }
    if let Subject::Real(real) = subject
        && !arguments.yes
        && !real.is_made()
    {
        common.check_can_ask()?;
        let question = format!("{}: everything on it will be lost.", real.path.display());
        confirm(false, &question, &Changing::default())?;
    }
    arguments.common.stop_on_signals(options.interrupt())?;
    let found = evaluate(subject, plan, options)?;
    draw(arguments, subject, &found, options)?;
    Ok(finding(subject, &found, options))
}

fn header(subject: &Subject, options: &EvaluationOptions) -> String {
    let rated = options.rated.as_ref().map_or_else(String::new, |rated| format!("rated for {rated}\n"));
    match subject {
        Subject::Model(model) => {
            let (card, scale) = (&model.card, model.scale);
            format!(
                "{}: {}; modelled at 1/{scale} of its size, in virtual time\n{rated}",
                card.name, card.title
            )
        }
        Subject::Real(real) => drive::text::info(&real.info) + &rated,
    }
}

fn world(subject: &Subject) -> &'static str {
    if matches!(subject, Subject::Model(_)) { "simulated" } else { "real" }
}

fn finding(subject: &Subject, found: &EvaluationResult, options: &EvaluationOptions) -> Finding {
    let failures = text::failures(found, options);
    let word = match (failures.is_empty(), found.interrupted) {
        (false, _) => "FAILED",
        (true, true) => "INTERRUPTED",
        (true, false) => "passed",
    };
    let verdict = text::verdict(found, options);
    let text = format!("{}{verdict}{}: {word}\n", text::table(found, &options.criteria), subject.name());
    let mut result = json!({
        "world": world(subject),
        "profiles": json::profiles(found, options),
        "precondition": found.filled.as_ref().map(drive::json::outcome),
        "notes": options.notes.iter().chain(&found.notes).collect::<Vec<_>>(),
        "not_judged": found.unfinished,
        "stopped": found.interrupted.then_some("interrupt"),
    });
    if let Subject::Real(real) = subject {
        let now = bench::drive::clock().unix_seconds();
        result["environment"] = environment::capture(std::slice::from_ref(&real.path), Some(now));
    }
    Finding { result, text, failures }
}

fn draw(
    arguments: &Arguments,
    subject: &Subject,
    found: &EvaluationResult,
    options: &EvaluationOptions,
) -> Result<(), String> {
    let Some(file) = &arguments.plot else { return Ok(()) };
    let svg = plot::svg(found, &subject.name(), &options.criteria).map_err(|error| error.to_string())?;
    write_plot(file, svg)
}
