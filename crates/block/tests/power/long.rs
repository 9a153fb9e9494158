//! Long histories of several concurrent clients in virtual time, with random power cuts. The recovered contents start the next history.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use device::sim::LatencyModel;
use device::wrap::{CrashDevice, Power};
use device::{SimulatedDevice, Simulation};
use flashwright_block::sets::{Mode, Placement, SetPolicy, Tuning};
use flashwright_block::volume::superblock::{FORMAT_VERSION, OLDEST_FORMAT};
use flashwright_block::volume::{Volume, VolumeConfig};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::history::{Shape, draw_step, read_all, take_shared};
use crate::ledger::{Ledger, SECTOR};
use crate::stage::{DISK_BYTES, Media, Opens, Stage, config};

const CLIENTS: usize = 4;

/// The operations between two power cuts, with their probabilities.
#[derive(Debug, Clone, Copy)]
pub struct Turns {
    /// Probability of an upgrade.
    pub upgrades: f64,
    /// Probability of a mode change between two steps of the upkeep.
    pub modes: f64,
}

impl Turns {
    /// Occasional upgrades, without mode changes.
    pub const FEW: Self = Self { upgrades: 0.2, modes: 0.0 };
}

/// A cache with settings drawn from the seed.
pub fn drawn_config(seed: u64) -> VolumeConfig {
    let mut random = StdRng::seed_from_u64(seed ^ 0xc0ff);
    let modes = [
        Mode::WriteBack,
        Mode::WriteBack,
        Mode::WriteBack,
        Mode::WriteOnly,
        Mode::WriteThrough,
        Mode::WriteAround,
    ];
    let mut config = config(modes[seed as usize % modes.len()]);
    // Some volumes have format 1 and are upgraded later.
    config.format = [FORMAT_VERSION, OLDEST_FORMAT][(seed / 6) as usize % 2];
    config.checksums = random.random_bool(0.5);
    config.ordered = config.tuning.mode.keeps_dirty() && random.random_bool(0.3);
    config.tuning = Tuning {
        policy: if random.random_bool(0.5) { SetPolicy::Fifo } else { config.tuning.policy },
        dirty_percent: [10, 50, 100][random.random_range(0..3)],
        // Long requests bypass the cache.
        read_bypass_bytes: [0, 6 << 10][random.random_range(0..2)],
        write_bypass_bytes: [0, 6 << 10][random.random_range(0..2)],
        ..config.tuning
    };
    if random.random_bool(0.2) {
        config.ways = random.random_range(1..12);
        config.placement = Placement::Permuted { run_bytes: 4096 };
    }
    config
}

/// Changes the volume to another mode that it supports.
async fn turn_mode(volume: &Volume, random: &mut StdRng) -> flashwright_block::volume::Result<()> {
    let superblock = volume.superblock();
    let modes = [Mode::WriteBack, Mode::WriteOnly, Mode::WriteThrough, Mode::WriteAround];
    let most = if superblock.ordered { 2 } else { 4 };
    let mode = modes[random.random_range(0..most)];
    volume.set_tuning(Tuning { mode, ..superblock.tuning }).await
}

/// Runs a volume from opening to a power cut.
pub fn live(
    media: &Media,
    ledger: Ledger,
    seed: u64,
    turns: Turns,
) -> (Arc<CrashDevice>, Arc<CrashDevice>, Ledger, Option<String>) {
    let mut random = StdRng::seed_from_u64(seed);
    let simulation = Simulation::new(seed);
    let power = Arc::new(Power::default());
    power.cut_after(random.random_range(0..260));
    let latency = LatencyModel { channels: random.random_range(1..8), ..LatencyModel::default() };
    // Every other time the flash is a file, whose intent log is written to the page cache.
    let absorbs = seed % 2 == 1;
    let device = |memory: &device::MemoryDevice| {
        let memory = memory.duplicate().absorbing(absorbs);
        let live = SimulatedDevice::new(simulation.world(), Arc::new(memory.duplicate()), latency);
        Arc::new(CrashDevice::over(Arc::new(live), memory.duplicate()).powered_by(&power))
    };
    let (flash, disk) = (device(&media.flash), device(&media.disk));
    let ledger = Rc::new(RefCell::new(ledger));
    let wrong = Rc::new(RefCell::new(None));
    let world = simulation.world();
    let open = Volume::open(flash.clone(), disk.clone(), Arc::new(simulation.world()));
    let (opened, reported) = (Rc::new(RefCell::new(None)), Rc::clone(&wrong));
    let opening = Rc::clone(&opened);
    let switch = Arc::clone(&power);
    simulation.spawn(async move {
        match open.await {
            Ok((volume, _)) => *opening.borrow_mut() = Some(volume),
            Err(_) if switch.is_cut() => {}
            Err(error) => *reported.borrow_mut() = Some(format!("opening: {error}")),
        }
    });
    simulation.run_until_idle();
    if let Some(volume) = opened.borrow_mut().take() {
        let sectors = DISK_BYTES as usize / SECTOR / CLIENTS;
        for client in 0..CLIENTS {
            let (volume, ledger, wrong, power) =
                (volume.clone(), ledger.clone(), wrong.clone(), power.clone());
            let seed = random.random();
            let shape = Shape { steps: 0, sectors: sectors.min(96), longest: 24, with_trims: true };
            simulation.spawn(async move {
                let mut random = StdRng::seed_from_u64(seed);
                for _ in 0..60 {
                    let step = draw_step(&shape, &mut random).moved(client * sectors);
                    match take_shared(&volume, &ledger, step).await {
                        Ok(Ok(())) => {}
                        Ok(Err(reported)) => *wrong.borrow_mut() = Some(format!("{step:?}: {reported}")),
                        Err(_) if power.is_cut() => return,
                        Err(error) => *wrong.borrow_mut() = Some(format!("{step:?} failed: {error}")),
                    }
                }
            });
        }
        let upkeep = volume;
        let upgrade_at = random.random_bool(turns.upgrades).then(|| random.random_range(0..20));
        let mut random = StdRng::seed_from_u64(seed ^ 0xd1a1);
        let (reported, switch) = (Rc::clone(&wrong), Arc::clone(&power));
        simulation.spawn(async move {
            for round in 0..100 {
                if upgrade_at == Some(round) {
                    match upkeep.upgrade().await {
                        Ok(_) => {}
                        Err(_) if switch.is_cut() => return,
                        Err(error) => *reported.borrow_mut() = Some(format!("the upgrade failed: {error}")),
                    }
                }
                if turns.modes > 0.0 && random.random_bool(turns.modes) {
                    match turn_mode(&upkeep, &mut random).await {
                        Ok(()) => {}
                        Err(_) if switch.is_cut() => return,
                        Err(error) => *reported.borrow_mut() = Some(format!("another mode: {error}")),
                    }
                }
                if upkeep.upkeep().await.is_err() {
                    return;
                }
                world.sleep(300_000).await;
            }
        });
    }
    simulation.run_until_idle();
    // The tasks hold references, which end with the simulated world.
    drop(simulation);
    let reported = wrong.borrow_mut().take();
    let ledger = Rc::try_unwrap(ledger).unwrap_or_else(|_| panic!("all tasks are gone")).into_inner();
    (flash, disk, ledger, reported)
}

/// Opens the volume after a cut and compares its contents, sometimes also after cleaning.
fn look(media: &Media, ledger: &Ledger, thorough: bool) -> Result<Vec<u8>, String> {
    let message = |error: flashwright_block::volume::VolumeError| error.to_string();
    pollster::block_on(async {
        let stage = Stage::new(media.duplicate());
        let (volume, _) = stage.open().await.map_err(message)?;
        let bytes = read_all(&volume).await.map_err(message)?;
        ledger.check_recovered(0, &bytes)?;
        if thorough {
            volume.clean().await.map_err(message)?;
            if read_all(&volume).await.map_err(message)? != bytes {
                return Err("cleaning changed the contents after the power cut".into());
            }
            volume.close().await.map_err(message)?;
            if crate::short::read_raw(&stage.crash(3).disk) != bytes {
                return Err("the disk lacks cleaned data".into());
            }
        }
        Ok(bytes)
    })
}

/// Repeated runs of one volume.
fn lives(config: &VolumeConfig, turns: Turns, seed: u64, count: u64) {
    let mut media = Media::created(config);
    let mut ledger = Ledger::new(DISK_BYTES);
    for life in 0..count {
        let life_seed = seed << 20 | life;
        let (flash, disk, after, wrong) = live(&media, ledger, life_seed, turns);
        ledger = after;
        if let Some(wrong) = wrong {
            panic!("seed {seed}, life {life}: {wrong}");
        }
        media = Media { flash: flash.crash(life_seed), disk: disk.crash(life_seed ^ 1) };
        let bytes = look(&media, &ledger, life % 4 == 0);
        ledger.adopt(&bytes.unwrap_or_else(|wrong| panic!("seed {seed}, after life {life}: {wrong}")));
    }
}

#[test]
fn random_power_cuts_with_many_clients_keep_durable_data() {
    let times = std::env::var("FLASHWRIGHT_TEST_SEEDS").map_or(1, |text| text.parse().unwrap());
    for seed in 0..24 * times {
        lives(&drawn_config(seed), Turns::FEW, seed, 10);
    }
}

/// After a mode change, a write that bypasses or writes through the cache must not lose a block's older dirty sectors.
#[test]
fn dirty_data_survives_a_mode_change_followed_by_writes_and_power_cuts() {
    let times = std::env::var("FLASHWRIGHT_TEST_SEEDS").map_or(1, |text| text.parse().unwrap());
    for seed in 0..24 * times {
        lives(&drawn_config(seed), Turns { modes: 0.1, ..Turns::FEW }, 2000 + seed, 10);
    }
}

/// Writes during the upgrade are recorded in the older format until the new table takes effect.
#[test]
fn random_power_cuts_during_upgrades_keep_durable_data() {
    for seed in 0..60 {
        let config = VolumeConfig { format: OLDEST_FORMAT, ..drawn_config(seed / 6 * 6) };
        let policy = SetPolicy::Lru2q { hot_percent: 75, promote_hits: 1 };
        let config = VolumeConfig { tuning: Tuning { policy, ..config.tuning }, ..config };
        lives(&config, Turns { upgrades: 1.0, ..Turns::FEW }, 1000 + seed, 2);
    }
}

/// A commit that flushes only the disk does not make a table durable.
#[test]
fn table_waits_for_a_commit_that_flushes_the_flash() {
    lives(
        &VolumeConfig { format: FORMAT_VERSION, ..drawn_config(90) },
        Turns { upgrades: 0.0, ..Turns::FEW },
        90,
        10,
    );
}
