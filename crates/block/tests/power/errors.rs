//! Failing requests: request 0, 1, 2 … of a device fails, once or permanently, until a history completes without a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use device::{Completion, Device, ErrorKind, IoError, Request};
use flashwright_block::sets::Mode;
use flashwright_block::volume::{Health, Volume, VolumeConfig, VolumeErrorKind};

use crate::history::{Shape, Step, draw, read_all, take};
use crate::ledger::Ledger;
use crate::stage::{DISK_BYTES, Media, Opens, Stage, config};

/// A device whose request number `first` fails, and all later requests too if the failure is permanent.
pub struct Failing {
    inner: Arc<dyn Device>,
    requests: AtomicU64,
    first: u64,
    permanent: bool,
}

impl Failing {
    pub fn new(inner: Arc<dyn Device>, first: u64, permanent: bool) -> Arc<Self> {
        Arc::new(Self { inner, requests: AtomicU64::new(0), first, permanent })
    }

    pub fn has_failed(&self) -> bool {
        self.requests.load(SeqCst) > self.first
    }
}

impl Device for Failing {
    device::forward_device!(inner: geometry, counters);

    fn submit(&self, request: Request, completion: Completion) {
        let number = self.requests.fetch_add(1, SeqCst);
        if number == self.first || (self.permanent && number > self.first) {
            return completion.complete(Err(IoError::new(ErrorKind::Medium, "injected")));
        }
        self.inner.submit(request, completion);
    }
}

#[derive(Debug, Clone, Copy)]
enum Victim {
    Flash,
    Disk,
}

/// Runs a history on a failing device and continues after each error. Returns true if no request failed.
fn play_on(
    media: &Media,
    mut ledger: Ledger,
    steps: &[Step],
    victim: Victim,
    first: u64,
    permanent: bool,
) -> Result<bool, String> {
    let stage = Stage::new(media.duplicate());
    let failing = match victim {
        Victim::Flash => Failing::new(stage.flash.clone(), first, permanent),
        Victim::Disk => Failing::new(stage.disk.clone(), first, permanent),
    };
    let opened = || {
        let (mut flash, mut disk): (Arc<dyn Device>, Arc<dyn Device>) =
            (stage.flash.clone(), stage.disk.clone());
        match victim {
            Victim::Flash => flash = failing.clone(),
            Victim::Disk => disk = failing.clone(),
        }
        Volume::open(flash, disk, stage.timer())
    };
    pollster::block_on(async {
        let volume = opened().await;
        let mut errors = 0;
        if let Ok((mut volume, _)) = volume {
            for step in steps {
                if matches!(step, Step::Reopen) {
                    continue;
                }
                match take(&mut volume, &stage, &mut ledger, *step).await {
                    Ok(outcome) => outcome.map_err(|wrong| format!("{step:?}: {wrong}"))?,
                    Err(error) if failing.has_failed() => {
                        errors += 1;
                        // A mode that keeps no dirty blocks continues without its flash.
                        let keeps_dirty = volume.superblock().tuning.mode.keeps_dirty();
                        let is_client = !matches!(step, Step::Upkeep);
                        if is_client && matches!(victim, Victim::Flash) && !keeps_dirty {
                            return Err(format!("{step:?}: {error}, though nothing needs the flash"));
                        }
                        let kinds = [VolumeErrorKind::Flash, VolumeErrorKind::Disk];
                        if !kinds.contains(&error.kind()) {
                            return Err(format!("{step:?}: {error} ({:?})", error.kind()));
                        }
                    }
                    Err(error) => return Err(format!("{step:?} failed by itself: {error}")),
                }
            }
            if errors == 0 && volume.stats().health != Health::Healthy && !failing.has_failed() {
                return Err("ill without a reason".into());
            }
        } else if !failing.has_failed() {
            return Err("opening failed by itself".into());
        }
        Ok(())
    })?;
    // The process is killed, and both devices work again: acknowledged writes must be present.
    let found = Stage::new(Media { flash: stage.flash.kill(first), disk: stage.disk.kill(first) });
    pollster::block_on(async {
        let (volume, _) = found.open().await.map_err(|error| format!("opening after a kill: {error}"))?;
        let bytes = read_all(&volume).await.map_err(|error| format!("reading after a kill: {error}"))?;
        ledger.check_read(0, &bytes).map_err(|wrong| format!("after a kill: {wrong}"))
    })?;
    // Checks the data after a power cut instead of a kill.
    let found = Stage::new(stage.crash(first));
    pollster::block_on(async {
        let (volume, _) = found.open().await.map_err(|error| format!("opening again: {error}"))?;
        let bytes = read_all(&volume).await.map_err(|error| format!("reading: {error}"))?;
        ledger.check_recovered(0, &bytes)?;
        volume.clean().await.map_err(|error| format!("cleaning: {error}"))?;
        let again = read_all(&volume).await.map_err(|error| format!("reading: {error}"))?;
        if again == bytes { Ok(()) } else { Err("cleaning changed the contents".to_owned()) }
    })?;
    Ok(!failing.has_failed())
}

fn fail_each_request(mode: Mode, victim: Victim, permanent: bool, seeds: std::ops::Range<u64>) {
    let start = (Media::created(&config(mode)), Ledger::new(DISK_BYTES));
    fail_each_request_from(&start, victim, permanent, seeds, &format!("{mode:?}"));
}

fn fail_each_request_from(
    (media, ledger): &(Media, Ledger),
    victim: Victim,
    permanent: bool,
    seeds: std::ops::Range<u64>,
    what: &str,
) {
    let shape = Shape { steps: 20, sectors: 300, longest: 24, with_trims: true };
    for seed in seeds {
        let steps = draw(&shape, seed);
        for first in 0.. {
            match play_on(media, ledger.clone(), &steps, victim, first, permanent) {
                Ok(true) => break,
                Ok(false) => {}
                Err(wrong) => {
                    panic!(
                        "{what}, {victim:?}, seed {seed}, request {first}, permanent: {permanent}: {wrong}"
                    )
                }
            }
        }
    }
}

#[test]
fn flash_failing_once_or_permanently_is_reported_and_loses_no_durable_data() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly] {
        for permanent in [false, true] {
            fail_each_request(mode, Victim::Flash, permanent, 0..3);
        }
    }
}

#[test]
fn disk_failing_once_or_permanently_is_reported_and_loses_no_durable_data() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly] {
        for permanent in [false, true] {
            fail_each_request(mode, Victim::Disk, permanent, 0..3);
        }
    }
}

/// A volume that was killed with cached blocks, so that its first commit flushes the disk.
fn killed(config: &VolumeConfig) -> (Media, Ledger) {
    let stage = Stage::new(Media::created(config));
    let mut ledger = Ledger::new(DISK_BYTES);
    pollster::block_on(async {
        let (mut volume, _) = stage.open().await.unwrap();
        let write = |first, durable| Step::Write { first, count: 24, durable };
        for step in [write(8, true), write(16, true), write(24, false)] {
            take(&mut volume, &stage, &mut ledger, step).await.unwrap().unwrap();
        }
    });
    (Media { flash: stage.flash.kill(1), disk: stage.disk.kill(1) }, ledger)
}

/// Only in an ordered volume does a commit that records an epoch flush the disk.
#[test]
fn killed_ordered_volume_reports_failures_and_keeps_durable_data() {
    let start = killed(&VolumeConfig { ordered: true, ..config(Mode::WriteBack) });
    for victim in [Victim::Flash, Victim::Disk] {
        for permanent in [false, true] {
            fail_each_request_from(&start, victim, permanent, 0..3, "ordered");
        }
    }
}

/// A server waits for its upkeep task, which ends only when the volume is closed.
#[test]
fn close_with_a_failing_device_closes_the_volume_and_ends_upkeep() {
    for victim in [Victim::Flash, Victim::Disk] {
        let media = Media::created(&config(Mode::WriteBack));
        let mut first = 0;
        // The first request whose failure lets the volume open belongs to closing.
        loop {
            let stage = Stage::new(media.duplicate());
            let (mut flash, mut disk): (Arc<dyn Device>, Arc<dyn Device>) =
                (stage.flash.clone(), stage.disk.clone());
            match victim {
                Victim::Flash => flash = Failing::new(flash, first, true),
                Victim::Disk => disk = Failing::new(disk, first, true),
            }
            first += 1;
            let Ok((volume, _)) = pollster::block_on(Volume::open(flash, disk, stage.timer())) else {
                continue;
            };
            assert!(pollster::block_on(volume.close()).is_err(), "{victim:?}");
            assert_eq!(volume.stats().health, Health::Closed, "{victim:?}");
            pollster::block_on(volume.run_upkeep());
            break;
        }
    }
}
