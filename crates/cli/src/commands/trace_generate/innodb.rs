//! `flashwright trace generate innodb`: requests of MySQL servers to a block device.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::bar::{Bar, Unit};
use bench::block::source::InnodbConfig;
use bench::block::{Source, record};
use bench::trace::Target;
use clap::Args;
use device::names::noun;
use serde_json::{Value, json};

use crate::files::Files;
use crate::output::{Common, Finding, name_of};
use crate::quantity;

/// The command line of `trace generate innodb`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Number of server operations; about seven in ten reach the disk as a request
    #[arg(long, value_name = "N", default_value_t = 5_000_000, value_parser = quantity::count::<u64>)]
    operations: u64,
    /// Output file, compressed if it ends in .gz, .zst or .xz
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let workload = InnodbConfig::default();
    arguments.common.conclude(
        "trace generate innodb",
        &config(arguments, &workload),
        write(arguments, workload),
    )
}

fn write(arguments: &Arguments, workload: InnodbConfig) -> Result<Finding, String> {
    let Arguments { operations, output, common } = arguments;
    Files::default().writing([Some(output.as_path()), common.result_file()]).check_distinct()?;
    common.check_result_file()?;
    if Target::of_name(output) != Some(Target::PLAIN) {
        let name = output.display();
        return Err(format!(
            "--output {name}: requests to a block device are written as CSV, and the name says otherwise"
        ));
    }
    let stop = common.stop()?;
    let mut source = Source::innodb(workload, common.seed(), *operations, 0);
    let bar = Bar::new(Unit::Custom, common.quiet);
    let advance = |requests: u64| bar.set(requests, requests, format!("{requests} requests"));
    let written = record(&mut source, output, &stop, &advance);
    bar.finish();
    let written = written.map_err(|error| error.to_string())?;
    let text = format!(
        "{}: {} {} ({} {}, {} {})\n",
        output.display(),
        written.requests,
        noun(written.requests, "request"),
        written.reads,
        noun(written.reads, "read"),
        written.writes,
        noun(written.writes, "write"),
    );
    let result = json!({ "output": name_of(output), "written": record::json(&written) });
    Ok(Finding::new(result, text))
}

fn config(arguments: &Arguments, workload: &InnodbConfig) -> Value {
    json!({
        "operations": arguments.operations,
        "instances": workload.instances,
        "volume_bytes": workload.volume_bytes,
        "fill": workload.fill,
        "tables": workload.tables,
        "page_bytes": workload.page_bytes,
        "extent_pages": workload.extent_pages,
        "page_skew": workload.page_skew,
        "instance_skew": workload.instance_skew,
        "table_skew": workload.table_skew,
        "buffer_pool_bytes": workload.buffer_pool_bytes,
        "update_share": workload.update_share,
        "backup_pages_per_operation": workload.backup_pages_per_operation,
        "backup_request_pages": workload.backup_request_pages,
        "operations_per_drift": workload.operations_per_drift,
        "operations_per_flush": workload.operations_per_flush,
        "operations_per_second": workload.operations_per_second,
    })
}
