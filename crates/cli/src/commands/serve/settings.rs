//! The settings of `serve`: the same names as flags and as keys of a TOML file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cache::config::regions::Caching;
use cache::policy::eviction::Kind;
use clap::Args;
use server::{Address, Tenant};

use crate::quantity;

/// Heading of the flags for the cache.
const CACHE: &str = "Cache";
/// Heading of the flags for connections.
const CONNECTIONS: &str = "Connections";
/// Values of `recover-after`: the events after which the next server recovers the items on flash.
const RECOVER_AFTER: [&str; 3] = ["close", "kill", "power-loss"];
/// Names of the policies for regions.
const REGION_POLICIES: [&str; 5] = ["mcdipper", "mcdipper-lru", "lru", "blockcache", "ripq"];

/// The settings of `serve`: flags, or keys of a TOML file.
#[derive(Debug, Args)]
pub struct Settings {
    /// Flash: a file, a block device, an NVMe generic device, or several as stripe:PATH,PATH; without it, DRAM alone
    #[arg(long, help_heading = CACHE, value_name = "PATH")]
    pub flash: Option<String>,
    /// Size of the flash; a file that does not exist is created with it [default: the whole file or device]
    #[arg(long, help_heading = CACHE, value_name = "SIZE", value_parser = quantity::bytes)]
    pub flash_size: Option<u64>,
    /// Memory for items in DRAM
    #[arg(long, help_heading = CACHE, value_name = "SIZE", value_parser = quantity::bytes, default_value = "64MiB")]
    pub dram: u64,
    /// Largest value [default: 1MiB, or less if --dram is below 64MiB]
    #[arg(long, help_heading = CACHE, value_name = "SIZE", value_parser = quantity::bytes)]
    pub max_item_size: Option<u64>,
    /// Share of flash for items of up to 2 KiB, 0 to 1 or a percentage
    #[arg(long, help_heading = CACHE, value_name = "SHARE", value_parser = quantity::part, default_value = "50%")]
    pub small_item_share: f64,
    /// Where items of up to 2 KiB are stored on flash: sets or log [default: log, or sets if the flash has them or is small]
    #[arg(long, help_heading = CACHE, value_name = "ENGINE", value_parser = ["sets", "log"])]
    pub small_items: Option<String>,
    /// Event after which the next server recovers the items on flash: close, kill or power-loss
    #[arg(long, help_heading = CACHE, value_name = "END", value_parser = RECOVER_AFTER, default_value = "close")]
    pub recover_after: String,
    /// Eviction policy of DRAM: fifo, lru, s3fifo, sieve, wtinylfu, …
    #[arg(long, help_heading = CACHE, value_name = "POLICY", default_value = "s3fifo")]
    pub eviction: Kind,
    /// Eviction policy of flash for items larger than 2 KiB: mcdipper, mcdipper-lru, lru, blockcache or ripq
    #[arg(long, help_heading = CACHE, value_name = "POLICY", value_parser = REGION_POLICIES, default_value = "mcdipper")]
    pub region_policy: String,
    /// The policy that ripq approximates: lru, slru-K, gdsf, lfu-da
    #[arg(long, help_heading = CACHE, value_name = "POLICY", default_value = "slru-4")]
    pub ripq_caching: Caching,
    /// Give each kind of data a placement handle of the drive (needs NVMe FDP or streams)
    #[arg(long, help_heading = CACHE)]
    pub placement: bool,
    /// Address to listen on, ADDRESS:PORT or unix:PATH; may be repeated
    #[arg(long, help_heading = CONNECTIONS, value_name = "ADDRESS", default_value = "127.0.0.1:11211")]
    pub listen: Vec<Address>,
    /// Certificate in PEM, with its chain: encrypts connections by TCP
    #[arg(long, help_heading = CONNECTIONS, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, help_heading = CONNECTIONS, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Authorities in PEM: clients must present a certificate signed by one of them
    #[arg(long, help_heading = CONNECTIONS, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Permit --listen on addresses that other machines can reach without TLS, and --metrics on such addresses
    #[arg(long, help_heading = CONNECTIONS)]
    pub insecure: bool,
    /// File with a line USER:PASSWORD for each user; clients authenticate by a first `set` of "USER PASSWORD"
    #[arg(long, help_heading = CONNECTIONS, value_name = "FILE")]
    pub auth_file: Option<PathBuf>,
    /// Commands that clients may use, separated by commas, as get,set,delete [default: all]
    #[arg(long, help_heading = CONNECTIONS, value_name = "NAMES", value_delimiter = ',')]
    pub allow_commands: Vec<String>,
    /// Count requests by the part of the key before this character, for `stats detail` and --metrics
    #[arg(long, help_heading = CONNECTIONS, value_name = "CHARACTER", value_parser = delimiter)]
    pub prefix_delimiter: Option<u8>,
    /// Tenant: keys with PREFIX have figures of their own, and DRAM% and FLASH% of the cache if given; may be repeated
    #[arg(long, help_heading = CACHE, value_name = "NAME=PREFIX[:[DRAM%][/FLASH%]]")]
    pub tenant: Vec<Tenant>,
    /// Serve /metrics for Prometheus, /health and a live page by HTTP on this address, as 127.0.0.1:9150
    #[arg(long, help_heading = CONNECTIONS, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Threads that serve connections [default: one per processor]
    #[arg(long, help_heading = CONNECTIONS, value_name = "N", value_parser = quantity::count::<u64>)]
    pub threads: Option<u64>,
    /// Maximum number of concurrent connections
    #[arg(long, help_heading = CONNECTIONS, value_name = "N", value_parser = quantity::count::<u64>, default_value = "1024")]
    pub max_connections: u64,
    /// Close connections that are idle for this time [default: never]
    #[arg(long, help_heading = CONNECTIONS, value_name = "TIME", value_parser = quantity::duration)]
    pub idle_timeout: Option<Duration>,
    /// Close connections that stop for this time in the middle of a request or a reply
    #[arg(long, help_heading = CONNECTIONS, value_name = "TIME", value_parser = quantity::duration, default_value = "60s")]
    pub client_timeout: Duration,
    /// Memory for requests over 16 KiB while they arrive, all connections together
    #[arg(long, help_heading = CONNECTIONS, value_name = "SIZE", value_parser = quantity::bytes, default_value = "64MiB")]
    pub buffers: u64,
}

/// The delimiter of key prefixes: one byte that a key may contain.
fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii_graphic() => Ok(*byte),
        _ => Err(format!("{text:?} is not one ASCII character, like `:`")),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::{Cli, Command, flags_file, one_line};

    /// The settings of a file with this text, and of typed flags.
    fn settings(text: &str, typed: &[&str]) -> Result<Settings, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("serve.toml");
        std::fs::write(&file, text).unwrap();
        let message =
            ["flashwright", "serve", file.to_str().unwrap()].into_iter().chain(typed.iter().copied());
        let expanded = flags_file::expand(Cli::command(), message.map(Into::into).collect())?;
        let cli = Cli::try_parse_from(expanded).map_err(|error| one_line(&error.to_string()))?;
        let Command::Serve(arguments) = cli.command else { panic!("another command") };
        Ok(arguments.settings)
    }

    #[test]
    fn file_has_the_names_and_units_of_the_flags() {
        let text = "flash = \"/dev/nvme0n1\"\nflash-size = \"1.5GiB\"\ndram = 67108864\nlisten = [\"127.0.0.1:1\", \"unix:/a\"]\n\
                    small-item-share = 0.25\nidle-timeout = \"5m\"\nclient-timeout = 3\neviction = \"lru\"\nripq-caching = \"gdsf\"\n\
                    region-policy = \"ripq\"\ninsecure = true\nallow-commands = [\"get\", \"set\"]\n\
                    tenant = [\"a=b=:10%\", \"c=d\"]\nmetrics = \"[::1]:9150\"\nrecover-after = \"kill\"\n";
        let settings = settings(text, &[]).unwrap();
        assert_eq!((settings.flash_size, settings.dram), (Some(3 << 29), 64 << 20));
        assert_eq!((settings.listen.len(), settings.allow_commands.len()), (2, 2));
        let tenants: Vec<_> =
            settings.tenant.iter().map(|tenant| (tenant.prefix.as_str(), tenant.share)).collect();
        assert_eq!(tenants, [("b=", Some(0.1)), ("d", None)]);
        assert_eq!(settings.metrics.unwrap().to_string(), "[::1]:9150");
        assert_eq!(settings.recover_after, "kill");
        assert_eq!(settings.small_item_share, 0.25);
        let times = (settings.idle_timeout, settings.client_timeout);
        assert_eq!(times, (Some(Duration::from_secs(300)), Duration::from_secs(3)));
        assert!(settings.insecure && settings.eviction == Kind::Lru);
    }

    #[test]
    fn file_of_the_package_is_valid() {
        let settings = settings(include_str!("../../../../../packages/etc/serve.d/main.toml"), &[]).unwrap();
        assert_eq!((settings.flash_size, settings.dram), (Some(1 << 30), 64 << 20));
    }

    #[test]
    fn flag_takes_precedence_over_the_file_and_the_file_over_the_default() {
        let settings = settings("dram = \"8MiB\"\nmax-connections = 5\n", &["--dram", "4MiB"]).unwrap();
        assert_eq!((settings.dram, settings.max_connections), (4 << 20, 5));
        assert_eq!(settings.small_item_share, 0.5);
        assert_eq!(settings.listen, [Address::Tcp(([127, 0, 0, 1], 11211).into())]);
    }

    #[test]
    fn wrong_key_or_value_is_reported_with_file_line_and_nearest_name() {
        for (text, message) in [
            ("drum = 5", "serve.toml: line 1: unknown key `drum`; did you mean `dram`? "),
            (
                "\ndram = \"x\"",
                "serve.toml: line 2: invalid value 'x' for '--dram <SIZE>': \"x\" is not a size",
            ),
            ("dram = true", "serve.toml: line 1: dram: must be text or a number, not a boolean"),
            ("insecure = 1", "serve.toml: line 1: insecure: must be true or false"),
            ("listen = \"localhost\"", "\"localhost\" is not an address"),
            ("region-policy = \"ripk\"", "a similar value exists: 'ripq'"),
            ("recover-after = \"crash\"", "[possible values: close, kill, power-loss]"),
            ("eviction = \"lrux\"", "did you mean `lru`?"),
            ("dram = 5\ndram = [", "serve.toml: line 2: "),
            ("small-item-share = 2", "invalid value '2' for '--small-item-share <SHARE>'"),
            ("tenant = [\"a\"]", "\"a\" is not a tenant: write NAME=PREFIX, NAME=PREFIX:DRAM%, "),
            ("prefix-delimiter = \"::\"", "\"::\" is not one ASCII character"),
        ] {
            let error = settings(text, &[]).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
