//! Checks whether a namespace supports placement, and names the missing requirement with the steps to meet it.

use std::io;
use std::path::Path;

use super::fdp::PlacementStatus;
use super::identify::{Controller, Namespace};
use super::{Drive, Location, Status, Transport};
use crate::{ErrorKind, IoError};

/// Placement support of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// The drive does not support Flexible Data Placement.
    NotCapable,
    /// The drive supports it, but it is disabled.
    Disabled,
    /// It is enabled, but the namespace has no placement identifiers.
    NoIdentifiers,
    /// The namespace's identifiers; the first is used for writes without one.
    Ready(Vec<PlacementStatus>),
}

/// The endurance group of a namespace. Some emulated drives with placement report no group; theirs is the first.
#[must_use]
pub fn endurance_group(controller: &Controller, namespace: &Namespace) -> Option<u16> {
    namespace.endurance_group.or(controller.fdp.then_some(1))
}

impl Readiness {
    /// Queries the drive. Needs no privilege since Linux 6.2.
    ///
    /// # Errors
    /// The error of a query.
    pub fn of<T: Transport>(drive: &Drive<T>) -> io::Result<Self> {
        // A drive with disabled placement accepts writes with a placement identifier, so a query is necessary.
        if !drive.controller()?.fdp {
            return Ok(Self::NotCapable);
        }
        match drive.placement_status() {
            Ok(identifiers) if identifiers.is_empty() => Ok(Self::NoIdentifiers),
            Ok(identifiers) => Ok(Self::Ready(identifiers)),
            Err(error) if Status::of(&error).is_some_and(|it| it.is(Status::FDP_DISABLED)) => {
                Ok(Self::Disabled)
            }
            Err(error) => Err(error),
        }
    }

    /// The reason for missing handles and the remedy; `None` if there are handles.
    #[must_use]
    pub fn missing(&self, steps: &Steps) -> Option<String> {
        match self {
            Self::Ready(identifiers) if identifiers.len() > 1 => None,
            Self::Ready(_) => Some(format!(
                "the namespace has a single placement handle, which is the default of all writes; {}",
                steps.remake_namespace()
            )),
            Self::NoIdentifiers => {
                Some(format!("the namespace has no placement handles; {}", steps.remake_namespace()))
            }
            Self::Disabled => {
                Some(format!("Flexible Data Placement (FDP) is off; {}", steps.enable_placement()))
            }
            Self::NotCapable => Some(
                "the drive does not support Flexible Data Placement (FDP): bit 19 of CTRATT is clear; use a firmware that \
                 supports it, or another drive"
                    .into(),
            ),
        }
    }
}

/// Properties of the drive for the suggested commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    /// Path of the controller.
    pub controller_path: String,
    /// The controller's own number.
    pub controller_id: u16,
    /// The namespace to recreate.
    pub namespace_id: u32,
    /// Its size.
    pub size_blocks: u64,
    /// Bytes of its blocks.
    pub block_bytes: u32,
    /// Its endurance group.
    pub endurance_group: u16,
}

impl Steps {
    /// The checks for the namespace at `location`, from the data structures of `drive`.
    ///
    /// # Errors
    /// The error of a command that the drive did not answer.
    pub fn new<T: Transport>(location: &Location, drive: &Drive<T>) -> io::Result<Self> {
        let (controller, namespace) = (drive.controller()?, drive.namespace()?);
        Ok(Self {
            controller_path: location.controller_path().display().to_string(),
            controller_id: controller.id,
            namespace_id: drive.namespace_id(),
            size_blocks: namespace.size_blocks,
            block_bytes: namespace.block_bytes.unwrap_or(4096),
            endurance_group: endurance_group(&controller, &namespace).unwrap_or(1),
        })
    }

    /// Commands that enable placement.
    fn enable_placement(&self) -> String {
        let Self { controller_path: path, endurance_group: group, .. } = self;
        let on = format!(
            "  nvme set-feature {path} -f 0x1d --value={group} --cdw12=0x1 -s    # configuration 0; 0x101 is 1, and so on"
        );
        let list = format!("  nvme fdp configs {path} -e {group}    # lists the configurations");
        self.with_namespace_remade("to enable it", &[list], &[on])
    }

    /// Commands that recreate the namespace with handles.
    fn remake_namespace(&self) -> String {
        self.with_namespace_remade("to give it placement handles", &[], &[])
    }

    fn with_namespace_remade(&self, purpose: &str, before: &[String], between: &[String]) -> String {
        let Self { controller_path: path, controller_id, namespace_id, size_blocks, block_bytes, .. } = self;
        let group = self.endurance_group;
        let mut lines = vec![format!("{purpose} (this DESTROYS ALL DATA of the namespace):")];
        lines.extend_from_slice(before);
        lines.push(format!("  nvme delete-ns {path} -n {namespace_id}"));
        lines.extend_from_slice(between);
        lines.push(format!(
            "  nvme create-ns {path} -s {size_blocks} -c {size_blocks} -b {block_bytes} -e {group} -n 4 -p 0,1,2,3"
        ));
        lines.push(format!("  nvme attach-ns {path} -n {namespace_id} -c {controller_id}"));
        lines.join("\n")
    }
}

/// The reason why the namespace at `location` has no free handles, with the remedy; `None` if it has some.
///
/// # Errors
/// The error of a query.
pub fn missing<T: Transport>(drive: &Drive<T>, location: &Location) -> io::Result<Option<String>> {
    Ok(Readiness::of(drive)?.missing(&Steps::new(location, drive)?))
}

/// The error for an open of `path` that requests unavailable placement.
pub(crate) fn unsupported(path: &Path, why: &str) -> IoError {
    IoError::new(ErrorKind::Unsupported, format!("{}: no placement: {why}", path.display()))
}

/// The error if the drive could not be queried.
pub(crate) fn unanswered(path: &Path, error: io::Error) -> IoError {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (needs root before Linux 6.2; since then, read and write permission on the device)"
        }
        _ => "",
    };
    let context = format!("{}: no placement: cannot query the drive{hint}", path.display());
    IoError::with_source(ErrorKind::Unsupported, context, error)
}
