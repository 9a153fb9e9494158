//! Opens devices by name, including models and stripes.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use block::striped::{self, Label, Member};
use block::volume::OsIdentity;
use device::file::OpenOptions;
use device::open::{Maker, Plain};
use device::timer::SystemTimer;
use device::{Device, DeviceSpec, ErrorKind, IoError};
use ssd::{Card, DriveOver};

/// The kinds of device names, for messages.
pub const KINDS: &str = "a device is named by PATH (a block device or a file), file:PATH, memory:SIZE, hdd: and one of these, for a \
                         model disk with its bytes, sim:CARD: and one, for a model SSD, or stripe: and several";

/// Whether a name begins like a kind of device, although a file is meant: `ssd:test`.
pub fn has_kind(text: &str) -> bool {
    let bare = text.trim_start_matches("hdd:").trim_start_matches("file:");
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    bare.split_once(':').is_some_and(|(kind, _)| is_word(kind))
}

/// Whether the device's contents are lost when this process ends.
pub fn is_memory(text: &str) -> bool {
    text.parse::<DeviceSpec>().is_ok_and(|spec| spec.is_memory())
}

/// The files and block devices of a name, in order; at least one.
pub fn files_of(text: &str) -> Result<Vec<PathBuf>, String> {
    let spec: DeviceSpec = text.parse().map_err(|error: IoError| error.to_string())?;
    let paths: Vec<PathBuf> = spec.paths().into_iter().map(PathBuf::from).collect();
    if paths.is_empty() { Err("is not a file".into()) } else { Ok(paths) }
}

/// The single file of a name.
pub fn file_of(text: &str) -> Option<PathBuf> {
    let paths = files_of(text).ok()?;
    (paths.len() == 1).then(|| paths.into_iter().next()).flatten()
}

/// The identity of the disk that `text` names: its files and its device id.
pub fn os_identity(text: &str) -> OsIdentity {
    files_of(text).map_or_else(|_| OsIdentity::default(), |paths| OsIdentity::of_all(&paths))
}

/// Expected labels of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stripes {
    /// None: a disk, which contains only user data.
    Plain,
    /// A flash device: each member has a label with its position.
    Labelled,
    /// A new flash device, whose members have no labels yet.
    ToBeLabelled,
}

/// Opens the device that `text` names, and returns the members of a stripe.
pub fn open(
    text: &str,
    options: &OpenOptions,
    stripes: Stripes,
) -> Result<(Arc<dyn Device>, Vec<Member>), IoError> {
    let spec: DeviceSpec = text.parse()?;
    let shop = DeviceMaker { stripes, members: RefCell::default() };
    let device = spec.open_with(options, &shop)?;
    let members = shop.members.into_inner();
    if stripes == Stripes::Labelled
        && members.is_empty()
        && let Ok(Some(Label { place, members, .. })) = Label::of(&*device)
    {
        let place = place + 1;
        let why =
            format!("{text}: is member {place} of {members} of a stripe; name them all, as in stripe:A,B");
        return Err(IoError::new(ErrorKind::Invalid, why));
    }
    Ok((device, members))
}

struct DeviceMaker {
    stripes: Stripes,
    members: RefCell<Vec<Member>>,
}

impl Maker for DeviceMaker {
    fn model(&self, card: &str, inner: Arc<dyn Device>) -> Result<Arc<dyn Device>, IoError> {
        let wrong = |why: String| IoError::new(ErrorKind::Invalid, format!("sim:{card}: {why}"));
        let loaded = Card::load(card).map_err(|error| wrong(error.to_string()))?;
        let drive = DriveOver::new(inner, &loaded, Arc::new(SystemTimer::default()));
        Ok(Arc::new(drive.map_err(|error| wrong(error.to_string()))?))
    }

    fn stripe(&self, members: Vec<Member>) -> Result<Arc<dyn Device>, IoError> {
        let stripe = match self.stripes {
            Stripes::Plain => return Plain.stripe(members),
            Stripes::Labelled => striped::join(&members)?,
            Stripes::ToBeLabelled => striped::join_unlabelled(&members)?,
        };
        *self.members.borrow_mut() = members;
        Ok(stripe)
    }
}
