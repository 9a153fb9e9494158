//! `flashwright serve`: a cache server that speaks memcached's text protocol.

mod settings;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cache::config::LogOptions;
use cache::config::regions::{OrderConfig, Reinsertion, RipqConfig};
use cache::policy::eviction::EvictionConfig;
use cache::{Builder, Cache, FlashConfig, RecoverAfter, SmallItems};
use clap::Args;
use device::Engine;
use device::file::OpenOptions;
use device::open::DeviceSpec;
use serde_json::json;
use server::protocol::AllowedCommands;
use server::{Counter, Credentials, Options, Server, Tenant, Tenants, Tls};

use crate::output::{Common, Finding};
use crate::{metrics, service_manager, signals};

pub use settings::Settings;

/// Time limit of each step of closing. A service manager kills a server that takes much longer.
const CLOSE_LIMIT: Duration = Duration::from_secs(60);

/// The command line of `serve`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Settings in TOML, with the names of the flags as keys; a flag takes precedence
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    common: Common,
}

/// Runs `serve`.
pub fn run(arguments: Arguments) -> ExitCode {
    let Arguments { settings, common, .. } = arguments;
    let listen: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    let recorded = json!({ "flash": settings.flash, "dram": settings.dram, "listen": listen });
    common.warn_of_unused_seed("serve");
    common.conclude("serve", &recorded, serve(&settings, &common))
}

/// Serves until a signal comes. Reports the requests until then.
fn serve(settings: &Settings, common: &Common) -> Result<Finding, String> {
    let options = options(settings)?;
    // Before the cache is opened, because that creates the flash file.
    options.check().map_err(|error| error.to_string())?;
    let metrics_address = metrics::permitted(settings.metrics, settings.insecure, "--insecure")?;
    check_recovery(settings)?;
    // Before the cache is opened, so that no signal is lost.
    let mut signals = signals::of_end()?;
    let (cache, engine) = open(settings)?;
    let cache = Arc::new(cache);
    if let (Some(flash), Some(message)) = (&settings.flash, engine.and_then(Engine::warning)) {
        common.warn(format_args!("--flash {flash}: {message}"));
    }
    for remark in settings.tenant.iter().filter_map(Tenant::remark) {
        common.warn(format_args!("--tenant {remark}"));
    }
    let flash = cache.stats().flash;
    let is_recovered = flash.as_ref().is_some_and(|flash| flash.recovered);
    if let Some(reason) = flash.and_then(|flash| flash.loss) {
        common.warn(format_args!("the items of the last server are not used: {reason}"));
    }
    let server = Server::start(cache, options).map_err(|error| error.to_string())?;
    let endpoint = metrics_address.map(|address| metrics::start(address, server.figures())).transpose()?;
    for address in server.addresses() {
        common.say(&format_args!("serving memcached's text protocol on {address}"));
    }
    if let Some(endpoint) = &endpoint {
        common.say(&format_args!("metrics and a live page on http://{}/", endpoint.address()));
    }
    if is_recovered {
        common.say(&format_args!("{} items of the last server are on flash", server.recovered_items()));
    }
    service_manager::report_ready();
    signals.forever().next();
    service_manager::report_stopping();
    common.say(
        "closing: writing items in DRAM to flash; another signal exits immediately and loses the cache's content",
    );
    signals::exit_at_another(signals)?;
    let counts =
        Counter::ALL.iter().map(|counter| (counter.name().to_owned(), server.counter(*counter).into()));
    let counts: serde_json::Map<_, _> = counts.collect();
    drop(endpoint);
    let closed = server.close(CLOSE_LIMIT);
    let text = format!(
        "{} gets ({} hits), {} sets, {} connections\n",
        counts["cmd_get"], counts["get_hits"], counts["cmd_set"], counts["total_connections"]
    );
    let failures = closed.err().into_iter().map(|error| error.to_string()).collect();
    let result = json!({ "counters": counts, "flash_io": engine.map(Engine::name) });
    Ok(Finding { result, text, failures })
}

fn options(settings: &Settings) -> Result<Options, String> {
    let credentials = settings.auth_file.as_deref().map(Credentials::read).transpose();
    let names = Some(&settings.allow_commands).filter(|names| !names.is_empty());
    let allowed_commands = names.map(|names| AllowedCommands::new(names)).transpose();
    let defaults = Options::default();
    Ok(Options {
        listen: settings.listen.clone(),
        allow_remote: settings.insecure,
        tls: tls(settings)?,
        allowed_commands: allowed_commands.map_err(|error| format!("--allow-commands: {error}"))?,
        threads: settings.threads.map_or(defaults.threads, |number| number as usize),
        max_connections: settings.max_connections as usize,
        idle_timeout: settings.idle_timeout,
        client_timeout: settings.client_timeout,
        buffer_bytes: settings.buffers as usize,
        prefix_delimiter: settings.prefix_delimiter,
        tenants: settings.tenant.clone(),
        measure_latency: settings.metrics.is_some(),
        credentials: credentials.map_err(|error| format!("--auth-file: {error}"))?,
    })
}

/// TLS, if a certificate is given.
fn tls(settings: &Settings) -> Result<Option<Tls>, String> {
    let (certificate, key) = match (&settings.tls_certificate, &settings.tls_key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) if settings.tls_client_ca.is_none() => return Ok(None),
        _ => return Err("TLS needs both --tls-certificate and --tls-key".into()),
    };
    let tls = Tls::read(certificate, key, settings.tls_client_ca.as_deref());
    tls.map(Some).map_err(|error| format!("TLS: {error}"))
}

fn recover_after(settings: &Settings) -> RecoverAfter {
    match settings.recover_after.as_str() {
        "kill" => RecoverAfter::Kill,
        "power-loss" => RecoverAfter::PowerLoss,
        _ => RecoverAfter::CleanClose,
    }
}

/// Checks `recover-after`: only flash is recovered.
fn check_recovery(settings: &Settings) -> Result<(), String> {
    let name = &settings.recover_after;
    match recover_after(settings) {
        RecoverAfter::CleanClose => Ok(()),
        _ if settings.flash.is_none() => {
            Err(format!("--recover-after {name} without --flash: name the file or device"))
        }
        _ => Ok(()),
    }
}

/// Regions in the flash of a tenant, at least.
const LEAST_REGIONS: f64 = 16.0;

/// Opens the cache, with the items of the previous server if `recover-after` permits. Returns the engine of its flash, too.
fn open(settings: &Settings) -> Result<(Cache, Option<Engine>), String> {
    let eviction = EvictionConfig::new(settings.eviction);
    let mut builder = Cache::builder().dram_bytes(settings.dram).eviction(eviction);
    if let Some(bytes) = settings.max_item_size {
        // The limit is for the client's value; the server stores a header before it.
        let bytes = u32::try_from(bytes.saturating_add(server::ITEM_HEADER_BYTES as u64))
            .map_err(|_| format!("--max-item-size: {bytes} bytes are more than 4 GiB"))?;
        builder = builder.max_item_bytes(bytes);
    }
    let tenants = Tenants::new(&settings.tenant).map_err(|error| format!("--tenant: {error}"))?;
    if !settings.tenant.is_empty() {
        builder = builder.pools(tenants.pools());
    }
    let mut engine = None;
    if let Some(flash) = &settings.flash {
        (builder, engine) = with_flash(builder, settings, &tenants, flash)?;
    } else if !tenants.flash_partitions().is_empty() {
        return Err("--tenant: a share of flash without --flash: name the file or device".into());
    } else if settings.flash_size.is_some() {
        return Err("--flash-size without --flash: name the file or device".into());
    }
    let cache = builder.open().map_err(|error| match &settings.flash {
        Some(flash) => format!("{flash}: {error}"),
        None => error.to_string(),
    })?;
    Ok((cache, engine))
}

fn with_flash(
    mut builder: Builder,
    settings: &Settings,
    tenants: &Tenants,
    name: &str,
) -> Result<(Builder, Option<Engine>), String> {
    let spec: DeviceSpec = name.parse().map_err(|error| format!("--flash: {error}"))?;
    let options = OpenOptions {
        size_bytes: settings.flash_size,
        create: settings.flash_size.is_some(),
        placement: settings.placement,
        ..OpenOptions::default()
    };
    let device = spec.open(&options).map_err(|error| format!("--flash: {error}"))?;
    let engine = device.engine();
    let mut flash = FlashConfig::new(device);
    for (prefix, share) in tenants.flash_partitions() {
        flash.regions = flash.regions.cut_into((LEAST_REGIONS / share) as u64);
        builder = builder.flash_partition(prefix, share);
    }
    flash.recover_after = recover_after(settings);
    flash.small_items = match settings.small_items.as_deref() {
        Some("sets") => Some(SmallItems::Sets),
        Some(_) => Some(SmallItems::Log(LogOptions::default())),
        None => None,
    };
    let regions = &mut flash.regions;
    match settings.region_policy.as_str() {
        "lru" => regions.order = OrderConfig::Lru,
        "mcdipper-lru" => regions.reinsertion = Reinsertion::Hits { at_least: 1 },
        "blockcache" => regions.order = OrderConfig::SegmentedLru { segments: 4 },
        "ripq" => regions.order = OrderConfig::Ripq(RipqConfig::new(settings.ripq_caching)),
        _ => regions.order = OrderConfig::Fifo,
    }
    Ok((builder.flash_config(flash).small_item_share(settings.small_item_share), engine))
}
