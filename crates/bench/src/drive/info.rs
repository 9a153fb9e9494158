//! Properties of the device at a path: identity, limits, placement, wear, and the reason for each unknown property.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use device::nvme::fdp::{Configuration, PlacementStatus};
use device::nvme::identify::{Controller, Namespace};
use device::nvme::locate::PathKind;
use device::nvme::readiness::{self, Readiness, endurance_group};
use device::nvme::{Drive, Location, Wear};

use super::DriveError;

/// Properties of a device. `None` means unknown; [`unknown`](Self::unknown) has the reasons.
#[derive(Debug, Default)]
pub struct Info {
    /// The path of the device.
    pub path: PathBuf,
    /// Its kind: `file`, `block device`, `NVMe namespace`, `NVMe partition`.
    pub kind: &'static str,
    /// Bytes.
    pub capacity_bytes: Option<u64>,
    /// Logical block.
    pub block_bytes: Option<u32>,
    /// The user of the device, if the system reports one.
    pub in_use: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// Further properties of an NVMe namespace.
    pub nvme: Option<NvmeInfo>,
    /// Unknown properties, each with the reason.
    pub unknown: Vec<(String, String)>,
}

/// Properties of an NVMe namespace.
#[derive(Debug)]
pub struct NvmeInfo {
    /// Generic device, for passed-through commands.
    pub generic_path: PathBuf,
    /// Block device.
    pub block_path: PathBuf,
    /// Namespace's number.
    pub namespace_id: u32,
    /// The controller.
    pub controller: Option<Controller>,
    /// The namespace.
    pub namespace: Option<Namespace>,
    /// Longest command that is passed through in every case.
    pub max_passthrough_bytes: u64,
    /// Write streams of the block device; `None` if the kernel does not support them (they came with Linux 6.16).
    pub write_streams: Option<u64>,
    /// Placement.
    pub placement: PlacementInfo,
    /// Wear.
    pub wear: Wear,
}

/// Placement of a namespace.
#[derive(Debug, Default)]
pub struct PlacementInfo {
    /// `ready`, `single handle`, `no handles`, `off`, `not capable` or `unknown`.
    pub state: &'static str,
    /// Missing requirements of placement, and the steps that provide them.
    pub missing: Option<String>,
    /// The namespace's endurance group.
    pub endurance_group: Option<u16>,
    /// The configuration in use.
    pub configuration: Option<Configuration>,
    /// Status of each handle; the first one is the default.
    pub handles: Vec<PlacementStatus>,
}

/// Reads the properties of the device at `path`. Writes nothing.
///
/// # Errors
/// The path does not exist, or is not a device.
pub fn info(path: &Path) -> Result<Info, DriveError> {
    let error = |source| DriveError::Path { path: path.into(), source };
    let metadata = fs::metadata(path).map_err(error)?;
    let kind = metadata.file_type();
    if let Some(location) = Location::of(path) {
        return Ok(of_namespace(path, &location));
    }
    if kind.is_block_device() {
        return Ok(of_block_device(path, metadata.rdev()));
    }
    if kind.is_file() {
        return Ok(of_file(path, &metadata));
    }
    let neither = || "is not a file, block device or NVMe namespace such as /dev/ng0n1".into();
    let text = Location::of_controller(path).unwrap_or_else(neither);
    Err(error(io::Error::new(io::ErrorKind::InvalidInput, text)))
}

const NOT_NVME: &str = "not an NVMe namespace";

fn of_file(path: &Path, metadata: &fs::Metadata) -> Info {
    let unknown = ["model", "placement", "wear"]
        .map(|what| (what.into(), "this is a file; name its drive instead".into()));
    Info {
        path: path.into(),
        kind: "file",
        capacity_bytes: Some(metadata.len()),
        in_use: device::file::loop_device_upon(path),
        unknown: unknown.into(),
        ..Info::default()
    }
}

fn of_block_device(path: &Path, number: u64) -> Info {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let sysfs = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let text = |name: &str| fs::read_to_string(sysfs.join(name)).ok().map(|text| text.trim().to_owned());
    let model = text("device/model");
    let mut unknown = vec![("placement".into(), NOT_NVME.into()), ("wear".into(), NOT_NVME.into())];
    if model.is_none() {
        unknown.push(("model".into(), "not reported by the system".into()));
    }
    Info {
        path: path.into(),
        kind: "block device",
        // The system counts in sectors of 512 bytes, independent of the device's block size.
        capacity_bytes: text("size").and_then(|it| it.parse::<u64>().ok()).map(|sectors| sectors * 512),
        block_bytes: text("queue/logical_block_size").and_then(|it| it.parse().ok()),
        in_use: device::file::holder_of_block_device(path),
        model,
        nvme: None,
        unknown,
    }
}

fn of_namespace(path: &Path, location: &Location) -> Info {
    let kind = if location.kind == PathKind::Partition { "NVMe partition" } else { "NVMe namespace" };
    let mut info = Info { path: path.into(), kind, in_use: location.holder(), ..Info::default() };
    let drive = match Drive::open(path) {
        Ok(drive) => drive,
        Err(error) => {
            info.unknown.push(("everything that only the drive itself reports".into(), error.to_string()));
            return info;
        }
    };
    let mut unknowns = Unknowns(&mut info.unknown);
    let controller = unknowns.known("controller", drive.controller());
    let namespace = unknowns.known("namespace", drive.namespace());
    let group = controller.as_ref().zip(namespace.as_ref()).and_then(|(c, n)| endurance_group(c, n));
    let placement = placement(&mut unknowns, &drive, location, controller.as_ref(), group);
    let wear = Wear::read(&drive, group);
    info.unknown.extend(wear.unreported.iter().map(|(what, why)| ((*what).to_owned(), why.clone())));
    info.model = controller.as_ref().map(|it| it.model.clone());
    info.block_bytes = namespace.as_ref().and_then(|it| it.block_bytes);
    info.capacity_bytes =
        namespace.as_ref().and_then(|it| it.size_blocks.checked_mul(it.block_bytes?.into()));
    info.nvme = Some(NvmeInfo {
        generic_path: location.generic_path(),
        block_path: location.block_path(),
        namespace_id: drive.namespace_id(),
        controller,
        namespace,
        max_passthrough_bytes: location.max_passthrough_bytes(),
        write_streams: location.queue_limit("max_write_streams"),
        placement,
        wear,
    });
    info
}

fn placement(
    unknowns: &mut Unknowns<'_>,
    drive: &Drive,
    location: &Location,
    controller: Option<&Controller>,
    group: Option<u16>,
) -> PlacementInfo {
    let Some(readiness) = unknowns.known("placement", Readiness::of(drive)) else {
        return PlacementInfo { state: "unknown", ..PlacementInfo::default() };
    };
    let missing = unknowns.known("steps to placement", readiness::missing(drive, location)).flatten();
    let capable_group = group.filter(|_| controller.is_some_and(|it| it.fdp));
    let configuration = capable_group.and_then(|group| {
        let in_use = unknowns.known("FDP feature (1Dh)", drive.fdp_feature(group))?;
        let all = unknowns.known("FDP configurations (20h)", drive.fdp_configurations(group))?;
        all.each.into_iter().nth(in_use.configuration.into())
    });
    let (state, handles) = match readiness {
        Readiness::NotCapable => ("not capable", Vec::new()),
        Readiness::Disabled => ("off", Vec::new()),
        Readiness::NoIdentifiers => ("no handles", Vec::new()),
        Readiness::Ready(handles) if handles.len() == 1 => ("single handle", handles),
        Readiness::Ready(handles) => ("ready", handles),
    };
    PlacementInfo { state, missing, endurance_group: group, configuration, handles }
}

/// Records the properties that could not be read, with the reason.
struct Unknowns<'a>(&'a mut Vec<(String, String)>);

impl Unknowns<'_> {
    fn known<T>(&mut self, what: &str, answer: io::Result<T>) -> Option<T> {
        answer.map_err(|error| self.0.push((what.to_owned(), error.to_string()))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_of_a_file_has_its_size_and_reasons_for_unknown_properties() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(12_288).unwrap();
        let info = info(file.path()).unwrap();
        assert_eq!((info.kind, info.capacity_bytes, info.model), ("file", Some(12_288), None));
        assert!(info.unknown.iter().any(|(what, _)| what == "wear"));
    }

    #[test]
    fn info_of_a_path_that_is_no_device_fails() {
        for path in ["/nonexistent", "/dev/null", "/tmp"] {
            assert!(matches!(info(Path::new(path)), Err(DriveError::Path { .. })), "{path}");
        }
    }
}
