//! Checks the existing contents of flash and disk. Creating a cache overwrites the flash; swapped arguments would destroy the disk.

use std::sync::Arc;

use block::striped::Label;
use block::volume::Volume;
use device::event_loop::wait_for;
use device::{Device, contents};

use crate::named::{file_of, os_identity};

/// Refuses devices whose contents suggest a mistake.
///
/// # Errors
/// The reason, which `--force` overrides.
pub fn refuse_known(flash: (&str, &Arc<dyn Device>), disk: (&str, &Arc<dyn Device>)) -> Result<(), String> {
    refuse_contents(flash.0, flash.1)?;
    refuse_flash(disk.0, disk.1)
        .map_err(|why| format!("{why}; are flash and disk swapped? If not, use --force"))
}

/// Refuses flash, or a member of it, with known contents.
///
/// # Errors
/// A message that names the contents.
pub fn refuse_contents(name: &str, flash: &Arc<dyn Device>) -> Result<(), String> {
    let held = match file_of(name) {
        Some(file) => contents::of(&file, &**flash),
        None => contents::of_device(&**flash),
    };
    let held = held
        .map_err(|error| format!("--flash {name}: {error}; it may hold anything: --force overwrites it"))?;
    match held {
        Some(what) => Err(format!(
            "--flash {name}: holds {what}; are flash and disk swapped? If not, --force overwrites it"
        )),
        None => Ok(()),
    }
}

/// Refuses a disk that is the flash of a cache.
///
/// # Errors
/// A message that names the cache.
pub fn refuse_flash(path: &str, disk: &Arc<dyn Device>) -> Result<(), String> {
    if let Ok(Some(Label { uuid, .. })) = Label::of(&**disk) {
        return Err(format!("--disk {path}: is a part of the flash of the cache {uuid:032x}"));
    }
    match wait_for(Volume::identify(disk)) {
        Ok(cache) => Err(format!("--disk {path}: is the flash of the cache {:032x}", cache.uuid)),
        Err(_) => Ok(()),
    }
}

/// Refuses a disk that is marked as belonging to a cache.
///
/// # Errors
/// A message that names the cache and the next step.
pub fn refuse_marked(path: &str, way_round: &str) -> Result<(), String> {
    match os_identity(path).marks().first() {
        Some(uuid) => Err(format!(
            "--disk {path}: belongs to the cache {uuid:032x}, which may have data that the disk does not have; {way_round}"
        )),
        None => Ok(()),
    }
}

/// Refuses a disk file whose last bytes do not fill a block.
///
/// # Errors
/// A message with the file and the number of unreachable bytes.
pub fn refuse_rest(path: &str, disk: &dyn Device) -> Result<(), String> {
    let Some(file) = file_of(path) else { return Ok(()) };
    let length = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    match length.and_then(|length| length.checked_sub(disk.geometry().capacity_bytes)) {
        None | Some(0) => Ok(()),
        Some(rest) => {
            let what = if rest == 1 { "last byte does".to_owned() } else { format!("last {rest} bytes do") };
            Err(format!(
                "--disk {path}: its {what} not fill a block of {} bytes and would be unreachable; make it larger",
                disk.geometry().block_bytes
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use device::MemoryDevice;
    use device::wrap::{FaultDevice, Faults};

    use super::*;

    #[test]
    fn unreadable_flash_is_not_treated_as_blank() {
        let blank: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
        let faults = Faults { failed_reads: 1.0, ..Faults::default() };
        let unread: Arc<dyn Device> = Arc::new(FaultDevice::new(Arc::clone(&blank), 1, faults));
        assert_eq!(refuse_known(("f", &blank), ("d", &blank)), Ok(()));
        let refused = refuse_known(("f", &unread), ("d", &blank)).unwrap_err();
        assert!(refused.contains("it may hold anything"), "{refused}");
    }
}
