//! Selects the cache that a command works on, served or not.

use std::path::{Path, PathBuf};

use block::volume::Volume;
use clap::Args;
use daemon::control::{self};
use daemon::devices::{Access, Devices, DiskOverrides, Opening};
use daemon::status::figures;
use daemon::{SERVER, Target};
use device::event_loop::wait_for;
use serde_json::{Value, json};

use super::result_file::{spare, spare_server};
use crate::output::{Common, name_of};

/// The command line of a command whose only arguments select a cache.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    pub cached: Cached,
    #[command(flatten)]
    pub common: Common,
}

const NONE_NAMED: &str =
    "no cache named: give the --socket or --ublk of its server, or its --flash and --disk";

/// Selects a cache.
#[derive(Debug, Args)]
pub struct Cached {
    #[command(flatten)]
    target: Target,
    /// Flash of a cache that is not being served
    #[arg(long, value_name = "PATH", requires = "disk", conflicts_with = SERVER)]
    flash: Option<String>,
    /// Disk of that cache
    #[arg(long, value_name = "PATH", requires = "flash")]
    disk: Option<String>,
    #[command(flatten)]
    taking: DiskOverrides,
    #[command(flatten)]
    opening: Opening,
}

impl Cached {
    /// The selection, for the result.
    pub fn config(&self) -> Value {
        json!({ "flash": self.flash, "disk": self.disk, "control": self.target.path().as_deref().map(name_of) })
    }

    /// Refuses a result file that cannot be written or is one of the cache's devices.
    pub fn spare(&self, common: &Common) -> Result<(), String> {
        spare(common, self.flash.iter().chain(&self.disk))?;
        spare_server(common, &self.target)
    }

    /// The control socket of its server, if it is served.
    pub fn server(&self) -> Option<PathBuf> {
        self.target.path()
    }

    /// The devices of a cache that is not served.
    pub fn devices(&self) -> Result<Devices, String> {
        if self.taking.force_disk {
            return Err("--force-disk: this command needs the right disk".into());
        }
        let (Some(flash), Some(disk)) = (self.flash.clone(), self.disk.clone()) else {
            return Err(NONE_NAMED.into());
        };
        Ok(Devices { flash, disk, opening: self.opening.clone() })
    }

    /// The current settings of the selected cache: `tuning` and `rules` from its server, or `tuning` from its flash.
    pub fn settings(&self) -> Result<Option<Value>, String> {
        if let Some(path) = self.target.path() {
            let status = control::ask(&path, "status", |_| {})?;
            let [tuning, rules] = ["tuning", "rules"].map(|name| control::part_of_cache(&status, name));
            return Ok(Some(json!({ "tuning": tuning?, "rules": rules? })));
        }
        let Some(flash) = &self.flash else { return Ok(None) };
        let device = self.opening.open_flash(flash, Access::Read)?;
        let there = wait_for(Volume::identify(&device));
        let there = there.map_err(|error| format!("--flash {flash}: {error}"))?;
        Ok(Some(json!({ "tuning": figures::of_tuning(&there.tuning) })))
    }

    /// Sends the request to the server, or opens the volume, performs it here and closes it again.
    pub fn reach(
        &self,
        ask: impl FnOnce(&Path) -> Result<Value, String>,
        act: impl FnOnce(&Volume) -> Result<Value, String>,
    ) -> Result<Value, String> {
        if let Some(path) = self.target.path() {
            return ask(&path);
        }
        let (Some(flash), Some(disk)) = (self.flash.clone(), self.disk.clone()) else {
            return Err(NONE_NAMED.into());
        };
        let devices = Devices { flash, disk, opening: self.opening.clone() };
        let volume = devices.open_volume(self.taking)?.volume;
        let result = act(&volume);
        let closed = wait_for(volume.close()).map_err(|error| error.to_string());
        result.and_then(|result| closed.map(|()| result))
    }
}
