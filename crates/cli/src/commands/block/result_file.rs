//! Protects the devices of a cache from a result file of the same name.

use std::path::PathBuf;

use daemon::Target;
use daemon::control::ask;
use daemon::named::files_of;

use crate::files::Files;
use crate::output::Common;

/// Refuses a result file that cannot be written or is one of the given devices; called before the devices are changed.
pub fn spare<'a>(common: &Common, devices: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    let paths = devices.into_iter().filter_map(|text| files_of(text).ok()).flatten();
    Files::default().keeping("device", paths).writing([common.result_file()]).check()
}

/// Refuses a result file that is one of the server's devices, by asking the server.
pub fn spare_server(common: &Common, target: &Target) -> Result<(), String> {
    let (Some(file), Some(path)) = (common.result_file(), target.path()) else { return Ok(()) };
    if !file.exists() {
        return Ok(());
    }
    let status = ask(&path, "status", |_| {})?;
    let devices = status["devices"].as_array().into_iter().flatten();
    let devices = devices.filter_map(|device| device.as_str().map(PathBuf::from));
    Files::default().keeping("device", devices).writing([Some(file)]).check_distinct()
}
