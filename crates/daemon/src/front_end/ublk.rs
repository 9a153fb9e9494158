//! A block device of the kernel, by ublk.

use std::path::PathBuf;

use block::ublk::{self, Disk, Driver, Options, StopOutcome};
use clap::Args;
use serde_json::Value;

use super::{ACCESS, FrontEnd, SERVER, ServedDisk, control};
use crate::log_line;

pub const USAGE: &str = "--ublk NUMBER (a block device)";

/// The flags of `block serve` for ublk.
#[derive(Debug, Args)]
pub struct UblkFlags {
    /// Serve the block device /dev/ublkbNUMBER (needs root, Linux 6.5 and ublk_drv). If an earlier server of the same disk left it in use,
    /// it is taken over while its users wait
    #[arg(long, help_heading = ACCESS, value_name = "NUMBER")]
    ublk: Option<u32>,
}

impl UblkFlags {
    pub fn front_end(&self, _name: &str) -> Result<Option<Box<dyn FrontEnd>>, String> {
        Ok(self.ublk.map(|number| Box::new(Ublk { number, driver: None, disk: None }) as _))
    }

    pub fn add_to(&self, config: &mut Value) {
        config["ublk"] = self.ublk.into();
    }

    /// Warns of a ublk device that waits for this disk, if none is served: a file system can be mounted on it, and writing elsewhere
    /// corrupts it.
    pub fn warn_of_waiting(&self, disk: &ServedDisk) {
        let (None, Ok(identity)) = (self.ublk, &disk.identity) else { return };
        if let Ok(Some(path)) = ublk::waiting(*identity) {
            let path = path.display();
            log_line(format_args!(
                "warning: {path} waits for a server of this disk and holds unwritten data: do not write to the disk \
                 before {path} is served again (--ublk) and unmounted"
            ));
        }
    }
}

/// Selects the server of a ublk device.
#[derive(Debug, Args)]
pub struct UblkTarget {
    /// The number of the server's ublk device, if it has no socket
    #[arg(long, value_name = "NUMBER", group = SERVER)]
    ublk: Option<u32>,
}

impl UblkTarget {
    pub fn control_path(&self) -> Option<PathBuf> {
        self.ublk.map(control::of_ublk)
    }
}

struct Ublk {
    number: u32,
    driver: Option<Driver>,
    disk: Option<Disk>,
}

impl FrontEnd for Ublk {
    fn prepare(&mut self) -> Result<(), String> {
        self.driver = Some(Driver::open().map_err(|error| format!("--ublk: {error}"))?);
        Ok(())
    }

    fn start(&mut self, disk: &ServedDisk) -> Result<(), String> {
        let options = Options::new(self.number, disk.identity.clone()?);
        let Some(driver) = self.driver.take() else { return Err("--ublk: the driver is not open".into()) };
        let disk = Disk::serve(driver, disk.export.clone(), &options);
        self.disk = Some(disk.map_err(|error| format!("--ublk: {error}"))?);
        Ok(())
    }

    fn address(&self) -> String {
        format!("/dev/ublkb{}", self.number)
    }

    fn ready_address(&self) -> Option<String> {
        let how = if self.disk.as_ref().is_some_and(Disk::was_taken_over) { ", taken over" } else { "" };
        Some(self.address() + how)
    }

    fn control_path(&self) -> PathBuf {
        control::of_ublk(self.number)
    }

    fn block_device(&self) -> Option<PathBuf> {
        Some(self.address().into())
    }

    /// Removes an unused device; one in use waits for the next server.
    fn stop(&mut self, say: &dyn Fn(&str)) -> Result<(), String> {
        let Some(disk) = self.disk.take() else { return Ok(()) };
        if disk.stop().map_err(|error| format!("--ublk: {error}"))? == StopOutcome::Waiting {
            say(&format!("{} is in use: it stays and waits for the next server", self.address()));
        }
        Ok(())
    }
}
