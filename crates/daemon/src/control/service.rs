//! The requests of a control socket, executed on a server.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block::export::{Admission, CurrentVolume, Meter};
use block::volume::Recovery;
use device::{Clock, Device, SystemClock};
use serde_json::{Value, json};

use super::{MAX_REQUEST_BYTES, PROGRESS_INTERVAL, Request};
use crate::devices::Devices;
use crate::front_end::Monitor;
use crate::online_changes;
use crate::operations::{flush, set, settings_json, upgrade};
use crate::recording::Failure;
use crate::settings::{Action, GivenRules, action};
use crate::status::{figures, requests};
use crate::sync::BackgroundSync;

/// A device below the cache: `flash` or `disk`.
pub type Below = (&'static str, Arc<dyn Device>);

/// A served cache.
pub struct Cache {
    pub current: CurrentVolume,
    /// The result of opening the cache.
    pub recovery: Recovery,
    /// Decides for which clients blocks are cached.
    pub admission: Arc<Admission>,
    /// The names of flash and disk.
    pub devices: Mutex<Devices>,
}

/// A server, as its control socket reports and changes it.
pub struct Controlled {
    /// `None` if a disk is served without a cache.
    pub cached: Option<Cache>,
    /// The address by which clients use the disk.
    pub place: String,
    /// Files and block devices that no result may overwrite.
    pub devices: Vec<PathBuf>,
    /// The block device of a front end, whose size is fixed.
    pub block_device: Option<PathBuf>,
    /// Front ends that add to the status.
    pub monitors: Vec<Arc<dyn Monitor>>,
    /// Counts and latencies of clients' requests.
    pub meter: Arc<Meter>,
    /// The devices below the cache and their roles.
    pub below: Arc<Mutex<Vec<Below>>>,
    /// The error that ended the recording, once there is one; `None` without `--record`.
    pub recording: Option<Failure>,
}

/// State of a control socket.
pub struct Service {
    server: Controlled,
    started_ns: u64,
    /// Time since which counters count.
    counted_since_ns: AtomicU64,
    sync: BackgroundSync,
    /// Serialises changes of settings: a change between reading and writing them would be lost.
    setting: Mutex<()>,
}

impl Service {
    pub fn new(server: Controlled) -> Arc<Self> {
        let started_ns = SystemClock.monotonic_ns();
        Arc::new(Self {
            server,
            started_ns,
            counted_since_ns: AtomicU64::new(started_ns),
            sync: BackgroundSync::default(),
            setting: Mutex::new(()),
        })
    }
}

impl Service {
    /// Answers one request. If the client disconnects, the request still completes, except that a flush stops and keeps the progress made.
    pub(super) fn answer(&self, stream: &UnixStream) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let mut line = String::new();
        if BufReader::new(io::Read::take(stream, MAX_REQUEST_BYTES)).read_line(&mut line).is_err() {
            return;
        }
        let answer = Request::parse(&line).and_then(|request| match request {
            Request::Status => Ok(self.status()),
            Request::Set(assignments) => while_reporting(stream, || self.set(assignments)),
            Request::Flush => self.flush(stream),
            Request::Upgrade => while_reporting(stream, || upgrade(&self.cache()?.current.volume())),
            Request::Grow => while_reporting(stream, || self.grow()),
            Request::ReplaceFlash { force, to } => while_reporting(stream, || {
                online_changes::replace_flash(self.cache()?, &self.server.below, to, force)
            }),
        });
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
        self.server.cached.as_ref().ok_or_else(|| without_cache(&self.server.place))
    }

    /// The status.
    pub fn status(&self) -> Value {
        let now_ns = SystemClock.monotonic_ns();
        let up_seconds = (now_ns - self.started_ns) as f64 / 1e9;
        let counted_seconds =
            now_ns.saturating_sub(self.counted_since_ns.load(Ordering::Relaxed)) as f64 / 1e9;
        let mut value = match &self.server.cached {
            Some(Cache { current, recovery, .. }) => figures::of_volume(&current.volume(), recovery),
            None => json!({ "world": "real", "volume": null }),
        };
        value["version"] = env!("CARGO_PKG_VERSION").into();
        value["serving"] = self.server.place.clone().into();
        value["devices"] = self.server.devices.iter().map(|path| path.display().to_string()).collect();
        value["up_seconds"] = up_seconds.into();
        value["counted_seconds"] = counted_seconds.into();
        value["requests"] = requests::of_meter(&self.server.meter);
        for (name, device) in lock(&self.server.below).iter() {
            value[*name] = figures::of_device(&**device);
        }
        if let Some(Cache { admission, .. }) = &self.server.cached {
            value["state"]["syncing"] = self.sync.is_running().into();
            value["rules"] = figures::of_admission(admission, &self.server.monitors);
        }
        if let Some(failure) = &self.server.recording {
            value["recording"] = json!({ "error": failure.get() });
        }
        self.server.monitors.iter().for_each(|monitor| monitor.add_to(&mut value));
        value
    }

    fn set<'a>(&self, assignments: impl IntoIterator<Item = &'a str>) -> Result<Value, String> {
        let _alone = lock(&self.setting);
        let Cache { current, admission, .. } = self.cache()?;
        let volume = current.volume();
        let (mut settings, mut actions) = (Vec::new(), Vec::new());
        let mut given = GivenRules::to(admission.rules());
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
            false => set(&volume, settings)?,
        };
        if let Some(rules) = given.rules() {
            admission.set_rules(rules);
        }
        result["rules"] = figures::of_rules(&admission.rules());
        actions.into_iter().try_for_each(|action| self.perform(action))?;
        Ok(result)
    }

    fn perform(&self, action: Action) -> Result<(), String> {
        let Cache { current, admission, .. } = self.cache()?;
        let volume = current.volume();
        match action {
            Action::ZeroStats => {
                volume.zero_stats();
                admission.zero();
                self.server.meter.zero();
                self.counted_since_ns.store(SystemClock.monotonic_ns(), Ordering::Relaxed);
                Ok(())
            }
            Action::DoSync => self.sync.begin(&volume),
            Action::StopSync => {
                self.sync.stop();
                Ok(())
            }
        }
    }

    fn grow(&self) -> Result<Value, String> {
        match &self.server.block_device {
            Some(path) => Err(format!(
                "{} cannot change its size while it is served: unmount it, stop the server, run `block grow` with --flash and \
                 --disk, and serve it again",
                path.display()
            )),
            None => online_changes::grow_disk(self.cache()?, &self.server.below),
        }
    }

    /// Cleans all dirty blocks while the client is connected, and reports progress.
    fn flush(&self, stream: &UnixStream) -> Result<Value, String> {
        flush(&self.cache()?.current.volume(), |progress| writeln!(&*stream, "{progress}").is_ok())
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn without_cache(place: &str) -> String {
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

#[cfg(test)]
mod tests {
    use block::volume::{Volume, VolumeConfig};
    use device::event_loop::wait_for;
    use device::timer::SystemTimer;
    use device::wrap::{FaultDevice, Faults, Mechanics, SpindleDevice};
    use device::{IoBuffer, MemoryDevice};

    use super::*;
    use crate::devices::Opening;

    /// A volume on this flash and a slow disk, with `blocks` dirty blocks that are not adjacent.
    fn dirty_volume(flash: Arc<dyn Device>, blocks: u64) -> (Volume, Recovery) {
        let timer = || Arc::new(SystemTimer::default());
        let disk = Arc::new(MemoryDevice::new(1 << 30));
        let disk: Arc<dyn Device> = Arc::new(SpindleDevice::new(disk, timer(), Mechanics::default()));
        wait_for(async {
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
        let opening = Opening { buffered: false };
        let devices = Devices { flash: "flash".into(), disk: "disk".into(), opening };
        let current = CurrentVolume::new(volume);
        let cache = Cache { current, recovery, admission: Arc::default(), devices: Mutex::new(devices) };
        Service::new(Controlled {
            cached: Some(cache),
            place: "here".into(),
            devices: Vec::new(),
            block_device: None,
            monitors: Vec::new(),
            meter: Meter::new(),
            below: Arc::default(),
            recording: None,
        })
    }

    fn flash() -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice::new(64 << 20))
    }

    /// Catches a regression: the flush goes on for hours after its client is interrupted.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test waits for a flush to stop")]
    fn flush_stops_if_its_client_disconnects() {
        let (volume, _) = dirty_volume(flash(), 5000);
        let upkeep = volume.clone();
        let driven = std::thread::spawn(move || wait_for(upkeep.run_upkeep()));
        let error = flush(&volume, |_| false).unwrap_err();
        assert!(error.starts_with("stopped with "), "{error}");
        // Writes in flight complete.
        let mut before = u64::MAX;
        while volume.stats().dirty_blocks < before {
            before = volume.stats().dirty_blocks;
            std::thread::sleep(Duration::from_secs(1));
        }
        assert!(before > 0, "all blocks were written");
        wait_for(volume.close()).unwrap();
        driven.join().unwrap();
    }

    /// Catches a regression: the new sync is ignored because the stopping one still runs.
    #[test]
    fn do_sync_during_stop_starts_a_new_sync() {
        let (volume, recovery) = dirty_volume(flash(), 60);
        let service = served((volume.clone(), recovery));
        for setting in ["do_sync=1", "stop_sync=1", "do_sync=1"] {
            service.set([setting]).unwrap();
        }
        assert!(service.sync.is_running());
        while service.sync.is_running() {
            std::thread::yield_now();
        }
        assert_eq!(volume.stats().dirty_blocks, 0);
    }

    /// Catches a regression: the request is answered by the running sync, which does not include the newest dirty
    /// blocks.
    #[test]
    fn do_sync_during_sync_cleans_newer_dirty_blocks_too() {
        let (volume, recovery) = dirty_volume(flash(), 60);
        let service = served((volume.clone(), recovery));
        service.set(["do_sync=1"]).unwrap();
        while volume.stats().dirty_blocks == 60 {
            std::thread::yield_now();
        }
        let data = IoBuffer::copy_of(&[2; 4096]).into();
        wait_for(volume.write(1 << 29, data, false)).unwrap();
        assert!(service.sync.is_running());
        service.set(["do_sync=1"]).unwrap();
        while service.sync.is_running() {
            std::thread::yield_now();
        }
        assert_eq!(volume.stats().dirty_blocks, 0);
    }

    #[test]
    fn disk_with_a_block_device_of_the_kernel_does_not_grow() {
        let service = served(dirty_volume(Arc::new(MemoryDevice::new(8 << 20)), 0));
        let mut service = Arc::into_inner(service).unwrap();
        service.server.block_device = Some("/dev/ublkb3".into());
        let refused = service.grow().unwrap_err();
        assert!(refused.starts_with("/dev/ublkb3 cannot change its size while it is served"), "{refused}");
    }

    /// Catches a regression: the request fails because it rewrites unchanged settings.
    #[test]
    fn zero_stats_works_after_a_flash_failure() {
        let faulty = Arc::new(FaultDevice::new(flash(), 1, Faults::default()));
        let (volume, recovery) = dirty_volume(Arc::clone(&faulty) as _, 2);
        let before = faulty.counters().writes;
        let service = served((volume.clone(), recovery));
        let result = service.set(["do_sync=0"]).unwrap();
        assert_eq!(result["tuning"]["mode"], "write-back");
        assert_eq!(faulty.counters().writes, before, "nothing is written");
        faulty.set_faults(Faults { failed_writes: 1.0, failed_flushes: 1.0, ..Faults::default() });
        wait_for(volume.flush()).unwrap_err();
        service.set(["zero_stats=1"]).unwrap();
        assert_eq!(volume.stats().counters.writes, 0);
        service.set(["zero_stats=1", "dirty_percent=33"]).unwrap_err();
    }
}
