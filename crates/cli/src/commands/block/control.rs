//! The control socket by which `status`, `set`, `flush` and `upgrade` reach a server.
//!
//! A client sends one line: `status`, `set KEY=VALUE …`, `flush` or `upgrade`. The answer is lines of JSON; the last contains `done`, or
//! `error` with the reason. During long requests the server sends a line twice a second, so a silent server is known to be stopped. The
//! socket is accessible only to its owner, because there is no other access control.

use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use bench::report::text::noun;
use block::export::{Admission, Meter};
use block::nbd::{Server, socket};
use block::sets::Tuning;
use block::volume::{Recovery, Volume};
use clap::Args;
use device::{Clock, Device, SystemClock};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::{Value, json};

use super::actions::{Action, action};
use super::knobs::Given;
use super::sync::BackgroundSync;
use super::{figures, requests, rules};
use crate::files::Files;
use crate::output::{Common, names_of};

/// Interval of progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// A server silent for this long is stopped, or its devices do not respond.
const SILENCE: Duration = Duration::from_secs(10);

/// Pause after a failed accept, for example without free descriptors: retrying immediately would occupy a CPU.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest request line. Two lists of a hundred IPv6 networks fit.
const REQUEST_BYTES: u64 = 16_384;

/// Selects a server.
#[derive(Debug, Args)]
pub struct Target {
    /// The server's NBD socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The server's NBD TCP address
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "socket", value_parser = tcp_address)]
    pub listen: Option<SocketAddr>,
    /// The server's control socket, if it was given --control
    #[arg(long, value_name = "PATH", conflicts_with_all = ["socket", "listen"])]
    pub control: Option<PathBuf>,
    /// The number of the server's ublk device, if it has no socket
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["socket", "listen", "control"])]
    pub ublk: Option<u32>,
}

/// Parses an IP address and a port; host names are not resolved.
pub fn tcp_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port, like 127.0.0.1:10809 or [::1]:10809".into())
}

impl Target {
    /// The control socket, if a server is selected.
    pub fn path(&self) -> Option<PathBuf> {
        let of_socket = || self.socket.as_deref().map(beside);
        let of_listen = || self.listen.map(|address| of_port(address.port()));
        self.control.clone().or_else(of_socket).or_else(of_listen).or_else(|| self.ublk.map(of_ublk))
    }

    /// Refuses a result file that is one of the server's devices, by asking the server.
    pub fn spare(&self, common: &Common) -> Result<(), String> {
        let (Some(file), Some(path)) = (common.result_file(), self.path()) else { return Ok(()) };
        if !file.exists() {
            return Ok(());
        }
        let status = ask(&path, "status", |_| {})?;
        let devices = status["devices"].as_array().into_iter().flatten();
        let devices = devices.filter_map(|device| device.as_str().map(PathBuf::from));
        Files::default().keeping("device", devices).writing([Some(file)]).keep_apart()
    }
}

/// The control socket of a server on the socket `path`.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".control");
    name.into()
}

/// The control socket of a server on a TCP port.
pub fn of_port(port: u16) -> PathBuf {
    of_this_machine(&port.to_string())
}

/// The control socket of a server with only a ublk device.
pub fn of_ublk(number: u32) -> PathBuf {
    of_this_machine(&format!("ublk{number}"))
}

fn of_this_machine(which: &str) -> PathBuf {
    let directory = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    directory.join(format!("flashwright-{which}.control"))
}

/// Sends a request to the server at `path`; all answer lines but the last go to `progress`.
pub fn ask(path: &Path, request: &str, mut progress: impl FnMut(&Value)) -> Result<Value, String> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("no server listens at {}", path.display())
        }
        io::ErrorKind::WouldBlock => format!(
            "the server at {} has not answered for {} s: it is stopped, or waits for its devices",
            path.display(),
            SILENCE.as_secs()
        ),
        _ => format!("{}: {error}", path.display()),
    };
    let mut stream = connect(path).map_err(failed)?;
    writeln!(stream, "{request}").map_err(failed)?;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(failed)?;
        let value: Value =
            serde_json::from_str(&line).map_err(|error| format!("{}: {error}", path.display()))?;
        if let Some(error) = value.get("error") {
            return Err(error.as_str().map_or_else(|| error.to_string(), str::to_owned));
        }
        if value.get("done").is_some() {
            return Ok(value);
        }
        if value.get("working").is_none() {
            progress(&value);
        }
    }
    Err(format!("the server at {} closed the connection", path.display()))
}

/// Connects with a timeout of [`SILENCE`] per step. This includes connecting, which blocks if a stopped server's backlog is full.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(SILENCE))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(SILENCE))?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// A device below the cache: `flash` or `disk`.
pub type Below = (&'static str, Arc<dyn Device>);

/// A served cache.
pub struct Cache {
    pub volume: Volume,
    /// The result of opening it.
    pub recovery: Recovery,
    /// Decides for which clients blocks are cached.
    pub admission: Arc<Admission>,
}

/// State of a control socket.
pub struct Service {
    /// `None` if a disk is served without a cache.
    cached: Option<Cache>,
    /// The address by which clients use the disk.
    place: String,
    /// Files and block devices that no result may overwrite.
    devices: Vec<PathBuf>,
    /// The NBD server, if there is one.
    server: Option<Arc<Server>>,
    /// Counts and latencies of clients' requests.
    meter: Arc<Meter>,
    /// The devices below the cache and their roles.
    below: Vec<Below>,
    started_ns: u64,
    /// Time since which counters count.
    counted_since_ns: AtomicU64,
    sync: BackgroundSync,
    /// Serialises changes of settings: a change between reading and writing them would be lost.
    setting: Mutex<()>,
}

impl Service {
    pub fn new(
        cached: Option<Cache>,
        place: String,
        devices: Vec<PathBuf>,
        server: Option<Arc<Server>>,
        meter: Arc<Meter>,
        below: Vec<Below>,
    ) -> Arc<Self> {
        let started_ns = SystemClock.monotonic_ns();
        Arc::new(Self {
            cached,
            place,
            devices,
            server,
            meter,
            below,
            started_ns,
            counted_since_ns: AtomicU64::new(started_ns),
            sync: BackgroundSync::default(),
            setting: Mutex::new(()),
        })
    }
}

/// A listening control socket; dropping it removes the socket.
pub struct ControlSocket {
    path: PathBuf,
    /// Device and inode of the socket, since another process can have replaced it.
    known_by: Option<(u64, u64)>,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Listens at `path`.
#[expect(clippy::disallowed_methods, reason = "the command line may sleep")]
pub fn listen(path: &Path, service: Arc<Service>) -> io::Result<ControlSocket> {
    let listener = socket::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let closing = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&closing);
    let accept = move || {
        for stream in listener.incoming() {
            if closed.load(Ordering::Acquire) {
                return;
            }
            let Ok(stream) = stream else {
                std::thread::sleep(PAUSE);
                continue;
            };
            let service = Arc::clone(&service);
            let thread = std::thread::Builder::new().name("block-control".into());
            // Without a thread the client sees the connection closed and reports that.
            let _ = thread.spawn(move || service.answer(&stream));
        }
    };
    let thread = std::thread::Builder::new().name("block-control".into()).spawn(accept)?;
    Ok(ControlSocket { path: path.into(), known_by: inode(path), closing, thread: Some(thread) })
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        if inode(&self.path) != self.known_by {
            return;
        }
        // The thread blocks in `accept`.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Service {
    /// Answers one request. If the client disconnects, the request still completes, except that a flush stops and keeps the progress made.
    fn answer(&self, stream: &UnixStream) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let mut line = String::new();
        if BufReader::new(io::Read::take(stream, REQUEST_BYTES)).read_line(&mut line).is_err() {
            return;
        }
        let mut words = line.split_whitespace();
        let answer = match words.next() {
            // A truncated setting could be a different valid one.
            _ if !line.ends_with('\n') => {
                Err(format!("a request must be one line of at most {REQUEST_BYTES} bytes"))
            }
            Some("status") => Ok(self.status()),
            Some("set") => while_reporting(stream, || self.set(words)),
            Some("flush") => self.flush(stream),
            Some("upgrade") => while_reporting(stream, || upgrade(&self.cache()?.volume)),
            _ => Err(format!(
                "unknown request {:?}; the requests are status, set, flush and upgrade",
                line.trim_end()
            )),
        };
        let value = match answer {
            Ok(mut value) => {
                value["done"] = true.into();
                value
            }
            Err(error) => json!({ "error": error }),
        };
        let _ = writeln!(&*stream, "{value}");
    }

    /// The cache, or an error if a disk is served without one.
    fn cache(&self) -> Result<&Cache, String> {
        self.cached.as_ref().ok_or_else(|| without_cache(&self.place))
    }

    fn status(&self) -> Value {
        let now_ns = SystemClock.monotonic_ns();
        let up_seconds = (now_ns - self.started_ns) as f64 / 1e9;
        let counted_seconds =
            now_ns.saturating_sub(self.counted_since_ns.load(Ordering::Relaxed)) as f64 / 1e9;
        let mut value = match &self.cached {
            Some(Cache { volume, recovery, .. }) => figures::of_volume(volume, recovery),
            None => json!({ "world": "real", "volume": null }),
        };
        value["version"] = env!("CARGO_PKG_VERSION").into();
        value["serving"] = self.place.clone().into();
        value["devices"] = names_of(&self.devices).into();
        value["up_seconds"] = up_seconds.into();
        value["counted_seconds"] = counted_seconds.into();
        value["requests"] = requests::of_meter(&self.meter);
        for (name, device) in &self.below {
            value[*name] = figures::of_device(&**device);
        }
        if let Some(Cache { admission, .. }) = &self.cached {
            value["state"]["syncing"] = self.sync.is_running().into();
            value["rules"] = rules::of_admission(admission, self.server.as_deref());
        }
        if let Some(server) = &self.server {
            value["connections"] = figures::of_connections(server);
        }
        value
    }

    fn set<'a>(&self, assignments: impl Iterator<Item = &'a str>) -> Result<Value, String> {
        let _alone = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let Cache { volume, admission, .. } = self.cache()?;
        let (mut settings, mut actions) = (Vec::new(), Vec::new());
        let mut given = rules::Given::to(admission.rules());
        for assignment in assignments {
            match action(assignment)? {
                Some(action) => actions.extend(action),
                None if given.apply(assignment)? => {}
                None => settings.push(assignment),
            }
        }
        // Rewriting unchanged settings takes time and can fail.
        let mut result = match settings.is_empty() {
            true => settings_json(&volume.superblock().tuning),
            false => set(volume, settings)?,
        };
        if let Some(rules) = given.rules() {
            admission.set_rules(rules);
        }
        result["rules"] = rules::of_rules(&admission.rules());
        actions.into_iter().try_for_each(|action| self.perform(action))?;
        Ok(result)
    }

    fn perform(&self, action: Action) -> Result<(), String> {
        let Cache { volume, admission, .. } = self.cache()?;
        match action {
            Action::ZeroStats => {
                volume.zero_stats();
                admission.zero();
                self.meter.zero();
                self.counted_since_ns.store(SystemClock.monotonic_ns(), Ordering::Relaxed);
                Ok(())
            }
            Action::DoSync => self.sync.begin(volume),
            Action::StopSync => {
                self.sync.stop();
                Ok(())
            }
        }
    }

    /// Cleans all dirty blocks while the client is connected, and reports progress.
    fn flush(&self, stream: &UnixStream) -> Result<Value, String> {
        flush(&self.cache()?.volume, |progress| writeln!(&*stream, "{progress}").is_ok())
    }
}

/// The part `name` of a server's status, which exists only for a cache.
pub fn part_of_cache<'a>(status: &'a Value, name: &str) -> Result<&'a Value, String> {
    let place = || status["serving"].as_str().unwrap_or("the server's place");
    status.get(name).ok_or_else(|| without_cache(place()))
}

fn without_cache(place: &str) -> String {
    format!("{place} is a disk without a cache: its server was started without --flash")
}

/// Does `work` in a thread and sends progress lines meanwhile.
fn while_reporting(
    stream: &UnixStream,
    work: impl FnOnce() -> Result<Value, String> + Send,
) -> Result<Value, String> {
    std::thread::scope(|scope| {
        let (at_work, ended) = channel::<()>();
        let work = move || {
            let _at_work = at_work;
            work()
        };
        let thread = std::thread::Builder::new().name("block-control".into()).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        while ended.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let _ = writeln!(&*stream, "{}", json!({ "working": true }));
        }
        thread.join().unwrap_or_else(|_| Err("the thread of the request panicked".into()))
    })
}

/// Changes settings of an open volume, all or none.
pub fn set<'a>(volume: &Volume, assignments: impl IntoIterator<Item = &'a str>) -> Result<Value, String> {
    let mut tuning = volume.superblock().tuning;
    let mut given = Given::to(&mut tuning);
    assignments.into_iter().try_for_each(|assignment| given.apply("", assignment))?;
    pollster::block_on(volume.set_tuning(tuning)).map_err(|error| error.to_string())?;
    Ok(settings_json(&tuning))
}

fn settings_json(tuning: &Tuning) -> Value {
    json!({ "tuning": figures::of_tuning(tuning) })
}

/// Brings an open volume to the newest format.
pub fn upgrade(volume: &Volume) -> Result<Value, String> {
    let before = pollster::block_on(volume.upgrade()).map_err(|error| error.to_string())?;
    Ok(json!({ "format_before": before, "format": volume.superblock().format }))
}

/// Cleans all dirty blocks of an open volume. `progress` receives the remaining blocks and time, and returns whether to continue.
pub fn flush(volume: &Volume, mut progress: impl FnMut(&Value) -> bool) -> Result<Value, String> {
    let (started_ns, dirty_before) = (SystemClock.monotonic_ns(), volume.stats().dirty_blocks);
    let (sender, ended) = channel();
    let cleaned = volume.clone();
    let stopped = Arc::new(AtomicBool::new(false));
    let is_stopped = Arc::clone(&stopped);
    let thread = std::thread::Builder::new().name("block-flush".into());
    let thread = thread.spawn(move || {
        let cleaning = unless(&is_stopped, cleaned.clean());
        // After a stop there is no receiver.
        pollster::block_on(cleaning).map(|result| sender.send(result))
    });
    thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    loop {
        match ended.recv_timeout(PROGRESS_INTERVAL) {
            Ok(Ok(())) => break,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(RecvTimeoutError::Disconnected) => return Err("the thread of the flush panicked".into()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let left = volume.stats().dirty_blocks;
        let passed_seconds = (SystemClock.monotonic_ns() - started_ns) as f64 / 1e9;
        let done = dirty_before.saturating_sub(left);
        let seconds_left = (done > 0).then(|| passed_seconds * left as f64 / done as f64);
        if !progress(&json!({ "dirty_blocks": left, "seconds_left": seconds_left })) {
            stopped.store(true, Ordering::Release);
            return Err(format!("stopped with {left} dirty {} left", noun(left, "block")));
        }
    }
    let seconds = (SystemClock.monotonic_ns() - started_ns) as f64 / 1e9;
    let left = volume.stats().dirty_blocks;
    Ok(json!({ "dirty_blocks_before": dirty_before, "dirty_blocks": left, "seconds": seconds }))
}

/// The result of `work`, or `None` if `is_stopped` is set first: then `work` is dropped at its next step.
pub async fn unless<T>(is_stopped: &AtomicBool, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| match is_stopped.load(Ordering::Acquire) {
        true => Poll::Ready(None),
        false => work.as_mut().poll(context).map(Some),
    })
    .await
}

#[cfg(test)]
mod tests {
    use block::volume::VolumeConfig;
    use device::timer::SystemTimer;
    use device::wrap::{FaultDevice, Faults, Mechanics, SpindleDevice};
    use device::{IoBuffer, MemoryDevice};

    use super::*;

    /// A volume on this flash and a slow disk, with `blocks` dirty blocks that are not adjacent.
    fn dirty_volume(flash: Arc<dyn Device>, blocks: u64) -> (Volume, Recovery) {
        let timer = || Arc::new(SystemTimer::default());
        let disk = Arc::new(MemoryDevice::new(1 << 30));
        let disk: Arc<dyn Device> = Arc::new(SpindleDevice::new(disk, timer(), Mechanics::default()));
        pollster::block_on(async {
            Volume::create(&flash, &disk, &VolumeConfig::default(), 7).await.unwrap();
            let (volume, recovery) = Volume::open(flash, disk, timer()).await.unwrap();
            for number in 0..blocks {
                let data = IoBuffer::copy_of(&[1; 4096]).into();
                volume.write(number * 37 % blocks * 65536 % (1 << 30), data, false).await.unwrap();
            }
            (volume, recovery)
        })
    }

    fn served((volume, recovery): (Volume, Recovery)) -> Arc<Service> {
        let cache = Cache { volume, recovery, admission: Arc::default() };
        Service::new(Some(cache), "here".into(), Vec::new(), None, Meter::new(), Vec::new())
    }

    fn flash() -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice::new(64 << 20))
    }

    /// The flush once went on for hours after its client was interrupted.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test waits for a flush to stop")]
    fn flush_stops_if_its_client_disconnects() {
        let (volume, _) = dirty_volume(flash(), 5000);
        let upkeep = volume.clone();
        let driven = std::thread::spawn(move || pollster::block_on(upkeep.run_upkeep()));
        let error = flush(&volume, |_| false).unwrap_err();
        assert!(error.starts_with("stopped with "), "{error}");
        // Writes in flight complete.
        let mut before = u64::MAX;
        while volume.stats().dirty_blocks < before {
            before = volume.stats().dirty_blocks;
            std::thread::sleep(Duration::from_secs(1));
        }
        assert!(before > 0, "all blocks were written");
        pollster::block_on(volume.close()).unwrap();
        driven.join().unwrap();
    }

    /// The new sync was once ignored because the stopping one still ran.
    #[test]
    fn do_sync_during_stop_starts_a_new_sync() {
        let (volume, recovery) = dirty_volume(flash(), 60);
        let service = served((volume.clone(), recovery));
        for setting in ["do_sync=1", "stop_sync=1", "do_sync=1"] {
            service.set([setting].into_iter()).unwrap();
        }
        assert!(service.sync.is_running());
        while service.sync.is_running() {
            std::thread::yield_now();
        }
        assert_eq!(volume.stats().dirty_blocks, 0);
    }

    /// The request was once answered by the running sync, which had not seen the newest dirty blocks.
    #[test]
    fn do_sync_during_sync_cleans_newer_dirty_blocks_too() {
        let (volume, recovery) = dirty_volume(flash(), 60);
        let service = served((volume.clone(), recovery));
        service.set(["do_sync=1"].into_iter()).unwrap();
        while volume.stats().dirty_blocks == 60 {
            std::thread::yield_now();
        }
        let data = IoBuffer::copy_of(&[2; 4096]).into();
        pollster::block_on(volume.write(1 << 29, data, false)).unwrap();
        assert!(service.sync.is_running());
        service.set(["do_sync=1"].into_iter()).unwrap();
        while service.sync.is_running() {
            std::thread::yield_now();
        }
        assert_eq!(volume.stats().dirty_blocks, 0);
    }

    /// The request once failed because it rewrote unchanged settings.
    #[test]
    fn zero_stats_works_after_a_flash_failure() {
        let faulty = Arc::new(FaultDevice::new(flash(), 1, Faults::default()));
        let (volume, recovery) = dirty_volume(Arc::clone(&faulty) as _, 2);
        let before = faulty.counters().writes;
        let service = served((volume.clone(), recovery));
        let result = service.set(["do_sync=0"].into_iter()).unwrap();
        assert_eq!(result["tuning"]["mode"], "write-back");
        assert_eq!(faulty.counters().writes, before, "nothing is written");
        faulty.set_faults(Faults { failed_writes: 1.0, ..Faults::default() });
        pollster::block_on(volume.flush()).unwrap_err();
        service.set(["zero_stats=1"].into_iter()).unwrap();
        assert_eq!(volume.stats().counters.writes, 0);
        service.set(["zero_stats=1", "dirty_percent=33"].into_iter()).unwrap_err();
    }
}
