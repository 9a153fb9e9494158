//! Opens devices named on a command line.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::file::OpenOptions;
use crate::nvme::Location;
use crate::nvme::locate::PathKind;
use crate::size::parse_size;
use crate::timer::SystemTimer;
use crate::wrap::{Mechanics, SpindleDevice};
use crate::{Device, ErrorKind, FileDevice, IoError, MemoryDevice, PassthroughDevice, StripeDevice};

/// A device as named on a command line.
///
/// | text | device |
/// |---|---|
/// | `memory:` or `memory:SIZE` | memory of that size, or of the configured size |
/// | `file:PATH` | the file, created if missing |
/// | `hdd:DEVICE` | any other listed device, with the timing of a [model disk](crate::wrap::spindle) with one head |
/// | `sim:CARD:DEVICE` | any other listed device as the storage of a model SSD, if the caller has a [`Maker`] for it |
/// | `stripe:DEVICE,DEVICE,…` | a [stripe](crate::stripe) of two or more of the others, in units of [`STRIPE_UNIT_BYTES`] |
/// | `PATH` of a directory | a file in a new directory below, both removed afterwards |
/// | `PATH` of an NVMe generic device (`/dev/ng0n1`) | the namespace, by passthrough commands |
/// | `PATH` of anything else | the file or block device |
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSpec {
    /// Memory, of this many bytes if given.
    Memory(Option<u64>),
    /// A file, created if missing.
    File(PathBuf),
    /// A model disk over another device.
    Spindle(Box<DeviceSpec>),
    /// A model SSD with a card's name, over another device.
    Modelled(String, Box<DeviceSpec>),
    /// A stripe's devices with their names.
    Stripe(Vec<(String, DeviceSpec)>),
    /// The file or device at a path.
    Path(PathBuf),
}

/// Unit of a stripe named on a command line. A stripe can only be read with the unit that it was written with.
pub const STRIPE_UNIT_BYTES: u64 = 256 << 10;

/// Builds devices from other devices.
pub trait Maker {
    /// A model SSD with the card's parameters over `inner`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the program has no model SSDs; otherwise the error of the card.
    fn model(&self, card: &str, inner: Arc<dyn Device>) -> Result<Arc<dyn Device>, IoError> {
        let _ = inner;
        let message = format!("sim:{card}: model SSDs are not supported here");
        Err(IoError::new(ErrorKind::Unsupported, message))
    }

    /// A stripe of devices, each under its name.
    ///
    /// # Errors
    /// As [`StripeDevice::new`].
    fn stripe(&self, members: Vec<(String, Arc<dyn Device>)>) -> Result<Arc<dyn Device>, IoError> {
        let devices = members.into_iter().map(|(_, device)| device).collect();
        Ok(Arc::new(StripeDevice::new(devices, STRIPE_UNIT_BYTES)?))
    }
}

/// Builds stripes only.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Maker for Plain {}

impl FromStr for DeviceSpec {
    type Err = IoError;

    fn from_str(text: &str) -> Result<Self, IoError> {
        if let Some(inner) = text.strip_prefix("hdd:") {
            return Ok(Self::Spindle(Box::new(inner.parse()?)));
        }
        if let Some(members) = text.strip_prefix("stripe:") {
            let parse = |member: &str| Ok((member.to_owned(), member.parse()?));
            let members = members.split(',').map(parse).collect::<Result<Vec<_>, IoError>>()?;
            let is_one = |(_, member): &(String, Self)| matches!(member, Self::Stripe(_));
            return match members.len() {
                0 | 1 => Err(invalid("stripe: needs several devices, as in stripe:/dev/sdb,/dev/sdc".into())),
                _ if members.iter().any(is_one) => {
                    Err(invalid("stripe: a member cannot be a stripe itself".into()))
                }
                _ => Ok(Self::Stripe(members)),
            };
        }
        if let Some(model) = text.strip_prefix("sim:") {
            return match model.split_once(':') {
                Some((card, inner)) if !card.is_empty() && !inner.is_empty() => {
                    Ok(Self::Modelled(card.to_owned(), Box::new(inner.parse()?)))
                }
                _ => Err(invalid(format!(
                    "{text}: needs a card and the device that has its bytes, as in sim:test:/tmp/flash.img"
                ))),
            };
        }
        match (text.strip_prefix("memory:"), text.strip_prefix("file:")) {
            (Some(""), _) => Ok(Self::Memory(None)),
            (Some(size), _) => Ok(Self::Memory(Some(parse_size(size).map_err(invalid)?))),
            (_, Some("")) => Err(invalid("file: needs a path, as in file:/tmp/flash".into())),
            (_, Some(path)) => Ok(Self::File(path.into())),
            _ if text.is_empty() => Err(invalid("the device name is empty".into())),
            _ => Ok(Self::Path(text.into())),
        }
    }
}

impl DeviceSpec {
    /// Opens the device. A size in the text comes before the one in `options`.
    ///
    /// # Errors
    /// As [`FileDevice::open`] and [`PassthroughDevice::open`]; [`ErrorKind::Invalid`] if a size is required and neither source has one.
    pub fn open(&self, options: &OpenOptions) -> Result<Arc<dyn Device>, IoError> {
        self.open_with(options, &Plain)
    }

    /// Opens the device, with models and stripes from `maker`. The devices of a stripe share the size equally.
    ///
    /// # Errors
    /// As [`open`](Self::open), and the maker's.
    pub fn open_with(&self, options: &OpenOptions, maker: &dyn Maker) -> Result<Arc<dyn Device>, IoError> {
        match self {
            Self::Modelled(card, inner) => maker.model(card, inner.open_with(options, maker)?),
            Self::Stripe(members) => {
                let size_bytes = options.size_bytes.map(|bytes| bytes / members.len() as u64);
                let options = OpenOptions { size_bytes, ..options.clone() };
                let open =
                    |(name, member): &(String, Self)| Ok((name.clone(), member.open_with(&options, maker)?));
                maker.stripe(members.iter().map(open).collect::<Result<_, IoError>>()?)
            }
            Self::Memory(_) if options.placement => Err(IoError::new(
                ErrorKind::Unsupported,
                "memory: no placement: memory devices do not support it",
            )),
            Self::Memory(size) => open_memory(size.or(options.size_bytes)),
            Self::Spindle(inner) => {
                let timer = Arc::new(SystemTimer::default());
                let inner = inner.open_with(options, maker)?;
                Ok(Arc::new(SpindleDevice::new(inner, timer, Mechanics::default())))
            }
            Self::File(path) => {
                let options = OpenOptions { create: true, ..options.clone() };
                Ok(Arc::new(FileDevice::open(path, &options)?))
            }
            Self::Path(path) if path.is_dir() && options.size_bytes.is_none() => {
                let path = path.display();
                Err(invalid(format!("{path} is a directory; give a size to create a file in it")))
            }
            Self::Path(path) if path.is_dir() => Ok(Arc::new(FileDevice::create_temporary(path, options)?)),
            Self::Path(path) if is_generic(path) => Ok(Arc::new(PassthroughDevice::open(path, options)?)),
            Self::Path(path) => Ok(Arc::new(FileDevice::open(path, options)?)),
        }
    }
}

impl DeviceSpec {
    /// Paths of its files and devices, in order.
    #[must_use]
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::File(path) | Self::Path(path) => vec![path],
            Self::Spindle(inner) | Self::Modelled(_, inner) => inner.paths(),
            Self::Stripe(members) => members.iter().flat_map(|(_, member)| member.paths()).collect(),
        }
    }

    /// Whether any part of it is memory, which is lost when the process ends.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::File(_) | Self::Path(_) => false,
            Self::Spindle(inner) | Self::Modelled(_, inner) => inner.is_memory(),
            Self::Stripe(members) => members.iter().any(|(_, member)| member.is_memory()),
        }
    }
}

fn is_generic(path: &Path) -> bool {
    Location::of(path).is_some_and(|location| location.kind == PathKind::Generic)
}

fn open_memory(size_bytes: Option<u64>) -> Result<Arc<dyn Device>, IoError> {
    let size = size_bytes.ok_or_else(|| invalid("memory: needs a size, as in memory:1GiB".into()))?;
    let block = u64::from(MemoryDevice::DEFAULT_BLOCK_BYTES);
    if size == 0 || !size.is_multiple_of(block) {
        return Err(invalid(format!(
            "memory: a size of {size} bytes is not a non-zero multiple of the {block}-byte block"
        )));
    }
    Ok(Arc::new(MemoryDevice::new(size)))
}

fn invalid(context: String) -> IoError {
    IoError::new(ErrorKind::Invalid, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_parsed_as_documented() {
        let spec = |text: &str| text.parse::<DeviceSpec>().unwrap();
        assert_eq!(spec("memory:"), DeviceSpec::Memory(None));
        assert_eq!(spec("memory:3GiB"), DeviceSpec::Memory(Some(3 << 30)));
        assert_eq!(spec("memory:1.5G"), DeviceSpec::Memory(Some(3 << 29)));
        assert_eq!(spec("hdd:file:/a"), DeviceSpec::Spindle(Box::new(DeviceSpec::File("/a".into()))));
        assert_eq!(spec("file:/a:b"), DeviceSpec::File("/a:b".into()));
        assert_eq!(spec("/dev/nvme0n1"), DeviceSpec::Path("/dev/nvme0n1".into()));
        let both = vec![
            ("/a".to_owned(), DeviceSpec::Path("/a".into())),
            ("hdd:file:b".to_owned(), DeviceSpec::Spindle(Box::new(DeviceSpec::File("b".into())))),
        ];
        assert_eq!(spec("stripe:/a,hdd:file:b"), DeviceSpec::Stripe(both.clone()));
        let modelled = DeviceSpec::Modelled("qlc".into(), Box::new(DeviceSpec::Stripe(both)));
        assert_eq!(spec("sim:qlc:stripe:/a,hdd:file:b"), modelled);
        assert_eq!(modelled.paths(), [Path::new("/a"), Path::new("b")]);
        assert!(!modelled.is_memory() && spec("stripe:a,hdd:memory:1G").is_memory());
        for wrong in [
            "sim:test",
            "sim::a",
            "sim:test:",
            "stripe:a",
            "stripe:a,",
            "stripe:a,stripe:b,c",
            "",
            "file:",
            "hdd:",
            "memory:lots",
            "memory:99999999999T",
            "memory:-1",
            "memory:G",
        ] {
            assert_eq!(wrong.parse::<DeviceSpec>().unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
        }
    }

    #[test]
    fn directory_gets_a_temporary_file() {
        let scratch = tempfile::tempdir().unwrap();
        let spec = DeviceSpec::Path(scratch.path().into());
        let options = OpenOptions { size_bytes: Some(1 << 20), buffered: true, ..Default::default() };
        let device = spec.open(&options).unwrap();
        assert_eq!(device.geometry().capacity_bytes, 1 << 20);
        let inside = std::fs::read_dir(scratch.path()).unwrap().count();
        assert_eq!(inside, 0, "the file has no name, and a killed process leaves none behind");
        assert_eq!(spec.open(&OpenOptions::default()).err().unwrap().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn placement_without_support_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("flash");
        for make_first in [false, true] {
            if make_first {
                std::fs::write(&file, [0; 8192]).unwrap();
            }
            let options =
                OpenOptions { size_bytes: Some(8192), placement: true, buffered: true, ..Default::default() };
            for spec in [DeviceSpec::File(file.clone()), DeviceSpec::Memory(None)] {
                let error = spec.open(&options).err().unwrap();
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.to_string().contains("no placement"), "{error}");
            }
            assert_eq!(file.exists(), make_first, "nothing is made for nothing");
        }
    }

    #[test]
    fn stripe_opens_its_members_and_plain_open_of_a_model_is_unsupported() {
        let stripe: DeviceSpec = "stripe:memory:,memory:".parse().unwrap();
        let options = OpenOptions { size_bytes: Some(2 << 20), ..Default::default() };
        assert_eq!(stripe.open(&options).unwrap().geometry().capacity_bytes, 2 << 20);
        let model: DeviceSpec = "sim:test:memory:".parse().unwrap();
        assert_eq!(model.open(&options).err().unwrap().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn memory_needs_a_size_in_blocks() {
        let open = |text: &str, size_bytes| {
            text.parse::<DeviceSpec>().unwrap().open(&OpenOptions { size_bytes, ..Default::default() })
        };
        assert_eq!(open("memory:1TiB", None).unwrap().geometry().capacity_bytes, 1 << 40);
        assert_eq!(open("memory:", Some(4096)).unwrap().geometry().capacity_bytes, 4096);
        for refused in [open("memory:", None), open("memory:1000", None), open("memory:0", None)] {
            assert_eq!(refused.err().unwrap().kind(), ErrorKind::Invalid);
        }
    }
}
