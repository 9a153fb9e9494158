//! The settings of `serve`: the same names as flags and as keys of a TOML file. A flag takes precedence.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cache::flash::region::Caching;
use cache::policy::eviction::Kind;
use clap::Args;
use device::names::hint;
use serde::de::{Deserialize, Deserializer, Error};
use server::{Address, Tenant};

use crate::quantity;

/// Heading of the flags for the cache.
const CACHE: &str = "Cache";
/// Heading of the flags for connections.
const CONNECTIONS: &str = "Connections";

macro_rules! settings {
    ($($(#[$attribute:meta])* $name:ident: $type:ty = $default:expr,)+) => {
        /// The settings as given. A setting that was not given is `None`, empty or false.
        #[derive(Debug, Default, Args, serde::Deserialize)]
        #[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
        pub struct Settings { $($(#[$attribute])* pub $name: $type,)+ }

        /// The keys of a file.
        const KEYS: &[&str] = &[$(stringify!($name),)+];

        impl Settings {
            /// These settings, completed by others.
            fn or(self, other: Self) -> Self {
                Self { $($name: if self.$name == <$type>::default() { other.$name } else { self.$name },)+ }
            }

            /// Defaults for the settings that were not given.
            fn or_defaults(mut self) -> Self {
                $(if self.$name == <$type>::default() { self.$name = $default; })+
                self
            }
        }
    };
}

settings! {
    /// Flash: a file, a block device, an NVMe generic device, or several as stripe:PATH,PATH; without it, DRAM alone
    #[arg(long, help_heading = CACHE, value_name = "PATH")]
    flash: Option<String> = None,
    /// Size of the flash; makes a file that is not there [default: all of it]
    #[arg(long, help_heading = CACHE, value_name = "SIZE", value_parser = quantity::bytes)]
    #[serde(deserialize_with = "size")]
    flash_size: Option<u64> = None,
    /// Memory for items in DRAM [default: 64MiB]
    #[arg(long, help_heading = CACHE, value_name = "SIZE", value_parser = quantity::bytes)]
    #[serde(deserialize_with = "size")]
    dram: Option<u64> = Some(64 << 20),
    /// Largest value [default: 1MiB, or less if --dram is below 64MiB]
    #[arg(long, help_heading = CACHE, value_name = "SIZE", value_parser = quantity::bytes)]
    #[serde(deserialize_with = "size")]
    max_item_size: Option<u64> = None,
    /// Share of flash for items of up to 2 KiB, 0 to 1 or a percentage [default: 50%]
    #[arg(long, help_heading = CACHE, value_name = "SHARE", value_parser = quantity::part)]
    #[serde(deserialize_with = "share")]
    small_item_share: Option<f64> = Some(0.5),
    /// Where items of up to 2 KiB are stored on flash: sets or log [default: log, or sets if the flash has them or is small]
    #[arg(long, help_heading = CACHE, value_name = "ENGINE", value_parser = ["sets", "log"])]
    small_items: Option<String> = None,
    /// After which ends the next server finds the items on flash: close, kill or power-loss [default: close]
    #[arg(long, help_heading = CACHE, value_name = "END", value_parser = RECOVER_AFTER)]
    recover_after: Option<String> = Some("close".into()),
    /// Which items leave DRAM first: fifo, lru, s3fifo, sieve, wtinylfu, … [default: s3fifo]
    #[arg(long, help_heading = CACHE, value_name = "POLICY")]
    #[serde(deserialize_with = "parsed")]
    eviction: Option<Kind> = Some(Kind::S3Fifo),
    /// Which items larger than 2 KiB leave flash first: mcdipper, mcdipper-lru, lru, blockcache or ripq [default: mcdipper]
    #[arg(long, help_heading = CACHE, value_name = "POLICY", value_parser = REGION_POLICIES)]
    region_policy: Option<String> = Some("mcdipper".into()),
    /// The policy that ripq approximates: lru, slru-K, gdsf, lfu-da [default: slru-4]
    #[arg(long, help_heading = CACHE, value_name = "POLICY")]
    #[serde(deserialize_with = "parsed")]
    ripq_caching: Option<Caching> = Some(Caching::Slru { segments: 4 }),
    /// Give each kind of data a placement handle of the drive (needs NVMe FDP or streams)
    #[arg(long, help_heading = CACHE)]
    placement: bool = false,
    /// Address to listen on, ADDRESS:PORT or unix:PATH; may be repeated [default: 127.0.0.1:11211]
    #[arg(long, help_heading = CONNECTIONS, value_name = "ADDRESS")]
    #[serde(deserialize_with = "addresses")]
    listen: Vec<Address> = vec![Address::Tcp(([127, 0, 0, 1], 11211).into())],
    /// Certificate in PEM, with its chain: encrypts connections by TCP
    #[arg(long, help_heading = CONNECTIONS, value_name = "FILE")]
    tls_certificate: Option<PathBuf> = None,
    /// Private key of the certificate, in PEM
    #[arg(long, help_heading = CONNECTIONS, value_name = "FILE")]
    tls_key: Option<PathBuf> = None,
    /// Authorities in PEM: clients must present a certificate signed by one of them
    #[arg(long, help_heading = CONNECTIONS, value_name = "FILE")]
    tls_client_ca: Option<PathBuf> = None,
    /// Permit --listen on addresses that other machines can reach without TLS, and --metrics on such addresses
    #[arg(long, help_heading = CONNECTIONS)]
    insecure: bool = false,
    /// File with a line USER:PASSWORD for each user; clients authenticate by a first `set` of "USER PASSWORD"
    #[arg(long, help_heading = CONNECTIONS, value_name = "FILE")]
    auth_file: Option<PathBuf> = None,
    /// Commands that clients may use, separated by commas, as get,set,delete [default: all]
    #[arg(long, help_heading = CONNECTIONS, value_name = "NAMES", value_delimiter = ',')]
    allow_commands: Vec<String> = Vec::new(),
    /// Count requests by the part of the key before this character, for `stats detail` and --metrics
    #[arg(long, help_heading = CONNECTIONS, value_name = "CHARACTER", value_parser = delimiter)]
    #[serde(deserialize_with = "delimiter_key")]
    prefix_delimiter: Option<u8> = None,
    /// Tenant: keys with PREFIX have own figures, and SHARE% of DRAM if given; may be repeated
    #[arg(long, help_heading = CACHE, value_name = "NAME=PREFIX[:SHARE%]")]
    #[serde(deserialize_with = "tenants")]
    tenant: Vec<Tenant> = Vec::new(),
    /// Serve /metrics for Prometheus, /health and a live page by HTTP on this address, as 127.0.0.1:9150
    #[arg(long, help_heading = CONNECTIONS, value_name = "ADDRESS")]
    #[serde(deserialize_with = "parsed")]
    metrics: Option<SocketAddr> = None,
    /// Threads that serve connections [default: one per processor]
    #[arg(long, help_heading = CONNECTIONS, value_name = "N", value_parser = quantity::count::<u64>)]
    threads: Option<u64> = None,
    /// Most connections at a time [default: 1024]
    #[arg(long, help_heading = CONNECTIONS, value_name = "N", value_parser = quantity::count::<u64>)]
    max_connections: Option<u64> = Some(1024),
    /// Close connections that are idle for this time [default: never]
    #[arg(long, help_heading = CONNECTIONS, value_name = "TIME", value_parser = quantity::duration)]
    #[serde(deserialize_with = "time")]
    idle_timeout: Option<Duration> = None,
    /// Close connections that stop for this time in the middle of a request or a reply [default: 60s]
    #[arg(long, help_heading = CONNECTIONS, value_name = "TIME", value_parser = quantity::duration)]
    #[serde(deserialize_with = "time")]
    client_timeout: Option<Duration> = Some(Duration::from_secs(60)),
    /// Memory for requests over 16 KiB while they arrive, all connections together [default: 64MiB]
    #[arg(long, help_heading = CONNECTIONS, value_name = "SIZE", value_parser = quantity::bytes)]
    #[serde(deserialize_with = "size")]
    buffers: Option<u64> = Some(64 << 20),
}

/// Ends of a server after which the next one can have its items.
const RECOVER_AFTER: [&str; 3] = ["close", "kill", "power-loss"];
/// Names of the policies for regions.
const REGION_POLICIES: [&str; 5] = ["mcdipper", "mcdipper-lru", "lru", "blockcache", "ripq"];

impl Settings {
    /// These settings, completed by those of a file and by the defaults.
    ///
    /// # Errors
    /// If the file cannot be read, or a key or value of it is wrong: with file, line and reason.
    pub fn with_file(self, file: Option<&Path>) -> Result<Self, String> {
        let of_file = file.map(read).transpose()?.unwrap_or_default();
        Ok(self.or(of_file).or_defaults())
    }
}

fn read(path: &Path) -> Result<Settings, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    parse(&text).map_err(|error| format!("{name}: {error}"))
}

fn parse(text: &str) -> Result<Settings, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| one_line(&error, text))?;
    let known: Vec<String> = KEYS.iter().map(|key| key.replace('_', "-")).collect();
    if let Some(key) = table.keys().find(|key| !known.contains(key)) {
        let hint = hint(key, known.iter().map(String::as_str));
        return Err(format!("unknown key `{key}`; {hint}valid keys: {}", known.join(", ")));
    }
    let settings: Settings = toml::from_str(text).map_err(|error| one_line(&error, text))?;
    for (key, value, valid) in [
        ("small-items", &settings.small_items, &["sets", "log"][..]),
        ("region-policy", &settings.region_policy, &REGION_POLICIES),
        ("recover-after", &settings.recover_after, &RECOVER_AFTER),
    ] {
        if let Some(value) = value.as_ref().filter(|value| !valid.contains(&value.as_str())) {
            let hint = hint(value, valid.iter().copied());
            return Err(format!("{key} = {value:?}: {hint}valid values: {}", valid.join(", ")));
        }
    }
    Ok(settings)
}

/// An error with its line.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map(|before| format!("line {}: ", before.lines().count().max(1)));
    format!("{}{}", line.unwrap_or_default(), error.message())
}

/// A number, or text with a unit.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Quantity {
    Whole(u64),
    Fraction(f64),
    Text(String),
}

impl Quantity {
    fn text(self) -> String {
        match self {
            Self::Whole(number) => number.to_string(),
            Self::Fraction(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

fn quantity_of<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    parse(&Quantity::deserialize(from)?.text()).map(Some).map_err(D::Error::custom)
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    quantity_of(from, quantity::bytes)
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    quantity_of(from, quantity::part)
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    quantity_of(from, quantity::duration)
}

fn parsed<'de, D: Deserializer<'de>, T>(from: D) -> Result<Option<T>, D::Error>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

/// The delimiter of key prefixes: one byte that a key may contain.
fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii_graphic() => Ok(*byte),
        _ => Err(format!("{text:?} is not one ASCII character, like `:`")),
    }
}

fn delimiter_key<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u8>, D::Error> {
    delimiter(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

/// One address or a list of them.
fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Address>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    let texts = match OneOrMany::deserialize(from)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    };
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

fn tenants<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Tenant>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_the_names_and_units_of_the_flags() {
        let text = "flash = \"/dev/nvme0n1\"\nflash-size = \"1.5GiB\"\ndram = 67108864\nlisten = [\"127.0.0.1:1\", \"unix:/a\"]\n\
                    small-item-share = 0.25\nidle-timeout = \"5m\"\nclient-timeout = 3\neviction = \"lru\"\nripq-caching = \"gdsf\"\n\
                    region-policy = \"ripq\"\ninsecure = true\n";
        let settings = parse(text).unwrap();
        assert_eq!((settings.flash_size, settings.dram), (Some(3 << 29), Some(64 << 20)));
        assert_eq!(settings.listen.len(), 2);
        assert_eq!(settings.small_item_share, Some(0.25));
        let times = (settings.idle_timeout, settings.client_timeout);
        assert_eq!(times, (Some(Duration::from_secs(300)), Some(Duration::from_secs(3))));
        assert!(settings.insecure && settings.eviction == Some(Kind::Lru));
    }

    #[test]
    fn flag_takes_precedence_over_the_file_and_the_file_over_the_default() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("serve.toml");
        std::fs::write(&file, "dram = \"8MiB\"\nmax-connections = 5\n").unwrap();
        let flags = Settings { dram: Some(4 << 20), ..Settings::default() };
        let settings = flags.with_file(Some(&file)).unwrap();
        assert_eq!((settings.dram, settings.max_connections), (Some(4 << 20), Some(5)));
        assert_eq!(settings.small_item_share, Some(0.5));
    }

    #[test]
    fn wrong_key_or_value_is_reported_with_its_place_and_the_nearest_name() {
        for (text, words) in [
            ("drum = 5", "unknown key `drum`; did you mean `dram`? "),
            ("\ndram = \"x\"", "line 2: \"x\" is not a size"),
            ("listen = \"localhost\"", "\"localhost\" is not an address"),
            ("region-policy = \"ripk\"", "region-policy = \"ripk\": did you mean `ripq`? "),
            ("recover-after = \"crash\"", "valid values: close, kill, power-loss"),
            ("eviction = \"lrux\"", "lru"),
            ("dram = [", "line 1: "),
            ("small-item-share = 2", "2"),
            ("tenant = [\"a\"]", "line 1: \"a\" is not a tenant: write NAME=PREFIX or NAME=PREFIX:SHARE%"),
            ("prefix-delimiter = \"::\"", "\"::\" is not one ASCII character"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
