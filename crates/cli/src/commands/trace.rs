//! `flashwright trace`: inspects, converts and generates traces.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::tenants::ByTenant;
use bench::trace::{self, FORMATS, ReadReport, Survey, Target, TenantSurvey, ZeroSize};
use clap::{Args, Subcommand};
use device::names;
use device::names::noun;
use serde_json::{Value, json};

use crate::files::Files;
use crate::output::{Common, Finding, name_of};
use crate::trace_flags::{TenantColumns, TraceFlags};

/// The `trace` commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what a trace contains: requests, objects, sizes, popularity.
    Info(InfoArguments),
    /// Convert a trace to another format.
    Convert(ConvertArguments),
    /// Generate a synthetic trace.
    #[command(subcommand)]
    Generate(super::trace_generate::Command),
    /// List the trace formats that can be read.
    Formats(FormatsArguments),
}

/// The command line of `trace info`.
#[derive(Debug, Args)]
pub struct InfoArguments {
    /// Trace files, block traces merged by time, others read one after the other; - is standard input
    #[arg(required = true, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    #[command(flatten)]
    tenants: TenantColumns,
    #[command(flatten)]
    reading: TraceFlags,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The command line of `trace convert`.
#[derive(Debug, Args)]
pub struct ConvertArguments {
    /// Trace files, block traces merged by time, others read one after the other; - is standard input
    #[arg(value_name = "IN", required = true)]
    inputs: Vec<PathBuf>,
    /// Output file, compressed if it ends in .gz, .zst or .xz
    #[arg(value_name = "OUT", required = true)]
    output: PathBuf,
    /// Format to write: plain, oracle-general, webcachesim, binary or parquet [default: by OUT's extension: .csv, .txt, .oracleGeneral,
    /// .tr, .fwt, .parquet]
    #[arg(long, value_name = "FORMAT", value_parser = target)]
    to: Option<Target>,
    /// plain: add a time-to-live column
    #[arg(long)]
    ttl: bool,
    /// plain: add a tenant column
    #[arg(long)]
    tenant: bool,
    #[command(flatten)]
    tenants: TenantColumns,
    #[command(flatten)]
    reading: TraceFlags,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The command line of `trace formats`.
#[derive(Debug, Args)]
pub struct FormatsArguments {
    #[command(flatten)]
    pub(crate) common: Common,
}

impl Command {
    /// The common flags of a command that a program can call; `None` for the others.
    pub(crate) fn common_of_callable(&mut self) -> Option<&mut Common> {
        match self {
            Self::Info(arguments) => Some(&mut arguments.common),
            Self::Convert(arguments) => Some(&mut arguments.common),
            Self::Formats(arguments) => Some(&mut arguments.common),
            Self::Generate(_) => None,
        }
    }
}

/// Runs the command.
pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::Info(arguments) => {
            let mut config = arguments.reading.config(&arguments.trace);
            config["tenant_columns"] = json!(arguments.tenants.tenant_columns);
            arguments.common.conclude("trace info", &config, info(arguments))
        }
        Command::Convert(arguments) => {
            let mut config = arguments.reading.config(&arguments.inputs);
            config["output"] = name_of(&arguments.output).into();
            if arguments.keeps_zero_sizes() {
                config["zero_size"] = json!("keep");
            }
            config["tenant_columns"] = json!(arguments.tenants.tenant_columns);
            arguments.common.conclude("trace convert", &config, convert(arguments))
        }
        Command::Generate(command) => super::trace_generate::run(command),
        Command::Formats(arguments) => {
            arguments.common.conclude("trace formats", &Value::Null, Ok::<_, String>(formats()))
        }
    }
}

fn info(arguments: &InfoArguments) -> Result<Finding, String> {
    Files::reading(&arguments.trace).writing([arguments.common.result_file()]).check()?;
    let mut input = arguments.reading.input(arguments.trace.clone());
    input.options.tenants = arguments.tenants.selection();
    let mut trace = input.open().map_err(|error| error.to_string())?;
    let stop = arguments.common.stop()?;
    let surveyed = trace::survey(&mut *trace, &stop, arguments.common.quiet);
    let (survey, names, report) = surveyed.map_err(|error| error.to_string())?;
    // The program that feeds a pipe may have been interrupted too, so the end is not the trace's.
    let was_stopped = stop.is_set();
    if survey.requests() == 0 {
        return Err(format!("{}: {}", input.names(), without_requests(&report)));
    }
    let mut result = trace::survey_json(&survey);
    result["was_stopped"] = was_stopped.into();
    let tenants = trace::tenants(&survey, &names);
    result["tenants"] = trace::tenants_json(tenants.as_ref());
    result["reading"] = trace::report_json(&report);
    let tenants = tenants.as_ref().map(tenant_text).unwrap_or_default();
    let stopped =
        if was_stopped { "stopped early: the figures cover the rows read up to then\n" } else { "" };
    let message = survey_text(&survey, &report);
    let text = format!("{message}{tenants}{stopped}{}", reading_text(&report, false));
    Ok(Finding::new(result, text))
}

/// The error if nothing was counted.
fn without_requests(report: &ReadReport) -> String {
    match report.zero_sizes {
        0 => "the trace has no requests".to_owned(),
        zero => {
            format!("no request is counted: {zero} are for 0-byte objects (--zero-size keep counts them)")
        }
    }
}

fn survey_text(survey: &Survey, report: &ReadReport) -> String {
    let ratio = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"));
    let bytes = |count: u64| format!("{count} {}", noun(count, "byte"));
    let (smallest, largest) = survey.size_range_bytes.unwrap_or_default();
    let span = match report.has_time {
        true => format!("{} s", survey.span_ns() as f64 / 1e9),
        false => "- (the trace has no timestamps)".to_owned(),
    };
    let columns = report.columns.iter().map(|columns| ("columns", columns.clone()));
    let lines = [
        (
            "requests",
            format!(
                "{} (GET {}, SET {}, DELETE {})",
                survey.requests(),
                survey.gets,
                survey.sets,
                survey.deletes
            ),
        ),
        ("objects", survey.objects().to_string()),
        ("footprint", bytes(survey.footprint_bytes)),
        ("requested", bytes(survey.requested_bytes)),
        (
            "object size",
            format!(
                "mean {:.0}, from {smallest} to {}",
                survey.mean_size_bytes().unwrap_or(0.0),
                bytes(largest)
            ),
        ),
        ("one-hit wonders", ratio(survey.one_hit_wonder_ratio())),
        ("compulsory misses", ratio(survey.compulsory_miss_ratio())),
        ("span", span),
        ("size changes", survey.size_changes.to_string()),
        ("Zipf exponent", ratio(survey.zipf_exponent())),
    ];
    let format = [("format", report.format.to_owned())];
    let all = format.into_iter().chain(columns).chain(lines);
    all.map(|(name, value)| format!("{name:18} {value}\n")).collect()
}

/// Tenants shown.
const TENANTS_IN_TEXT: usize = 10;

/// The tenants with the most requests.
fn tenant_text(tenants: &ByTenant<TenantSurvey>) -> String {
    let mut text = format!("{:18} {}\n", "tenants", tenants.named.len());
    let mut add_line = |name: &str, it: &TenantSurvey| {
        let name: String = name.chars().map(|it| if it.is_control() { '?' } else { it }).collect();
        let _ = writeln!(
            text,
            "  {name:40} {} {} for {} {}, {} {} of {} {}",
            it.requests(),
            noun(it.requests(), "request"),
            it.requested_bytes,
            noun(it.requested_bytes, "byte"),
            it.objects,
            noun(it.objects, "object"),
            it.footprint_bytes,
            noun(it.footprint_bytes, "byte"),
        );
    };
    tenants.named.iter().take(TENANTS_IN_TEXT).for_each(|(name, it)| add_line(name, it));
    let rest = [("(others)", tenants.others(TENANTS_IN_TEXT).1), ("(none)", tenants.without_tenant)];
    rest.iter().filter(|(_, it)| it.requests() > 0).for_each(|(name, it)| add_line(name, it));
    text
}

/// Problems in the trace; empty if there are none. `kept` says that rows were copied unchanged.
fn reading_text(report: &ReadReport, kept: bool) -> String {
    let backward = match kept {
        true => "went back and were kept",
        false => "went back and were replaced by the one before",
    };
    let mut text = String::new();
    for (count, word, what) in [
        (report.bad_rows, "malformed row", "were skipped"),
        (report.zero_sizes, "access", "were to 0-byte objects (see --zero-size)"),
        (report.backward_times, "timestamp", backward),
    ] {
        if count > 0 {
            let _ = writeln!(text, "note: {}", trace::count_text(count, word, what));
        }
    }
    for message in &report.messages {
        let _ = writeln!(text, "  {message}");
    }
    for note in report.remarks() {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

impl ConvertArguments {
    /// A binary trace keeps rows of 0 bytes unless `--zero-size` is given: its readers decide about them.
    fn keeps_zero_sizes(&self) -> bool {
        target_for(self.to, &self.output) == Ok(Target::Binary) && self.reading.zero_size.is_none()
    }
}

/// The format of `output`: that of `--to`, otherwise by the ending of its name.
pub fn target_for(to: Option<Target>, output: &Path) -> Result<Target, String> {
    to.or_else(|| Target::of_name(output)).ok_or_else(|| {
        format!(
            "{}: no format that can be written has this ending; name it .csv, .oracleGeneral, .tr, .fwt or .parquet, or choose a format with \
             --to ({})",
            output.display(),
            Target::NAMES.join(", ")
        )
    })
}

fn convert(arguments: &ConvertArguments) -> Result<Finding, String> {
    let outputs = [Some(arguments.output.as_path()), arguments.common.result_file()];
    // The writer checks whether the output can be created.
    Files::reading(&arguments.inputs).writing(outputs).check_distinct()?;
    arguments.common.check_result_file()?;
    let mut input = arguments.reading.input(arguments.inputs.clone());
    input.options.tenants = arguments.tenants.selection();
    let target = match target_for(arguments.to, &arguments.output)? {
        Target::Plain { .. } => Target::Plain { ttl: arguments.ttl, tenant: arguments.tenant },
        _ if arguments.ttl => return Err("--ttl: only --to plain has a time-to-live column".to_owned()),
        Target::Binary if arguments.tenant => {
            return Err("--tenant: --to binary always keeps tenants".to_owned());
        }
        _ if arguments.tenant => return Err("--tenant: only --to plain has a tenant column".to_owned()),
        other => other,
    };
    if arguments.keeps_zero_sizes() {
        input.options.zero_size = ZeroSize::Keep;
    }
    let to_text = |error: trace::Error| error.to_string();
    let stop = arguments.common.stop()?;
    let quiet = arguments.common.quiet;
    let (written, report) = if target == Target::Binary {
        trace::copy(&input, &arguments.output, &stop, quiet).map_err(to_text)?
    } else {
        let mut from = input.open().map_err(|error| error.to_string())?;
        trace::write(from.as_mut(), None, &arguments.output, target, &stop, quiet).map_err(to_text)?
    };
    let mut text = written_message(&arguments.output, written.accesses);
    for loss in trace::losses(&written) {
        let _ = writeln!(text, "note: {loss}");
    }
    text += &reading_text(&report, target == Target::Binary);
    let result = json!({
        "output": name_of(&arguments.output),
        "written": trace::written_json(&written),
        "reading": trace::report_json(&report),
    });
    Ok(Finding::new(result, text))
}

/// The message about a written trace.
pub fn written_message(path: &Path, accesses: u64) -> String {
    format!("{}: {accesses} {}\n", path.display(), noun(accesses, "access"))
}

fn formats() -> Finding {
    let text = FORMATS.iter().map(|format| {
        let note = if format.is_detectable() { "" } else { "; not detected, needs --format" };
        format!("{:18} {}{note}\n", format.name, format.about)
    });
    let each = |format: &&trace::Format| {
        json!({
            "name": format.name,
            "about": format.about,
            "page_bytes": format.page_bytes(),
            "detectable": format.is_detectable(),
        })
    };
    let result = json!({ "formats": FORMATS.iter().map(each).collect::<Vec<_>>() });
    Finding::new(result, text.collect())
}

/// Parses the name of a format to write.
pub fn target(text: &str) -> Result<Target, String> {
    Target::named(text).ok_or_else(|| {
        let hint = names::hint(text, Target::NAMES.into_iter());
        format!("unknown output format `{text}`: {hint}the formats are {}", Target::NAMES.join(", "))
    })
}
