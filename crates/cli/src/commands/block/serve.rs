//! `flashwright block serve`.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;

use bench::report::text::noun;
use block::export::{
    Admission, ByteExport, ClientExport, DeviceExport, Export, Meter, Recorded, Recording, VolumeExport,
};
use block::fuse::{self, Mounted, Unmounted};
use block::nbd::{Address, Offered, Options, Server};
use block::ublk::{self, Disk, Driver, Left};
use block::volume::{Recovery, Superblock, Volume};
use clap::Args;
use device::SystemClock;
use serde_json::json;
use signal_hook::iterator::Signals;

use super::contents;
use super::control::{self, Below, Cache, Service};
use super::descriptors;
use super::devices::{Access, Devices, NewFiles, OpenedVolume, Opening, Taking, file_bytes, spare};
use super::figures;
use super::health::{self, HealthWatcher};
use super::named::{files_of, is_memory};
use super::recording;
use super::requests;
use super::rules;
use super::sectors;
use crate::files::Files;
use crate::output::{Common, Finding, name_of, say_error};
use crate::signals;

/// Threads that a process is usually given leave some for others.
const MOST_CONNECTIONS: usize = 4096;

/// File names have at most 255 bytes.
const MOST_NAME_BYTES: usize = 200;

/// Heading of the access flags.
const ACCESS: &str = "Access (at least one of --ublk, --fuse, --socket, --listen)";

/// The command line of `block serve`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Flash device made by `block create`; without one, the disk is served uncached, for comparison
    #[arg(long, value_name = "PATH")]
    flash: Option<String>,
    /// Disk behind the cache
    #[arg(long, value_name = "PATH")]
    disk: String,
    /// Serve NBD on a Unix socket
    #[arg(long, help_heading = ACCESS, value_name = "PATH", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// Serve NBD on a TCP address
    #[arg(long, help_heading = ACCESS, value_name = "ADDRESS:PORT", value_parser = control::tcp_address)]
    listen: Option<SocketAddr>,
    /// Allow --listen on a non-loopback address: NBD has no passwords, everyone with network access can read and write
    #[arg(long, help_heading = ACCESS)]
    allow_remote: bool,
    /// Control socket, for status, set, flush and upgrade [default: the socket or directory with .control added, or a file
    /// in $XDG_RUNTIME_DIR]
    #[arg(long, help_heading = ACCESS, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Mount a FUSE file system here, whose one file is the disk
    #[arg(long, help_heading = ACCESS, value_name = "DIRECTORY")]
    fuse: Option<PathBuf>,
    /// Serve the block device /dev/ublkbNUMBER (needs root, Linux 6.5 and ublk_drv). If an earlier server of the same disk left it in use,
    /// it is taken over while its users wait
    #[arg(long, help_heading = ACCESS, value_name = "NUMBER")]
    ublk: Option<u32>,
    /// Record every request to FILE as CSV, for `block replay`, except those to the export NAME-uncached and of clients whose blocks are
    /// not cached; an existing recording is appended to
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Name of the NBD export, which is also the default one, and of the FUSE file; the export NAME-uncached is the same
    /// disk without caching new blocks, for backups and scans
    #[arg(long, help_heading = ACCESS, value_name = "NAME", default_value = "flashwright", value_parser = export_name)]
    name: String,
    /// Maximum number of NBD clients, 1 to 4096; each takes a thread. For one more, the connection that has been idle the
    /// longest is closed; if none has been idle for a second, the new client is refused
    #[arg(long, help_heading = ACCESS, value_name = "N", default_value_t = Options::default().max_connections, value_parser = connections)]
    connections: usize,
    /// Maximum number of NBD clients at one IP address (IPv6: in one /64 network) [default: three quarters of --connections]
    #[arg(long, help_heading = ACCESS, value_name = "N", value_parser = connections, requires = "listen")]
    connections_per_address: Option<usize>,
    /// Sector size that clients see, a power of two from 512 [default: the one recorded by `block create`; without --flash,
    /// the logical block size of the disk, 512 for a file]
    #[arg(long, help_heading = ACCESS, value_name = "SIZE", value_parser = sectors::sector_size)]
    sector_size: Option<u32>,
    #[command(flatten)]
    clients: rules::Flags,
    #[command(flatten)]
    taking: Taking,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    common: Common,
}

/// Checks a name that must be valid for a file, with space for suffixes.
fn export_name(text: &str) -> Result<String, String> {
    let is_file_name = !matches!(text, "" | "." | "..") && !text.contains(['/', '\0']);
    if is_file_name && text.len() <= MOST_NAME_BYTES {
        return Ok(text.to_owned());
    }
    Err(format!("must be usable as a file name: 1 to {MOST_NAME_BYTES} bytes, without /, and not . or .."))
}

fn connections(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST_CONNECTIONS).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {MOST_CONNECTIONS}"))
}

/// Runs `block serve`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config = json!({
        "flash": arguments.flash,
        "disk": arguments.disk,
        "socket": arguments.socket.as_deref().map(name_of),
        "listen": arguments.listen.map(|address| address.to_string()),
        "fuse": arguments.fuse.as_deref().map(name_of),
        "ublk": arguments.ublk,
    });
    arguments.common.conclude("block serve", &config, serve(arguments))
}

/// The served disk, and the background work.
struct Served {
    export: Arc<dyn Export>,
    /// Counts requests of all frontends.
    meter: Arc<Meter>,
    below: Vec<Below>,
    cached: Option<Cached>,
}

struct Cached {
    /// The export for clients whose blocks are not cached.
    uncached: Arc<dyn Export>,
    /// Decides which clients those are.
    admission: Arc<Admission>,
    volume: Volume,
    recovery: Recovery,
    upkeep: JoinHandle<()>,
    watching: HealthWatcher,
}

/// Serves until a signal arrives. Returns the cache's figures, and errors from closing.
fn serve(arguments: &Arguments) -> Result<Finding, String> {
    let address = address(arguments)?;
    let rules = arguments.clients.rules()?;
    spare(&arguments.common, arguments.flash.iter().chain([&arguments.disk]))?;
    Files::default().writing([arguments.record.as_deref(), arguments.common.result_file()]).keep_apart()?;
    descriptors::allow(arguments.connections, nbd_options(arguments).max_sockets())?;
    let driver =
        arguments.ublk.map(|_| Driver::open().map_err(|error| format!("--ublk: {error}"))).transpose()?;
    // Before the first client, so that a signal during the opening of the volume is not lost.
    let mut signals = Signals::new(signals::of_end()).map_err(|error| format!("signals: {error}"))?;
    let mut new_files = NewFiles::default();
    let recording = arguments.record.as_deref();
    let recording = recording.map(|path| recording::start(path, &mut new_files)).transpose()?;
    let mut served = open(arguments)?;
    if let Some(recording) = &recording {
        served.export = Arc::new(recording.of(served.export));
    }
    if let Some(Cached { uncached, admission, .. }) = &served.cached {
        admission.set_rules(rules);
        let export = ClientExport::new(served.export, Arc::clone(uncached), Arc::clone(admission));
        served.export = Arc::new(export);
    }
    let frontends = match Frontends::start(arguments, address.as_ref(), driver, &served) {
        Ok(frontends) => frontends,
        Err(error) => {
            // A cache that was not served is closed again.
            return Err(std::iter::once(error)
                .chain(close(arguments, served))
                .collect::<Vec<_>>()
                .join("; "));
        }
    };
    let Frontends { server, control, mounted, disk } = frontends;
    new_files.keep();
    note_loop_sectors(arguments, &served);
    warn_of_waiting(arguments, &served);
    say_ready(arguments, server.as_deref(), &served, disk.as_ref());
    signals.forever().next();
    arguments.common.say("closing: finishing requests in flight; another signal exits at once");
    signals::exit_at_another(signals).map_err(|error| format!("signals: {error}"))?;
    drop(control);
    let unmounted = mounted.map_or(Ok(Unmounted::Completely), Mounted::unmount);
    if let (Ok(Unmounted::InUse), Some(place)) = (&unmounted, &arguments.fuse) {
        let place = place.display();
        say_error(format_args!(
            "warning: --fuse {place}: the file was open; {place} is unmounted, and programs that have the file open get errors from now on"
        ));
    }
    let left = disk.map_or(Ok(()), |disk| leave(arguments, disk));
    if let Some(server) = server {
        server.stop();
    }
    let in_use = unmounted.err().map(|error| format!("--fuse: cannot unmount: {error}"));
    let not_left = left.err().map(|error| format!("--ublk: {error}"));
    let not_recorded = recording.and_then(|recording| end(recording).err());
    let figures = served.cached.as_ref().map(|cached| figures::of_volume(&cached.volume, &cached.recovery));
    let mut result = figures.unwrap_or_else(|| json!({}));
    result["requests"] = requests::of_meter(&served.meter);
    for (name, device) in &served.below {
        result[*name] = figures::of_device(&**device);
    }
    result["world"] = "real".into();
    let failures =
        in_use.into_iter().chain(not_left).chain(not_recorded).chain(close(arguments, served)).collect();
    Ok(Finding { result, text: String::new(), failures })
}

/// The frontends of a served disk.
struct Frontends {
    server: Option<Arc<Server>>,
    control: control::ControlSocket,
    mounted: Option<Mounted>,
    disk: Option<Disk>,
}

impl Frontends {
    /// Starts all of them, or none.
    fn start(
        arguments: &Arguments,
        address: Option<&Address>,
        driver: Option<Driver>,
        served: &Served,
    ) -> Result<Self, String> {
        let start = |address: &Address| {
            let flag = match address {
                Address::Unix(path) => format!("--socket {}", path.display()),
                Address::Tcp(address) => format!("--listen {address}"),
            };
            Server::start(address, offered(arguments, served), nbd_options(arguments))
                .map_err(|error| format!("{flag}: {error}"))
        };
        let server = address.map(start).transpose()?.map(Arc::new);
        Self::beside(arguments, driver, served, server.as_ref())
            .inspect_err(|_| server.iter().for_each(|server| server.stop()))
    }

    fn beside(
        arguments: &Arguments,
        driver: Option<Driver>,
        served: &Served,
        server: Option<&Arc<Server>>,
    ) -> Result<Self, String> {
        let path = control_path(arguments, server.map(|server| server.address()));
        let place = place(arguments, server.map(Arc::as_ref));
        let cached = served.cached.as_ref().map(|cached| Cache {
            volume: cached.volume.clone(),
            recovery: cached.recovery,
            admission: Arc::clone(&cached.admission),
        });
        let control = control::listen(
            &path,
            Service::new(
                cached,
                place,
                devices_of(arguments),
                server.cloned(),
                Arc::clone(&served.meter),
                served.below.clone(),
            ),
        )
        .map_err(|error| format!("--control {}: {error}", path.display()))?;
        let mounted = arguments.fuse.as_deref().map(|place| mount(place, arguments, served)).transpose()?;
        let disk = driver.map(|driver| disk(driver, arguments, served)).transpose()?;
        Ok(Self { server: server.cloned(), control, mounted, disk })
    }
}

fn nbd_options(arguments: &Arguments) -> Options {
    Options {
        max_connections: arguments.connections,
        max_connections_per_address: arguments.connections_per_address,
        ..Options::default()
    }
}

/// The devices and frontends as absolute paths.
fn devices_of(arguments: &Arguments) -> Vec<PathBuf> {
    let under =
        arguments.flash.iter().chain([&arguments.disk]).filter_map(|text| files_of(text).ok()).flatten();
    let block = arguments.ublk.map(|number| format!("/dev/ublkb{number}").into());
    under.map(|path| path.canonicalize().unwrap_or(path)).chain(block).collect()
}

fn offered(arguments: &Arguments, served: &Served) -> Vec<Offered> {
    let (name, description) = (arguments.name.clone(), described(arguments));
    let uncached = served.cached.as_ref().map(|cached| Offered {
        name: format!("{name}-uncached"),
        description: format!("{description}; misses on this export are not cached"),
        export: Arc::clone(&cached.uncached),
    });
    let usual = Offered { name, description, export: Arc::clone(&served.export) };
    std::iter::once(usual).chain(uncached).collect()
}

fn mount(place: &Path, arguments: &Arguments, served: &Served) -> Result<Mounted, String> {
    let refused = |why: String| format!("--fuse {}: {why}", place.display());
    if fuse::clear_disconnected(place)
        .map_err(|error| refused(format!("cannot clear a killed server's mount: {error}")))?
    {
        // Not on standard output, where scripts wait for the ready line.
        say_error(format_args!("note: --fuse {}: unmounted what a killed server had left", place.display()));
    }
    let mut inside = std::fs::read_dir(place).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotADirectory => refused("is not a directory".into()),
        _ if fuse::is_disconnected(place) => {
            let place = place.display();
            refused(format!(
                "{error}; the mount of another program that was killed is there: run fusermount3 -u {place}"
            ))
        }
        _ => refused(error.to_string()),
    })?;
    // For example another server's file, or the socket of this one.
    if let Some(Ok(hidden)) = inside.next() {
        let name = hidden.file_name();
        return Err(refused(format!("is not empty: {} would become unreachable", name.display())));
    }
    let mounted = Mounted::at(place, &arguments.name, Arc::clone(&served.export));
    mounted.map_err(|error| refused(error.to_string()))
}

fn disk(driver: Driver, arguments: &Arguments, served: &Served) -> Result<Disk, String> {
    let number = arguments.ublk.unwrap_or_default();
    let options = ublk::Options::new(number, identity(arguments, served)?);
    let disk = Disk::serve(driver, Arc::clone(&served.export), &options);
    disk.map_err(|error| format!("--ublk: {error}"))
}

/// An identity of the disk that is unique on this machine until it reboots, when its block devices vanish too.
fn identity(arguments: &Arguments, served: &Served) -> Result<u64, String> {
    let failed = |error: &dyn std::fmt::Display| format!("--disk {}: {error}", arguments.disk);
    if let Some(cached) = &served.cached {
        return Ok(identity_of(&cached.volume.superblock()));
    }
    if is_memory(&arguments.disk) {
        // The contents end with this process, so no other server can continue.
        return Ok(RandomState::new().hash_one(std::process::id()));
    }
    let mut identity = 0_u64;
    for path in files_of(&arguments.disk).map_err(|why| failed(&why))? {
        let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
        // A device is identified by its number, a file by its inode.
        let (kind, number) = (metadata.file_type(), metadata.rdev());
        let is_device = kind.is_block_device() || kind.is_char_device();
        let (whose, which) = match is_device {
            true => (u64::from(kind.is_char_device()), number),
            false => (metadata.dev(), metadata.ino()),
        };
        identity = identity.rotate_left(16) ^ whose.rotate_left(32) ^ which;
    }
    Ok(identity)
}

/// The same for a cache.
pub fn identity_of(superblock: &Superblock) -> u64 {
    superblock.uuid as u64 ^ (superblock.uuid >> 64) as u64
}

/// Removes an unused ublk device; one in use waits for the next server.
fn leave(arguments: &Arguments, disk: Disk) -> Result<(), String> {
    let path = disk.path();
    if disk.stop().map_err(|error| error.to_string())? == Left::Waiting {
        arguments
            .common
            .say(&format_args!("{} is in use: it stays and waits for the next server", path.display()));
    }
    Ok(())
}

fn open(arguments: &Arguments) -> Result<Served, String> {
    let Some(flash) = &arguments.flash else {
        let disk = arguments.opening.open("--disk", &arguments.disk, Access::Write)?;
        contents::refuse_flash(&arguments.disk, &disk)?;
        contents::refuse_rest(&arguments.disk, &*disk)?;
        if !arguments.taking.force_disk {
            contents::refuse_marked(
                &arguments.disk,
                "serve it with its --flash, or without it with --force-disk",
            )?;
        }
        let sector_bytes = arguments.sector_size.unwrap_or_else(|| sectors::of_disk(&arguments.disk, &*disk));
        sectors::check_size(&arguments.disk, &*disk, sector_bytes)?;
        let below = vec![("disk", Arc::clone(&disk))];
        let export = Arc::new(ByteExport::with_sectors(Arc::new(DeviceExport::new(disk)), sector_bytes));
        let meter = Meter::new();
        return Ok(Served { export: measured(&meter, export), meter, below, cached: None });
    };
    let opening = arguments.opening.clone();
    let devices = Devices { flash: flash.clone(), disk: arguments.disk.clone(), opening };
    let OpenedVolume { volume, recovery, flash, disk } = devices.open_volume(arguments.taking)?;
    let sector_bytes = arguments.sector_size.unwrap_or_else(|| volume.sector_bytes());
    if let Err(why) = sectors::check_size(&arguments.disk, &*disk, sector_bytes) {
        let closed = pollster::block_on(volume.close()).err();
        return Err(closed.map_or(why.clone(), |error| format!("{why}; closing the cache: {error}")));
    }
    if let Some(words) = sectors::warning(&arguments.disk, &*disk, &volume.superblock(), sector_bytes) {
        say_error(format_args!("warning: {words}"));
    }
    let no_thread = |error: std::io::Error| format!("cannot start a thread: {error}");
    let volume_export = VolumeExport::new(volume.clone()).map_err(no_thread)?;
    let export = ByteExport::with_sectors(Arc::new(volume_export), sector_bytes);
    let uncached = VolumeExport::new(volume.without_caching()).map_err(no_thread)?;
    let meter = Meter::new();
    let uncached = measured(&meter, Arc::new(export.beside(Arc::new(uncached))));
    let driven = volume.clone();
    let upkeep = std::thread::Builder::new().name("block-upkeep".into());
    let upkeep = upkeep.spawn(move || pollster::block_on(driven.run_upkeep())).map_err(no_thread)?;
    let watching = health::watch(volume.clone()).map_err(no_thread)?;
    let cached = Some(Cached { uncached, admission: Arc::default(), volume, recovery, upkeep, watching });
    let below = vec![("flash", flash), ("disk", disk)];
    Ok(Served { export: measured(&meter, Arc::new(export)), meter, below, cached })
}

fn measured(meter: &Arc<Meter>, export: Arc<dyn Export>) -> Arc<dyn Export> {
    Arc::new(meter.of(export, Arc::new(SystemClock)))
}

/// Ends a recording; an error reports what is missing from it.
fn end(recording: Recording) -> Result<(), String> {
    match recording.stop() {
        Ok(Recorded { left_out: 0, .. }) => Ok(()),
        Ok(Recorded { left_out, requests }) => {
            Err(format!("--record: the file was too slow: {left_out} of {requests} requests are missing"))
        }
        Err(error) => Err(format!("--record: {error}; the recording ends there")),
    }
}

/// Closes the volume; dirty blocks stay on flash.
fn close(arguments: &Arguments, served: Served) -> Vec<String> {
    let Some(Cached { uncached, volume, upkeep, watching, .. }) = served.cached else { return Vec::new() };
    drop((served.export, uncached));
    // The health of a closed volume means nothing.
    drop(watching);
    let closed = pollster::block_on(volume.close());
    let ended = upkeep.join();
    // The volume cannot be opened with a disk of another size.
    let size = file_bytes(&arguments.disk).filter(|bytes| *bytes != volume.size_bytes());
    let once = size.map_or_else(String::new, |bytes| {
        format!(
            ", once the disk, which has {bytes} bytes now, has its {} again (--force-disk: it was changed)",
            volume.size_bytes()
        )
    });
    let failures = [
        closed
            .err()
            .map(|error| format!("closing the cache: {error}; it will be recovered when next opened{once}")),
        ended.err().map(|_| "the upkeep thread panicked".to_owned()),
    ];
    failures.into_iter().flatten().collect()
}

/// The NBD address, if there is one.
fn address(arguments: &Arguments) -> Result<Option<Address>, String> {
    match (&arguments.socket, arguments.listen) {
        (Some(path), _) => Ok(Some(Address::Unix(path.clone()))),
        (None, Some(address)) if address.ip().is_loopback() || arguments.allow_remote => {
            Ok(Some(Address::Tcp(address)))
        }
        (None, Some(address)) => Err(format!(
            "--listen {address}: is not a loopback address, and NBD has no passwords; \
             --allow-remote lets anybody who can connect read and write"
        )),
        (None, None) if arguments.ublk.is_some() || arguments.fuse.is_some() => Ok(None),
        (None, None) => Err("no way to reach the disk: give --ublk NUMBER (a block device), --fuse DIRECTORY (a file), --socket PATH or \
                             --listen ADDRESS:PORT (NBD), or several of them"
            .into()),
    }
}

/// The control socket: beside the NBD socket or the directory; for a TCP port or a ublk device in the runtime directory, by number.
fn control_path(arguments: &Arguments, address: Option<&Address>) -> PathBuf {
    if let Some(path) = &arguments.control {
        return path.clone();
    }
    match (address, arguments.ublk, &arguments.fuse) {
        (Some(Address::Unix(path)), _, _) => control::beside(path),
        (Some(Address::Tcp(address)), _, _) => control::of_port(address.port()),
        (None, None, Some(directory)) => control::beside(directory),
        (None, number, _) => control::of_ublk(number.unwrap_or_default()),
    }
}

/// The first address by which the disk can be used.
fn place(arguments: &Arguments, server: Option<&Server>) -> String {
    match (server, arguments.ublk, &arguments.fuse) {
        (Some(server), _, _) => server.address().to_string(),
        (None, None, Some(directory)) => directory.join(&arguments.name).display().to_string(),
        (None, number, _) => format!("/dev/ublkb{}", number.unwrap_or_default()),
    }
}

fn described(arguments: &Arguments) -> String {
    let name = |path: &str| {
        Path::new(path).file_name().map_or_else(|| path.into(), |name| name.to_string_lossy().into_owned())
    };
    match &arguments.flash {
        Some(flash) => format!("{} behind flash {}", name(&arguments.disk), name(flash)),
        None => name(&arguments.disk),
    }
}

/// Notes the sector size for a loop device on the FUSE file, whose default is 512 bytes.
fn note_loop_sectors(arguments: &Arguments, served: &Served) {
    let (sector_bytes, Some(place)) = (served.export.shape().sector_bytes, &arguments.fuse) else { return };
    if sector_bytes > 512 {
        let place = place.display();
        say_error(format_args!(
            "note: --fuse {place}: the disk has sectors of {sector_bytes} bytes: use losetup --sector-size {sector_bytes} on its file"
        ));
    }
}

/// Warns of a ublk device that waits for this disk: a file system can be mounted on it, and writing elsewhere corrupts it.
fn warn_of_waiting(arguments: &Arguments, served: &Served) {
    let (None, Ok(identity)) = (arguments.ublk, identity(arguments, served)) else { return };
    if let Ok(Some(path)) = ublk::waiting(identity) {
        let path = path.display();
        say_error(format_args!(
            "warning: {path} waits for a server of this disk and holds unwritten data: do not write to the disk \
             before {path} is served again (--ublk) and unmounted"
        ));
    }
}

/// Prints the line that scripts wait for.
fn say_ready(arguments: &Arguments, server: Option<&Server>, served: &Served, disk: Option<&Disk>) {
    let found = served.cached.as_ref().map_or_else(String::new, |Cached { recovery, volume, .. }| {
        let seconds = recovery.elapsed_ns as f64 / 1e9;
        let (how, opened) = match recovery.was_clean {
            true => ("closed cleanly".to_owned(), format!(", opened in {seconds:.1} s")),
            false => (format!("recovered in {seconds:.1} s"), String::new()),
        };
        let older = figures::older(volume.superblock().format.into());
        let older = older.map_or_else(String::new, |words| format!("; {words}"));
        let (blocks, dirty) = (recovery.blocks, recovery.dirty_blocks);
        format!(" ({how}: {blocks} {}, {dirty} dirty{opened}{older})", noun(blocks, "block"))
    });
    let disk = disk.map(|disk| {
        let how = if disk.was_taken_over() { ", taken over" } else { "" };
        format!("{}{how}", disk.path().display())
    });
    let places: Vec<String> = match (server, disk) {
        (None, None) => vec![place(arguments, None)],
        (server, disk) => server.map(|server| server.address().to_string()).into_iter().chain(disk).collect(),
    };
    arguments.common.say(&format_args!("ready {}{found}", places.join(" and ")));
}
