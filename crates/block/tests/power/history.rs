//! Histories: random requests of one client to a volume, with a check of each result against the ledger.

use std::cell::RefCell;

use flashwright_block::volume::{Result, Volume};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::ledger::{Ledger, SECTOR};
use crate::stage::{DISK_BYTES, Opens};

/// A request or a step of background work.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    Write { first: usize, count: usize, durable: bool },
    Zero { first: usize, count: usize, durable: bool },
    Trim { first: usize, count: usize },
    Read { first: usize, count: usize },
    Flush,
    Upkeep,
    Clean,
    Reopen,
    Close,
    Upgrade,
}

/// The distribution of a history's steps.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub steps: usize,
    /// Number of sectors used.
    pub sectors: usize,
    /// Maximum length of a request in sectors.
    pub longest: usize,
    /// Whether some steps trim and zero.
    pub with_trims: bool,
}

pub fn draw(shape: &Shape, seed: u64) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..shape.steps).map(|_| draw_step(shape, &mut random)).collect()
}

pub fn draw_step(shape: &Shape, random: &mut StdRng) -> Step {
    let aligned = random.random_bool(0.6);
    let mut count = random.random_range(1..=shape.longest);
    let mut first = random.random_range(0..=shape.sectors - count);
    if aligned && shape.longest >= 8 {
        (first, count) = (first / 8 * 8, count.next_multiple_of(8).min(shape.longest / 8 * 8));
    }
    let durable = random.random_bool(0.15);
    match random.random_range(0..100) {
        0..48 => Step::Write { first, count, durable },
        48..68 => Step::Read { first, count },
        68..80 => Step::Flush,
        80..88 => Step::Upkeep,
        88..90 => Step::Clean,
        90..92 => Step::Reopen,
        92..96 if shape.with_trims => Step::Trim { first, count },
        96..100 if shape.with_trims => Step::Zero { first, count, durable },
        _ => Step::Read { first, count },
    }
}

/// Runs `steps` until the end or a power cut. Returns an error for a result that the ledger does not permit.
pub async fn play(
    stage: &impl Opens,
    ledger: &mut Ledger,
    steps: &[Step],
) -> std::result::Result<(), String> {
    let Ok((mut volume, _)) = stage.open().await else { return must_be_cut(stage, "opening") };
    for step in steps {
        match take(&mut volume, stage, ledger, *step).await {
            Ok(Ok(())) => {}
            Ok(Err(wrong)) => return Err(format!("{step:?}: {wrong}")),
            Err(error) if stage.power().is_cut() => {
                let _ = error;
                return Ok(());
            }
            Err(error) => return Err(format!("{step:?} failed: {error}")),
        }
    }
    Ok(())
}

fn must_be_cut(stage: &impl Opens, what: &str) -> std::result::Result<(), String> {
    if stage.power().is_cut() { Ok(()) } else { Err(format!("{what} failed with the power on")) }
}

impl Step {
    /// The same operation, moved by `by` sectors.
    pub fn moved(self, by: usize) -> Self {
        match self {
            Self::Write { first, count, durable } => Self::Write { first: first + by, count, durable },
            Self::Zero { first, count, durable } => Self::Zero { first: first + by, count, durable },
            Self::Trim { first, count } => Self::Trim { first: first + by, count },
            Self::Read { first, count } => Self::Read { first: first + by, count },
            other => other,
        }
    }
}

/// Runs a step of one of several clients, each with its own sectors.
pub async fn take_shared(
    volume: &Volume,
    ledger: &RefCell<Ledger>,
    step: Step,
) -> Result<std::result::Result<(), String>> {
    let at = |sector: usize| (sector * SECTOR) as u64;
    match step {
        Step::Write { first, count, durable } => {
            let data = ledger.borrow_mut().begin_write(first, count);
            volume.write(at(first), data, false).await?;
            ledger.borrow_mut().complete(first, count);
            if !durable {
                return Ok(Ok(()));
            }
        }
        Step::Zero { first, count, .. } => {
            ledger.borrow_mut().begin_zero(first, count);
            zero(volume, first, count).await?;
            ledger.borrow_mut().complete(first, count);
            return Ok(Ok(()));
        }
        Step::Trim { first, count } => {
            ledger.borrow_mut().begin_trim(first, count);
            volume.trim(at(first), at(count)).await?;
            ledger.borrow_mut().complete(first, count);
            return Ok(Ok(()));
        }
        Step::Read { first, count } => {
            let bytes = volume.read(at(first), count * SECTOR).await?;
            return Ok(ledger.borrow().check_read(first, &bytes));
        }
        Step::Upkeep => return volume.upkeep().await.map(|_| Ok(())),
        Step::Upgrade => return volume.upgrade().await.map(|_| Ok(())),
        Step::Flush | Step::Clean | Step::Reopen | Step::Close => {}
    }
    let flush = ledger.borrow().begin_flush();
    volume.flush().await?;
    ledger.borrow_mut().end_flush(&flush);
    Ok(Ok(()))
}

pub async fn take(
    volume: &mut Volume,
    stage: &impl Opens,
    ledger: &mut Ledger,
    step: Step,
) -> Result<std::result::Result<(), String>> {
    let at = |sector: usize| (sector * SECTOR) as u64;
    match step {
        Step::Write { first, count, durable } => {
            let data = ledger.begin_write(first, count);
            volume.write(at(first), data, false).await?;
            ledger.complete(first, count);
            flush_if(durable, volume, ledger).await?;
        }
        Step::Zero { first, count, durable } => {
            ledger.begin_zero(first, count);
            zero(volume, first, count).await?;
            ledger.complete(first, count);
            flush_if(durable, volume, ledger).await?;
        }
        Step::Trim { first, count } => {
            ledger.begin_trim(first, count);
            volume.trim(at(first), at(count)).await?;
            ledger.complete(first, count);
        }
        Step::Read { first, count } => {
            let bytes = volume.read(at(first), count * SECTOR).await?;
            return Ok(ledger.check_read(first, &bytes));
        }
        Step::Flush => flush_if(true, volume, ledger).await?,
        Step::Upkeep => {
            volume.upkeep().await?;
        }
        Step::Clean => {
            let flush = ledger.begin_flush();
            volume.clean().await?;
            ledger.end_flush(&flush);
        }
        Step::Reopen => {
            let flush = ledger.begin_flush();
            volume.close().await?;
            ledger.end_flush(&flush);
            *volume = stage.open().await?.0;
        }
        Step::Close => {
            let flush = ledger.begin_flush();
            volume.close().await?;
            ledger.end_flush(&flush);
        }
        Step::Upgrade => {
            volume.upgrade().await?;
        }
    }
    Ok(Ok(()))
}

/// Zeroes by writing, or by freeing space.
async fn zero(volume: &Volume, first: usize, count: usize) -> Result<()> {
    let (offset, len) = ((first * SECTOR) as u64, (count * SECTOR) as u64);
    match (first / 8 + count).is_multiple_of(3) {
        true => volume.write_zeroes(offset, len, false).await,
        false => volume.unmap(offset, len, false).await,
    }
}

async fn flush_if(wanted: bool, volume: &Volume, ledger: &mut Ledger) -> Result<()> {
    if wanted {
        let flush = ledger.begin_flush();
        volume.flush().await?;
        ledger.end_flush(&flush);
    }
    Ok(())
}

/// The contents of the volume on `stage`.
pub async fn read_all(volume: &Volume) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < DISK_BYTES {
        let len = (DISK_BYTES - at).min(128 << 10);
        bytes.extend_from_slice(&volume.read(at, len as usize).await?);
        at += len;
    }
    Ok(bytes)
}
