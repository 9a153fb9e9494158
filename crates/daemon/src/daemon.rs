//! A server: the volume or disk that it opens, its front ends, its control socket and its background threads.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use block::export::{
    Admission, ByteExport, ClientExport, CurrentVolume, DeviceExport, Export, Meter, Recorded, Recording,
    VolumeExport,
};
use block::volume::{Recovery, Superblock};
use clap::Args;
use device::event_loop::wait_for;
use device::names::noun;
use device::{Engine, SystemClock};
use serde_json::{Value, json};

use crate::control::{self, Below, Cache, ControlSocket, Controlled, Service, lock};
use crate::devices::{Access, Devices, DiskOverrides, NewFiles, OpenedVolume, Opening, file_bytes};
use crate::front_end::{ACCESS, FrontEnd, FrontEndFlags, ServedDisk};
use crate::health::{self, HealthWatcher};
use crate::named::{files_of, is_memory};
use crate::recording::Recorder;
use crate::settings::RuleFlags;
use crate::status::{figures, requests};
use crate::{contents, log_line, recording, sectors};

/// File names have at most 255 bytes.
const MOST_NAME_BYTES: usize = 200;

/// The options of a server.
#[derive(Debug, Args)]
pub struct Options {
    /// Flash device made by `block create`; without one, the disk is served uncached, for comparison
    #[arg(long, value_name = "PATH")]
    flash: Option<String>,
    /// Disk behind the cache
    #[arg(long, value_name = "PATH")]
    disk: String,
    #[command(flatten)]
    front_ends: FrontEndFlags,
    /// Control socket, for status, set, flush and upgrade [default: the socket or directory with .control added, or a file
    /// in $XDG_RUNTIME_DIR]
    #[arg(long, help_heading = ACCESS, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Serve /metrics for Prometheus and /health by HTTP on this address, as 127.0.0.1:9150
    #[arg(long, help_heading = ACCESS, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Record every request to FILE as CSV, for `block replay`, except those to the export NAME-uncached and of clients whose blocks are
    /// not cached; an existing recording is appended to
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Name of the NBD export, which is also the default one, and of the FUSE file; the export NAME-uncached is the same
    /// disk without caching new blocks, for backups and scans
    #[arg(long, help_heading = ACCESS, value_name = "NAME", default_value = "flashwright", value_parser = export_name)]
    name: String,
    /// Sector size that clients see, a power of two from 512 [default: the one recorded by `block create`; without --flash,
    /// the logical block size of the disk, 512 for a file]
    #[arg(long, help_heading = ACCESS, value_name = "SIZE", value_parser = sectors::sector_size)]
    sector_size: Option<u32>,
    #[command(flatten)]
    clients: RuleFlags,
    #[command(flatten)]
    taking: DiskOverrides,
    #[command(flatten)]
    opening: Opening,
}

/// Checks a name that must be valid for a file, with space for suffixes.
fn export_name(text: &str) -> Result<String, String> {
    let is_file_name = !matches!(text, "" | "." | "..") && !text.contains(['/', '\0']);
    if is_file_name && text.len() <= MOST_NAME_BYTES {
        return Ok(text.to_owned());
    }
    Err(format!("must be usable as a file name: 1 to {MOST_NAME_BYTES} bytes, without /, and not . or .."))
}

impl Options {
    /// The flags, for a result.
    #[must_use]
    pub fn config(&self) -> Value {
        let mut config = json!({ "flash": self.flash, "disk": self.disk });
        self.front_ends.add_to(&mut config);
        config
    }

    /// The address by which clients use the disk, and the control socket.
    ///
    /// # Errors
    /// If no front end is requested, or one has wrong settings.
    pub fn addresses(&self) -> Result<(String, PathBuf), String> {
        let front_ends = self.front_ends.requested(&self.name)?;
        let first = &front_ends[0];
        Ok((first.address(), self.control.clone().unwrap_or_else(|| first.control_path())))
    }

    /// The address for metrics.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Whether addresses that other machines can reach are permitted.
    #[must_use]
    pub fn allows_remote(&self) -> bool {
        self.front_ends.nbd.allows_remote()
    }

    /// The names of flash and disk.
    pub fn devices(&self) -> impl Iterator<Item = &String> {
        self.flash.iter().chain([&self.disk])
    }

    /// The file of requests, if they are recorded.
    #[must_use]
    pub fn recording(&self) -> Option<&Path> {
        self.record.as_deref()
    }

    /// The files below the disk and the devices that front ends make, as absolute paths.
    fn paths(&self, front_ends: &[Box<dyn FrontEnd>]) -> Vec<PathBuf> {
        let below = self.devices().filter_map(|text| files_of(text).ok()).flatten();
        let made = front_ends.iter().filter_map(|front_end| front_end.block_device());
        below.map(|path| path.canonicalize().unwrap_or(path)).chain(made).collect()
    }
}

/// The served disk, and the background work.
struct Served {
    export: Arc<dyn Export>,
    /// Counts requests of all front ends.
    meter: Arc<Meter>,
    /// Flash and disk.
    below: Arc<Mutex<Vec<Below>>>,
    cached: Option<Cached>,
    /// The error that ended the recording, once there is one; `None` without `--record`.
    recording: Option<recording::Failure>,
}

struct Cached {
    /// The export for clients whose blocks are not cached.
    uncached: Arc<dyn Export>,
    /// Decides which clients' blocks are cached.
    admission: Arc<Admission>,
    current: CurrentVolume,
    /// The names of flash and disk.
    devices: Devices,
    recovery: Recovery,
    upkeep: JoinHandle<()>,
    watching: HealthWatcher,
}

/// A running server.
pub struct Daemon {
    disk: String,
    served: Served,
    front_ends: Vec<Box<dyn FrontEnd>>,
    control: ControlSocket,
    service: Arc<Service>,
    recording: Option<Recorder>,
}

/// Reads the status of a running server. It must be dropped before the server stops, because it keeps the cache open.
pub struct StatusReader(Arc<Service>);

impl StatusReader {
    /// The status, as the control socket reports it.
    #[must_use]
    pub fn status(&self) -> Value {
        self.0.status()
    }
}

/// The result of a server that has stopped.
pub struct Stopped {
    /// Its last figures.
    pub result: Value,
    /// Errors of stopping, writing and closing.
    pub failures: Vec<String>,
}

impl Daemon {
    /// Opens flash and disk, and starts to serve.
    ///
    /// # Errors
    /// The option that is invalid or the device that cannot be used. Everything is closed again, and new files are removed.
    pub fn start(options: &Options) -> Result<Self, String> {
        let mut front_ends = options.front_ends.requested(&options.name)?;
        let rules = options.clients.rules()?;
        front_ends.iter_mut().try_for_each(|front_end| front_end.prepare())?;
        let mut new_files = NewFiles::default();
        let recording = options.record.as_deref();
        let recording = recording.map(|path| recording::start(path, &mut new_files)).transpose()?;
        let mut served = open(options)?;
        if let Some(recorder) = &recording {
            served.export = Arc::new(recorder.recording.of(served.export));
            served.recording = Some(Arc::clone(&recorder.failure));
        }
        if let Some(Cached { uncached, admission, .. }) = &served.cached {
            admission.set_rules(rules);
            let export = ClientExport::new(served.export, Arc::clone(uncached), Arc::clone(admission));
            served.export = Arc::new(export);
        }
        let (control, service) = match start_front_ends(options, &served, &mut front_ends) {
            Ok(started) => started,
            Err(error) => {
                // A cache that was not served is closed again.
                let failures = close(&options.disk, served);
                return Err(std::iter::once(error).chain(failures).collect::<Vec<_>>().join("; "));
            }
        };
        new_files.keep();
        Ok(Self { disk: options.disk.clone(), served, front_ends, control, service, recording })
    }

    /// A reader of the status.
    #[must_use]
    pub fn status_reader(&self) -> StatusReader {
        StatusReader(Arc::clone(&self.service))
    }

    /// The line that scripts wait for.
    #[must_use]
    pub fn ready_line(&self) -> String {
        let found =
            self.served.cached.as_ref().map_or_else(String::new, |Cached { recovery, current, .. }| {
                let seconds = recovery.elapsed_ns as f64 / 1e9;
                let (how, opened) = match recovery.was_clean {
                    true => ("closed cleanly".to_owned(), format!(", opened in {seconds:.1} s")),
                    false => (format!("recovered in {seconds:.1} s"), String::new()),
                };
                let older = figures::older(current.volume().superblock().format.into());
                let older = older.map_or_else(String::new, |text| format!("; {text}"));
                let (blocks, dirty) = (recovery.blocks, recovery.dirty_blocks);
                format!(" ({how}: {blocks} {}, {dirty} dirty{opened}{older})", noun(blocks, "block"))
            });
        let mut places: Vec<String> = self.front_ends.iter().filter_map(|it| it.ready_address()).collect();
        if places.is_empty() {
            places.extend(self.front_ends.iter().map(|front_end| front_end.address()));
        }
        format!("ready {}{found}", places.join(" and "))
    }

    /// Finishes requests in flight, stops the front ends in reverse order, and closes the cache. `say` receives lines for the user.
    #[must_use]
    pub fn stop(mut self, say: &dyn Fn(&str)) -> Stopped {
        drop((self.control, self.service));
        let mut failures = stop(&mut self.front_ends, say);
        failures.extend(self.recording.and_then(|recorder| end(recorder.recording).err()));
        let served = self.served;
        let figures = served
            .cached
            .as_ref()
            .map(|cached| figures::of_volume(&cached.current.volume(), &cached.recovery));
        let mut result = figures.unwrap_or_else(|| json!({}));
        result["requests"] = requests::of_meter(&served.meter);
        for (name, device) in lock(&served.below).iter() {
            result[*name] = figures::of_device(&**device);
        }
        result["world"] = "real".into();
        failures.extend(close(&self.disk, served));
        Stopped { result, failures }
    }
}

/// Starts all front ends and the control socket, or none.
fn start_front_ends(
    options: &Options,
    served: &Served,
    front_ends: &mut [Box<dyn FrontEnd>],
) -> Result<(ControlSocket, Arc<Service>), String> {
    let disk = ServedDisk {
        export: Arc::clone(&served.export),
        uncached: served.cached.as_ref().map(|cached| Arc::clone(&cached.uncached)),
        name: options.name.clone(),
        description: described(options),
        identity: identity(options, served.cached.as_ref()),
    };
    let started = front_ends.iter_mut().try_for_each(|front_end| front_end.start(&disk));
    let control = started.and_then(|()| listen(options, served, front_ends)).inspect_err(|_| {
        stop(front_ends, &|_| {});
    })?;
    options.front_ends.ublk.warn_of_waiting(&disk);
    Ok(control)
}

fn listen(
    options: &Options,
    served: &Served,
    front_ends: &[Box<dyn FrontEnd>],
) -> Result<(ControlSocket, Arc<Service>), String> {
    let first = &front_ends[0];
    let path = options.control.clone().unwrap_or_else(|| first.control_path());
    let cached = served.cached.as_ref().map(|cached| Cache {
        current: cached.current.clone(),
        recovery: cached.recovery,
        admission: Arc::clone(&cached.admission),
        devices: Mutex::new(cached.devices.clone()),
    });
    let service = Service::new(Controlled {
        cached,
        place: first.address(),
        devices: options.paths(front_ends),
        block_device: front_ends.iter().find_map(|front_end| front_end.block_device()),
        monitors: front_ends.iter().filter_map(|front_end| front_end.monitor()).collect(),
        meter: Arc::clone(&served.meter),
        below: Arc::clone(&served.below),
        recording: served.recording.clone(),
    });
    let socket = control::listen(&path, Arc::clone(&service));
    let socket = socket.map_err(|error| format!("--control {}: {error}", path.display()))?;
    Ok((socket, service))
}

/// Stops the front ends in reverse order; returns the failures.
fn stop(front_ends: &mut [Box<dyn FrontEnd>], say: &dyn Fn(&str)) -> Vec<String> {
    front_ends.iter_mut().rev().filter_map(|front_end| front_end.stop(say).err()).collect()
}

fn open(options: &Options) -> Result<Served, String> {
    let Some(flash) = &options.flash else {
        let disk = options.opening.open("--disk", &options.disk, Access::Write)?;
        contents::refuse_flash(&options.disk, &disk)?;
        contents::refuse_rest(&options.disk, &*disk)?;
        if !options.taking.force_disk {
            contents::refuse_marked(
                &options.disk,
                "serve it with its --flash, or without it with --force-disk",
            )?;
        }
        let sector_bytes = options.sector_size.unwrap_or_else(|| sectors::of_disk(&options.disk, &*disk));
        sectors::check_size(&options.disk, &*disk, sector_bytes)?;
        let below = vec![("disk", Arc::clone(&disk))];
        warn_of_threads(options, &below);
        let below = Arc::new(Mutex::new(below));
        let export = Arc::new(ByteExport::with_sectors(Arc::new(DeviceExport::new(disk)), sector_bytes));
        let meter = Meter::new();
        return Ok(Served { export: measured(&meter, export), meter, below, cached: None, recording: None });
    };
    let opening = options.opening.clone();
    let devices = Devices { flash: flash.clone(), disk: options.disk.clone(), opening };
    let OpenedVolume { volume, recovery, flash, disk } = devices.open_volume(options.taking)?;
    let sector_bytes = options.sector_size.unwrap_or_else(|| volume.sector_bytes());
    if let Err(why) = sectors::check_size(&options.disk, &*disk, sector_bytes) {
        let closed = wait_for(volume.close()).err();
        return Err(closed.map_or(why.clone(), |error| format!("{why}; closing the cache: {error}")));
    }
    if let Some(text) = sectors::warning(&options.disk, &*disk, &volume.superblock(), sector_bytes) {
        log_line(format_args!("warning: {text}"));
    }
    let no_thread = |error: std::io::Error| format!("cannot start a thread: {error}");
    let current = CurrentVolume::new(volume);
    let volume_export = VolumeExport::of_current(current.clone()).map_err(no_thread)?;
    let export = ByteExport::with_sectors(Arc::new(volume_export), sector_bytes);
    let uncached = VolumeExport::without_caching(current.clone()).map_err(no_thread)?;
    let meter = Meter::new();
    let uncached = measured(&meter, Arc::new(export.beside(Arc::new(uncached))));
    let driven = current.clone();
    let upkeep = std::thread::Builder::new().name("block-upkeep".into());
    let upkeep = upkeep.spawn(move || wait_for(driven.run_upkeep())).map_err(no_thread)?;
    let watching = health::watch(current.clone()).map_err(no_thread)?;
    let cached =
        Some(Cached { uncached, admission: Arc::default(), current, devices, recovery, upkeep, watching });
    let below = vec![("flash", flash), ("disk", disk)];
    warn_of_threads(options, &below);
    let below = Arc::new(Mutex::new(below));
    Ok(Served { export: measured(&meter, Arc::new(export)), meter, below, cached, recording: None })
}

/// Warns of devices whose requests do not use io_uring.
fn warn_of_threads(options: &Options, below: &[Below]) {
    for (role, device) in below {
        let name = if *role == "disk" { Some(&options.disk) } else { options.flash.as_ref() };
        if let (Some(name), Some(message)) = (name, device.engine().and_then(Engine::warning)) {
            log_line(format_args!("warning: --{role} {name}: {message}"));
        }
    }
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
fn close(disk: &str, served: Served) -> Vec<String> {
    let Some(Cached { uncached, current, upkeep, watching, .. }) = served.cached else { return Vec::new() };
    let volume = current.volume();
    drop((served.export, uncached));
    // The health of a closed volume means nothing.
    drop(watching);
    let closed = wait_for(volume.close());
    let ended = upkeep.join();
    // The volume cannot be opened with a disk of another size.
    let size = file_bytes(disk).filter(|bytes| *bytes != volume.size_bytes());
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

/// An identity of the disk that is unique on this machine until a reboot, which also removes ublk devices.
fn identity(options: &Options, cached: Option<&Cached>) -> Result<u64, String> {
    let failed = |error: &dyn std::fmt::Display| format!("--disk {}: {error}", options.disk);
    if let Some(cached) = cached {
        return Ok(identity_of(&cached.current.volume().superblock()));
    }
    if is_memory(&options.disk) {
        // The contents end with this process, so no other server can continue.
        return Ok(RandomState::new().hash_one(std::process::id()));
    }
    let mut identity = 0_u64;
    for path in files_of(&options.disk).map_err(|why| failed(&why))? {
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

/// The identity of a cached disk, unique on this machine.
#[must_use]
pub fn identity_of(superblock: &Superblock) -> u64 {
    superblock.uuid as u64 ^ (superblock.uuid >> 64) as u64
}

fn described(options: &Options) -> String {
    let name = |path: &str| {
        Path::new(path).file_name().map_or_else(|| path.into(), |name| name.to_string_lossy().into_owned())
    };
    match &options.flash {
        Some(flash) => format!("{} behind flash {}", name(&options.disk), name(flash)),
        None => name(&options.disk),
    }
}
