//! Changes of flash or disk under a served cache. The volume is closed, changed and opened again. Requests of clients wait meanwhile,
//! so the blocks are copied to a new flash before.

use std::sync::{Arc, Mutex};

use block::export::{CurrentVolume, Exchange, Tasks};
use block::sets::{Mode, Tuning};
use block::striped::Member;
use block::volume::layout::SUPERBLOCKS_BYTES;
use block::volume::{Health, Replaced, Superblock, Volume};
use device::event_loop::wait_for;
use device::timer::SystemTimer;
use device::{Clock, Device, IoBuffer, IoError, Request, SystemClock};
use serde_json::{Value, json};

use crate::contents;
use crate::control::{Below, Cache, lock};
use crate::devices::Devices;
use crate::named::{Stripes, is_memory, os_identity};

/// Records the size of a disk that was enlarged, and serves it at that size.
///
/// # Errors
/// The disk has not grown, or the change failed. The cache is then served as before if it can be opened again.
pub(crate) fn grow_disk(cache: &Cache, below: &Mutex<Vec<Below>>) -> Result<Value, String> {
    let exchange = begin(&cache.current)?;
    let name = lock(&cache.devices).disk.clone();
    let [flash, disk] = ["flash", "disk"].map(|name| device(below, name));
    let old = cache.current.volume();
    let before = old.size_bytes();
    let resize = |limit: u64| disk.refresh_capacity(limit).map_err(|error| format!("--disk {name}: {error}"));
    let now = resize(u64::MAX)?;
    if now <= before || contents::refuse_rest(&name, &*disk).is_err() {
        let refused = contents::refuse_rest(&name, &*disk);
        resize(before)?;
        refused?;
        return Err(format!("--disk {name}: the disk has not grown: it has {now} bytes, and had {before}"));
    }
    let grown = wait_for(async {
        old.close().await?;
        let timer = Arc::new(SystemTimer::default());
        Volume::grow_disk(Arc::clone(&flash), Arc::clone(&disk), timer, os_identity(&name)).await
    });
    if grown.is_err() {
        resize(before)?;
    }
    let reopened = reopen(exchange, &flash, &disk, &name);
    let (before, now) = grown.map_err(|error| format!("--disk {name}: {error}"))?;
    reopened?;
    Ok(json!({ "world": "real", "disk_bytes_before": before, "disk_bytes": now }))
}

/// Moves the cache to the flash `to`. Dirty blocks are written to the disk first, in write-through mode, so that a flash that fails
/// meanwhile loses no write.
///
/// # Errors
/// The new flash cannot be used, or the change failed. The cache then stays on its flash.
pub(crate) fn replace_flash(
    cache: &Cache,
    below: &Mutex<Vec<Below>>,
    to: &str,
    force: bool,
) -> Result<Value, String> {
    let exchange = begin(&cache.current)?;
    let devices = lock(&cache.devices).clone();
    let old_volume = cache.current.volume();
    let known = old_volume.superblock();
    if known.ordered {
        return Err("an ordered cache moves only while it is not served: stop the server first".into());
    }
    if is_memory(to) {
        return Err(format!("--to {to}: is memory of the server, so the cache would be lost when it stops"));
    }
    let [old, disk] = ["flash", "disk"].map(|name| device(below, name));
    let new_devices = Devices { flash: to.to_owned(), ..devices.clone() };
    let (new, members) = new_devices.open_flash_apart(&devices.flash, Stripes::ToBeLabelled)?;
    if members.len() > 1 {
        return Err(format!("--to {to}: a stripe can be the new flash only while the cache is not served"));
    }
    if !force {
        refuse_contents(to, &new, &members)?;
    }
    let mut paused_at = SystemClock.monotonic_ns();
    let replaced = wait_for(async {
        if old_volume.stats().health != Health::FlashFailed {
            clean_first(&old_volume).await?;
        }
        let ahead = old_volume.copy_ahead(&new).await?;
        paused_at = SystemClock.monotonic_ns();
        // If the flash fails, now or before, its contents are those after a crash, and the move recovers them.
        let _ = old_volume.close().await;
        let (timer, os_identity) = (Arc::new(SystemTimer::default()), os_identity(&devices.disk));
        Volume::replace_flash(&old, &new, Arc::clone(&disk), timer, os_identity, Some(ahead), false).await
    });
    let replaced = match replaced {
        Ok(replaced) => replaced,
        Err(error) => {
            let reopened = match old_volume.stats().health {
                Health::Closed => reopen(exchange, &old, &disk, &devices.disk),
                _ => Ok(old_volume),
            };
            let reopened = reopened.and_then(|volume| restore(&volume, &known));
            let hint = reopened.err().map_or_else(String::new, |error| format!("; {error}"));
            return Err(format!("--to {to}: {error}; the cache stays on the old flash{hint}"));
        }
    };
    // The old flash is retired before clients change the cache on the new one, so that only one of them can be opened.
    let retired = wait_for(retire(&old));
    let volume = reopen(exchange, &new, &disk, &devices.disk)
        .map_err(|error| format!("the cache is on {to} now, but {error} with --flash {to}"))?;
    let paused_ns = SystemClock.monotonic_ns() - paused_at;
    if let Some((_, device)) = lock(below).iter_mut().find(|(role, _)| *role == "flash") {
        *device = Arc::clone(&new);
    }
    lock(&cache.devices).flash = to.to_owned();
    restore(&volume, &known)?;
    let mut result = of_replaced(&known, &replaced);
    result["old_flash_overwritten"] = retired.is_ok().into();
    result["paused_seconds"] = (paused_ns as f64 / 1e9).into();
    Ok(result)
}

fn begin(current: &CurrentVolume) -> Result<Exchange, String> {
    current.begin_exchange().ok_or_else(|| "another change of the flash or the disk is in progress".into())
}

fn device(below: &Mutex<Vec<Below>>, name: &str) -> Arc<dyn Device> {
    let below = lock(below);
    let found = below.iter().find(|(role, _)| *role == name);
    Arc::clone(&found.expect("a cache has a flash and a disk").1)
}

/// Writes all dirty blocks to the disk, in write-through mode.
async fn clean_first(volume: &Volume) -> block::volume::Result<()> {
    let tuning = volume.superblock().tuning;
    if tuning.mode.keeps_dirty() {
        volume.set_tuning(Tuning { mode: Mode::WriteThrough, ..tuning }).await?;
    }
    volume.clean().await
}

/// Restores the mode.
fn restore(volume: &Volume, known: &Superblock) -> Result<(), String> {
    if volume.superblock().tuning == known.tuning {
        return Ok(());
    }
    let restored = wait_for(volume.set_tuning(known.tuning));
    restored.map_err(|error| format!("the mode stays write-through: {error}"))
}

/// Opens the volume and ends the exchange with it.
fn reopen(
    exchange: Exchange,
    flash: &Arc<dyn Device>,
    disk: &Arc<dyn Device>,
    disk_name: &str,
) -> Result<Volume, String> {
    let (quick, slow) = (Tasks::with_inline_transfers(Arc::clone(flash)), Tasks::resuming(Arc::clone(disk)));
    let timer = Arc::new(SystemTimer::default());
    let opened = wait_for(Volume::reopen(quick, slow, timer, os_identity(disk_name)));
    let (volume, _) = opened.map_err(|error| {
        format!("the cache cannot be opened again: {error}; requests fail until the server is restarted")
    })?;
    exchange.end(volume.clone());
    Ok(volume)
}

/// Refuses a new flash with contents.
///
/// # Errors
/// If it holds a cache, a file system or other data.
pub fn refuse_contents(to: &str, new: &Arc<dyn Device>, members: &[Member]) -> Result<(), String> {
    if let Ok(there) = wait_for(Volume::identify(new)) {
        return Err(format!("--to {to}: already holds the cache {:032x}; --force overwrites it", there.uuid));
    }
    let refused = |why: String| why.replacen("--flash", "--to", 1);
    contents::refuse_contents(to, new).map_err(refused)?;
    members.iter().try_for_each(|(name, member)| contents::refuse_contents(name, member).map_err(refused))
}

/// Overwrites the superblock of a flash whose cache was moved.
///
/// # Errors
/// I/O errors of the device.
pub async fn retire(old: &Arc<dyn Device>) -> Result<(), IoError> {
    old.write(0, IoBuffer::zeroed(SUPERBLOCKS_BYTES as usize)).await?;
    old.start(Request::Flush).await.map(drop)
}

/// The result of a move as JSON.
#[must_use]
pub fn of_replaced(known: &Superblock, replaced: &Replaced) -> Value {
    json!({
        "world": "real",
        "uuid": format!("{:032x}", known.uuid),
        "capacity_blocks_before": known.layout.slots(),
        "capacity_blocks": replaced.superblock.layout.slots(),
        "blocks": replaced.blocks,
        "dirty_blocks": replaced.dirty_blocks,
        "left_out_blocks": replaced.left_out_blocks,
        "lost_blocks": replaced.lost_blocks,
    })
}

#[cfg(test)]
mod tests;
