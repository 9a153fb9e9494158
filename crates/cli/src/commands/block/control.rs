//! How `status`, `set`, `flush` and `upgrade` reach a server: a socket beside its own.
//!
//! A client sends one line: `status`, `set KEY=VALUE …`, `flush` or `upgrade`. It is answered with lines of JSON, of which
//! the last has `done`, or `error` with the reason. What takes long tells twice a second that it goes on, so that a client
//! who hears nothing knows that the server is stopped. Whoever may open the socket may do all of it: it is made for its
//! owner alone.

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

use super::deeds::{Deed, deed};
use super::knobs::Given;
use super::sync::Syncing;
use super::{figures, requests, rules};
use crate::files::Files;
use crate::output::{Common, names_of};

/// How often a flush tells how far it is, and what else takes long that it goes on.
const TELL: Duration = Duration::from_millis(500);

/// A server that is silent for so long is stopped, or its machine has lost its devices.
const SILENCE: Duration = Duration::from_secs(10);

/// How long nobody is heard after it was impossible: there are no descriptors left, say, and to look all the time would take a
/// processor.
const PAUSE: Duration = Duration::from_millis(50);

/// A longer line is no request. Two lists of a hundred networks of IPv6 are shorter.
const REQUEST_BYTES: u64 = 16_384;

/// Which server.
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

/// An address and a port as they are; nobody is asked what a name stands for.
pub fn tcp_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port, like 127.0.0.1:10809 or [::1]:10809".into())
}

impl Target {
    /// The control socket, if any server was named.
    pub fn path(&self) -> Option<PathBuf> {
        let of_socket = || self.socket.as_deref().map(beside);
        let of_listen = || self.listen.map(|address| of_port(address.port()));
        self.control.clone().or_else(of_socket).or_else(of_listen).or_else(|| self.ublk.map(of_ublk))
    }

    /// Refuses a result that would be written over a device of the server's, which alone knows them.
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

/// The control socket of a server that listens at the socket `path`.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".control");
    name.into()
}

/// The control socket of a server that listens at a TCP port.
pub fn of_port(port: u16) -> PathBuf {
    of_this_machine(&port.to_string())
}

/// The control socket of a server that is a block device and nothing else.
pub fn of_ublk(number: u32) -> PathBuf {
    of_this_machine(&format!("ublk{number}"))
}

fn of_this_machine(which: &str) -> PathBuf {
    let directory = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    directory.join(format!("flashwright-{which}.control"))
}

/// Asks the server at `path`; every line of its answer but the last goes to `told`.
pub fn ask(path: &Path, request: &str, mut told: impl FnMut(&Value)) -> Result<Value, String> {
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
            told(&value);
        }
    }
    Err(format!("the server at {} closed the connection", path.display()))
}

/// A connection whose every step ends after [`SILENCE`]: also being let in, for which those queue whom a stopped server has not
/// heard.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(SILENCE))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(SILENCE))?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// A device below the cache: `flash` or `disk`.
pub type Below = (&'static str, Arc<dyn Device>);

/// A cache that is served.
pub struct Cache {
    pub volume: Volume,
    /// How it was found.
    pub recovery: Recovery,
    /// Whose blocks it takes.
    pub admission: Arc<Admission>,
}

/// What a control socket serves.
pub struct Service {
    /// None where a disk is served alone.
    cached: Option<Cache>,
    /// Where the disk is used.
    place: String,
    /// What nobody else may write over: files, and devices of the system.
    devices: Vec<PathBuf>,
    /// Of NBD clients, if there are any.
    server: Option<Arc<Server>>,
    /// What clients ask for.
    meter: Arc<Meter>,
    /// The devices below, and what they are to the cache.
    below: Vec<Below>,
    started_ns: u64,
    /// When counts began.
    zeroed_ns: AtomicU64,
    sync: Syncing,
    /// Settings are read, changed and written by one at a time: another's change in between would be undone.
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
            zeroed_ns: AtomicU64::new(started_ns),
            sync: Syncing::default(),
            setting: Mutex::new(()),
        })
    }
}

/// A control socket at work; dropped, it is gone.
pub struct Listening {
    path: PathBuf,
    /// Device and inode of the socket: somebody else may have put another in its place since.
    known_by: Option<(u64, u64)>,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Listens at `path`.
#[expect(clippy::disallowed_methods, reason = "the command line is the rim: it may sleep")]
pub fn listen(path: &Path, service: Arc<Service>) -> io::Result<Listening> {
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
            // Without a thread the client finds the connection closed, and says so.
            let _ = thread.spawn(move || service.answer(&stream));
        }
    };
    let thread = std::thread::Builder::new().name("block-control".into()).spawn(accept)?;
    Ok(Listening { path: path.into(), known_by: inode(path), closing, thread: Some(thread) })
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        if inode(&self.path) != self.known_by {
            return;
        }
        // The thread waits for somebody to come.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Service {
    /// One request. A client that has gone misses the answer, and what it asked for is done all the same, but for a flush: nobody
    /// could stop it, and what it has written is kept.
    fn answer(&self, stream: &UnixStream) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let mut line = String::new();
        if BufReader::new(io::Read::take(stream, REQUEST_BYTES)).read_line(&mut line).is_err() {
            return;
        }
        let mut words = line.split_whitespace();
        let answer = match words.next() {
            // A setting that was cut off would be another.
            _ if !line.ends_with('\n') => {
                Err(format!("a request must be one line of at most {REQUEST_BYTES} bytes"))
            }
            Some("status") => Ok(self.status()),
            Some("set") => while_telling(stream, || self.set(words)),
            Some("flush") => self.flush(stream),
            Some("upgrade") => while_telling(stream, || upgrade(&self.cache()?.volume)),
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

    /// What can only be done to a cache is refused where there is none.
    fn cache(&self) -> Result<&Cache, String> {
        self.cached.as_ref().ok_or_else(|| without_cache(&self.place))
    }

    fn status(&self) -> Value {
        let now_ns = SystemClock.monotonic_ns();
        let up_seconds = (now_ns - self.started_ns) as f64 / 1e9;
        let counted_seconds = now_ns.saturating_sub(self.zeroed_ns.load(Ordering::Relaxed)) as f64 / 1e9;
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
            value["state"]["syncing"] = self.sync.is_going_on().into();
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
        let (mut settings, mut deeds) = (Vec::new(), Vec::new());
        let mut given = rules::Given::to(admission.rules());
        for assignment in assignments {
            match deed(assignment)? {
                Some(deed) => deeds.extend(deed),
                None if given.apply(assignment)? => {}
                None => settings.push(assignment),
            }
        }
        // To write the same settings once more would take as long, and can fail.
        let mut told = match settings.is_empty() {
            true => told(&volume.superblock().tuning),
            false => set(volume, settings)?,
        };
        if let Some(rules) = given.rules() {
            admission.set_rules(rules);
        }
        told["rules"] = rules::of_rules(&admission.rules());
        deeds.into_iter().try_for_each(|deed| self.perform(deed))?;
        Ok(told)
    }

    fn perform(&self, deed: Deed) -> Result<(), String> {
        let Cache { volume, admission, .. } = self.cache()?;
        match deed {
            Deed::ZeroStats => {
                volume.zero_stats();
                admission.zero();
                self.meter.zero();
                self.zeroed_ns.store(SystemClock.monotonic_ns(), Ordering::Relaxed);
                Ok(())
            }
            Deed::DoSync => self.sync.begin(volume),
            Deed::StopSync => {
                self.sync.stop();
                Ok(())
            }
        }
    }

    /// Cleans everything for as long as the client is there, and tells it now and then how much is left.
    fn flush(&self, stream: &UnixStream) -> Result<Value, String> {
        flush(&self.cache()?.volume, |progress| writeln!(&*stream, "{progress}").is_ok())
    }
}

/// What a server's status has under `name`, which it has of a cache alone.
pub fn part_of_cache<'a>(status: &'a Value, name: &str) -> Result<&'a Value, String> {
    let place = || status["serving"].as_str().unwrap_or("the server's place");
    status.get(name).ok_or_else(|| without_cache(place()))
}

fn without_cache(place: &str) -> String {
    format!("{place} is a disk without a cache: its server was started without --flash")
}

/// Does `work`, and tells now and then that it goes on.
fn while_telling(
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
        while ended.recv_timeout(TELL) == Err(RecvTimeoutError::Timeout) {
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
    Ok(told(&tuning))
}

fn told(tuning: &Tuning) -> Value {
    json!({ "tuning": figures::of_tuning(tuning) })
}

/// Brings an open volume to the newest format.
pub fn upgrade(volume: &Volume) -> Result<Value, String> {
    let before = pollster::block_on(volume.upgrade()).map_err(|error| error.to_string())?;
    Ok(json!({ "format_before": before, "format": volume.superblock().format }))
}

/// Brings everything dirty of an open volume to the disk; `tell` hears now and then how much is left, and for how long, and says
/// whether it is to go on.
pub fn flush(volume: &Volume, mut tell: impl FnMut(&Value) -> bool) -> Result<Value, String> {
    let (started_ns, dirty_before) = (SystemClock.monotonic_ns(), volume.stats().dirty_blocks);
    let (sender, ended) = channel();
    let cleaned = volume.clone();
    let stopped = Arc::new(AtomicBool::new(false));
    let is_stopped = Arc::clone(&stopped);
    let thread = std::thread::Builder::new().name("block-flush".into());
    let thread = thread.spawn(move || {
        let cleaning = unless(&is_stopped, cleaned.clean());
        // Once it is stopped nobody listens.
        pollster::block_on(cleaning).map(|result| sender.send(result))
    });
    thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    loop {
        match ended.recv_timeout(TELL) {
            Ok(Ok(())) => break,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(RecvTimeoutError::Disconnected) => return Err("the thread of the flush panicked".into()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let left = volume.stats().dirty_blocks;
        let passed_seconds = (SystemClock.monotonic_ns() - started_ns) as f64 / 1e9;
        let done = dirty_before.saturating_sub(left);
        let seconds_left = (done > 0).then(|| passed_seconds * left as f64 / done as f64);
        if !tell(&json!({ "dirty_blocks": left, "seconds_left": seconds_left })) {
            stopped.store(true, Ordering::Release);
            return Err(format!("stopped with {left} dirty {} left", noun(left, "block")));
        }
    }
    let seconds = (SystemClock.monotonic_ns() - started_ns) as f64 / 1e9;
    let left = volume.stats().dirty_blocks;
    Ok(json!({ "dirty_blocks_before": dirty_before, "dirty_blocks": left, "seconds": seconds }))
}

/// What `work` comes to, or nothing if it `is_stopped` before: then it is dropped at its next step.
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

    /// A volume on this flash and a slow disk, with so many dirty blocks that are no neighbours.
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

    /// It went on for hours, and whoever had interrupted its client could not stop it.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a flush is waited for that does not come")]
    fn a_flush_went_on_whose_client_had_gone() {
        let (volume, _) = dirty_volume(flash(), 5000);
        let upkeep = volume.clone();
        let driven = std::thread::spawn(move || pollster::block_on(upkeep.run_upkeep()));
        let told = flush(&volume, |_| false).unwrap_err();
        assert!(told.starts_with("stopped with "), "{told}");
        // What was under way ends.
        let mut before = u64::MAX;
        while volume.stats().dirty_blocks < before {
            before = volume.stats().dirty_blocks;
            std::thread::sleep(Duration::from_secs(1));
        }
        assert!(before > 0, "it was all written");
        pollster::block_on(volume.close()).unwrap();
        driven.join().unwrap();
    }

    /// It was taken for the one that goes on, which ended at its next step.
    #[test]
    fn a_sync_that_was_asked_for_while_another_stopped_never_began() {
        let (volume, recovery) = dirty_volume(flash(), 60);
        let service = served((volume.clone(), recovery));
        for asked in ["do_sync=1", "stop_sync=1", "do_sync=1"] {
            service.set([asked].into_iter()).unwrap();
        }
        assert!(service.sync.is_going_on());
        while service.sync.is_going_on() {
            std::thread::yield_now();
        }
        assert_eq!(volume.stats().dirty_blocks, 0);
    }

    /// It was said to be going on, and ended with what had been dirty when it began.
    #[test]
    fn a_sync_that_was_asked_for_while_another_went_on_left_dirty_what_had_become_so_since() {
        let (volume, recovery) = dirty_volume(flash(), 60);
        let service = served((volume.clone(), recovery));
        service.set(["do_sync=1"].into_iter()).unwrap();
        while volume.stats().dirty_blocks == 60 {
            std::thread::yield_now();
        }
        let data = IoBuffer::copy_of(&[2; 4096]).into();
        pollster::block_on(volume.write(1 << 29, data, false)).unwrap();
        assert!(service.sync.is_going_on());
        service.set(["do_sync=1"].into_iter()).unwrap();
        while service.sync.is_going_on() {
            std::thread::yield_now();
        }
        assert_eq!(volume.stats().dirty_blocks, 0);
    }

    /// They were refused, for they wrote the settings, which nobody had changed, once more.
    #[test]
    fn counts_could_not_begin_anew_once_flash_had_failed() {
        let faulty = Arc::new(FaultDevice::new(flash(), 1, Faults::default()));
        let (volume, recovery) = dirty_volume(Arc::clone(&faulty) as _, 2);
        let before = faulty.counters().writes;
        let service = served((volume.clone(), recovery));
        let told = service.set(["do_sync=0"].into_iter()).unwrap();
        assert_eq!(told["tuning"]["mode"], "write-back");
        assert_eq!(faulty.counters().writes, before, "there was nothing to write");
        faulty.set_faults(Faults { failed_writes: 1.0, ..Faults::default() });
        pollster::block_on(volume.flush()).unwrap_err();
        service.set(["zero_stats=1"].into_iter()).unwrap();
        assert_eq!(volume.stats().counters.writes, 0);
        service.set(["zero_stats=1", "dirty_percent=33"].into_iter()).unwrap_err();
    }
}
