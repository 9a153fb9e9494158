//! The flash devices of a run. Instances that name the same file or block device each get a part of it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cache::internals::superblock::{Recognised, SUPERBLOCKS_BYTES, recognise_head};
use device::contents::{self, Contents};
use device::file::OpenOptions;
use device::{Device, DeviceSpec, ErrorKind, MemoryDevice, SliceDevice, StripeDevice};
use rustix::fs::Access;

use super::error::OpenError;
use crate::config::plan::{CachePlan, FlashPlan};

/// The devices of a run, and the parts that were handed out.
#[derive(Default)]
pub struct Devices {
    by_path: HashMap<PathBuf, SharedPath>,
    /// Existing data may be overwritten.
    force: bool,
}

/// A path, and the requirements of all instances that use it.
struct SharedPath {
    /// Sum of all parts.
    bytes: u64,
    allow_buffered: bool,
    placement: bool,
    persistent: bool,
    opened: Option<Arc<dyn Device>>,
    given_bytes: u64,
}

/// Opens the flash devices of instances.
pub trait DeviceSource {
    /// Opens the device of the next instance.
    ///
    /// # Errors
    /// The device cannot be opened.
    fn open(&mut self, plan: &FlashPlan) -> Result<Arc<dyn Device>, OpenError>;
}

impl Devices {
    /// The devices that `caches` need. None is opened yet. Without `force`, a device that holds other data is refused.
    pub fn of<'a>(caches: impl IntoIterator<Item = &'a CachePlan>, force: bool) -> Self {
        let mut devices = Self { force, ..Self::default() };
        for cache in caches {
            let Some(flash) = &cache.flash else { continue };
            for path in &flash.paths {
                let sharing = devices.by_path.entry(path.clone()).or_insert(SharedPath {
                    bytes: 0,
                    allow_buffered: true,
                    placement: false,
                    persistent: false,
                    opened: None,
                    given_bytes: 0,
                });
                sharing.bytes += flash.bytes_per_device;
                sharing.allow_buffered &= flash.allow_buffered;
                sharing.placement |= flash.placement;
                sharing.persistent |= cache.persist_dir.is_some();
            }
        }
        devices
    }

    fn part(&mut self, path: &Path, bytes: u64, placement: bool) -> Result<Arc<dyn Device>, OpenError> {
        let sharing = self.by_path.get_mut(path).expect("`of` added every path of every plan");
        let is_shared = sharing.bytes > bytes;
        if path.is_dir() && !(sharing.persistent && is_shared) {
            // Each instance creates a file of its own.
            return sharing.open_path(path, bytes, self.force);
        }
        let whole = match &sharing.opened {
            Some(whole) => Arc::clone(whole),
            None => sharing.open_path(path, sharing.bytes, self.force)?,
        };
        if !is_shared {
            return Ok(whole);
        }
        sharing.opened = Some(Arc::clone(&whole));
        let start_bytes = sharing.given_bytes;
        sharing.given_bytes += bytes;
        let part = SliceDevice::new(whole, start_bytes..sharing.given_bytes)?;
        Ok(Arc::new(if placement { part } else { part.without_placement() }))
    }
}

impl Devices {
    /// Checks whether [`open`](DeviceSource::open) would succeed, as far as that is possible without creating or changing a file. Returns an
    /// error for each path that does not exist and cannot be created.
    ///
    /// # Errors
    /// The errors of opening.
    pub fn check(&self, plan: &FlashPlan) -> Result<Vec<OpenError>, OpenError> {
        let (unusable, usable): (Vec<&PathBuf>, Vec<_>) =
            plan.paths.iter().partition(|path| is_uncreatable(path));
        let absent = unusable.iter().filter_map(|path| check_creatable(path).err()).collect();
        if !self.force {
            self.refuse_files(plan)?;
        }
        usable.into_iter().try_for_each(|path| self.by_path[path].check(path, self.force))?;
        Ok(absent)
    }

    /// Refuses files that hold other data, before any file is extended: files with a known signature, and files that are not empty
    /// and do not start with a cache's superblock. In a stripe, only the first file has a superblock. The others are accepted as its
    /// members if they have the expected length and the cache in the first file is as long as the stripe.
    fn refuse_files(&self, plan: &FlashPlan) -> Result<(), OpenError> {
        let mut first = None;
        for path in &plan.paths {
            let sharing = self.by_path.get(path).expect("`of` added every path of every plan");
            let path = sharing.file_of(path);
            let head = if sharing.opened.is_some() { None } else { head_of(&path)? };
            let Some(head) = head else { continue };
            let known = contents::of_path(&path).or_else(|| contents::of_head(&head));
            refuse(&path, known)?;
            let is_member = || {
                let is_long = std::fs::metadata(&path).is_ok_and(|it| it.len() == sharing.bytes);
                is_long && first.as_ref().is_some_and(|first: &Vec<u8>| spans(first, plan))
            };
            let has_data = || contents::has_data(&path).map_err(|error| unreadable(&path, &error));
            if known.is_none() && !is_member() && has_data()? {
                return Err(in_use(&path, "data that is not a cache's"));
            }
            first = first.or(Some(head));
        }
        Ok(())
    }
}

impl DeviceSource for Devices {
    /// Opens memory, this plan's part of one path, or a stripe of several paths with the region as its unit.
    fn open(&mut self, plan: &FlashPlan) -> Result<Arc<dyn Device>, OpenError> {
        if plan.paths.is_empty() {
            let spec = DeviceSpec::Memory(Some(plan.bytes_per_device));
            return Ok(spec.open(&OpenOptions { placement: plan.placement, ..OpenOptions::default() })?);
        }
        if !self.force {
            self.refuse_files(plan)?;
        }
        let mut devices = Vec::new();
        for path in &plan.paths {
            devices.push(self.part(path, plan.bytes_per_device, plan.placement)?);
        }
        if devices.len() == 1 {
            return Ok(devices.remove(0));
        }
        Ok(Arc::new(StripeDevice::new(devices, u64::from(plan.region_bytes))?))
    }
}

/// The file of a persistent cache. In a directory it has a fixed name.
pub(super) fn kept_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("flashwright_cache") } else { path.to_owned() }
}

impl SharedPath {
    fn file_of(&self, path: &Path) -> PathBuf {
        if self.persistent { kept_file(path) } else { path.to_owned() }
    }

    /// Opens or creates the file or device. In a directory, a persistent cache uses its named file; any other run creates a file that is
    /// removed afterwards. A created file gets its space reserved, if there is enough.
    fn open_path(&self, path: &Path, bytes: u64, force: bool) -> Result<Arc<dyn Device>, OpenError> {
        let options = OpenOptions {
            size_bytes: Some(bytes),
            create: true,
            preallocate: true,
            buffered: false,
            remove_on_drop: !self.persistent,
            placement: self.placement,
            ..OpenOptions::default()
        };
        if !path.exists() {
            check_creatable(path)?;
            create_parent(path)?;
        }
        let path = self.file_of(path);
        let device = self.opened(&path, &options)?;
        if !force {
            refuse(&path, contents::of(&path, &*device)?)?;
        }
        Ok(device)
    }

    /// Opens or creates `path` with these options.
    fn opened(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn Device>, OpenError> {
        let spec = DeviceSpec::Path(path.to_owned());
        // The first write to each place of a sparse file allocates space under the file's lock, so space is reserved. If that fails,
        // a sparse file is used: a run may never write all of it.
        let open = |options: &OpenOptions| match spec.open(options) {
            Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Unsupported) => {
                spec.open(&OpenOptions { preallocate: false, ..options.clone() })
            }
            opened => opened,
        };
        let may_buffer = self.allow_buffered && !self.placement;
        Ok(match open(options) {
            Err(error) if error.kind() == ErrorKind::Unsupported && may_buffer => {
                open(&OpenOptions { buffered: true, ..options.clone() })?
            }
            opened => opened?,
        })
    }

    /// Checks whether [`open_path`](Self::open_path) would succeed, without creating or extending a file.
    fn check(&self, path: &Path, force: bool) -> Result<(), OpenError> {
        let path = self.file_of(path);
        let (is_file, is_directory) = (path.is_file(), path.is_dir());
        let options = OpenOptions { placement: self.placement, ..OpenOptions::default() };
        if self.placement && (is_directory || is_file || !path.exists()) {
            // Files have no placement; opening fails before it creates one.
            let size_bytes = Some(self.bytes);
            return self.opened(&path, &OpenOptions { size_bytes, ..options }).map(drop);
        }
        if is_directory || !path.exists() {
            return Ok(());
        }
        // A file shorter than a block cannot be opened without extending it.
        if is_file && path.metadata().is_ok_and(|it| it.len() < LARGEST_BLOCK_BYTES) {
            return File::options()
                .write(true)
                .open(&path)
                .map(drop)
                .map_err(|error| unreadable(&path, &error));
        }
        let size_bytes = if is_file { None } else { Some(self.bytes) };
        let device = self.opened(&path, &OpenOptions { size_bytes, ..options })?;
        if force || is_file {
            return Ok(());
        }
        refuse(&path, contents::of(&path, &*device)?)
    }
}

/// Upper limit of the block size of any device.
const LARGEST_BLOCK_BYTES: u64 = 64 << 10;

/// Checks whether flash in memory can meet `plan`, without allocating it.
///
/// # Errors
/// The errors of opening.
pub fn check_memory(plan: &FlashPlan) -> Result<(), OpenError> {
    let options = OpenOptions { placement: plan.placement, ..OpenOptions::default() };
    let smallest = u64::from(MemoryDevice::DEFAULT_BLOCK_BYTES);
    DeviceSpec::Memory(Some(smallest)).open(&options).map(drop).map_err(OpenError::from)
}

/// The start of a file, which contains every signature that identifies its contents. `None` if it is not a file.
fn head_of(path: &Path) -> Result<Option<Vec<u8>>, OpenError> {
    if !std::fs::metadata(path).is_ok_and(|it| it.is_file()) {
        return Ok(None);
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(SUPERBLOCKS_BYTES).read_to_end(&mut head));
    read.map(|_| Some(head)).map_err(|error| unreadable(path, &error))
}

/// Whether the cache that starts with `head` is as long as the stripe of `plan`, so that it uses all members.
fn spans(head: &[u8], plan: &FlashPlan) -> bool {
    let Recognised::Ours(cache) = recognise_head(head) else { return false };
    let members = plan.paths.len() as u64;
    // The stripe uses whole regions of each member.
    let member_bytes = plan.bytes_per_device - plan.bytes_per_device % u64::from(plan.region_bytes.max(1));
    let first_pair = plan.pairs.first().map_or(100, |(size, _)| *size);
    let wanted = member_bytes.saturating_mul(members) as f64 * f64::from(first_pair) / 100.0;
    (cache.layout.device_bytes as f64 - wanted).abs() <= f64::from(plan.region_bytes)
}

fn refuse(path: &Path, known: Option<Contents>) -> Result<(), OpenError> {
    match known {
        None | Some(Contents::HybridCache) => Ok(()),
        Some(other) => Err(in_use(path, &other.to_string())),
    }
}

fn in_use(path: &Path, contents: &str) -> OpenError {
    OpenError::Config(format!(
        "cache_config.nvmCachePaths: {} holds {contents}; --force overwrites it",
        path.display()
    ))
}

fn unreadable(path: &Path, error: &io::Error) -> OpenError {
    OpenError::Config(format!("flash: {}: {error}", path.display()))
}

/// Refuses a dangling symlink: a file created through it would lie outside the configured path, whose drive is probably missing.
fn refuse_dangling(path: &Path) -> Result<(), OpenError> {
    let Ok(target) = std::fs::read_link(path) else { return Ok(()) };
    let (path, target) = (path.display(), target.display());
    Err(OpenError::Config(format!("flash: {path}: is a symlink to {target}, which does not exist")))
}

/// Refuses a path that does not exist and at which no file can be created. `/dev` holds devices only: a file there would be memory
/// that passes for a drive. Only the last directory of a path is created; if more are missing, the path is probably mistyped.
fn check_creatable(path: &Path) -> Result<(), OpenError> {
    refuse_dangling(path)?;
    let refused = |message: &str| Err(OpenError::Config(format!("flash: {}: {message}", path.display())));
    if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
        return refused("no such device; name another with --device");
    }
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return refused("no such directory");
    }
    if let Some(grandparent) = missing_parent(path).and_then(missing_parent) {
        let source = rustix::io::Errno::NOENT.into();
        return Err(OpenError::Directory { path: grandparent.into(), source });
    }
    // Root may write to every directory, except on a read-only file system.
    let existing = path.ancestors().skip(1).find(|directory| directory.exists());
    let existing = existing.unwrap_or_else(|| Path::new("."));
    match rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if is_of_the_kernel(existing) => {
            refused(&format!("no file can be created in {}: its files are the kernel's", existing.display()))
        }
        Ok(()) => Ok(()),
        Err(errno) => refused(&format!("no file can be created in {}: {errno}", existing.display())),
    }
}

/// Magic numbers of procfs, sysfs, cgroup2, debugfs and tracefs.
const KERNEL_FILE_SYSTEMS: [u64; 5] = [0x9fa0, 0x6265_6572, 0x6367_7270, 0x6462_6720, 0x7472_6163];

/// Whether a directory is on a file system whose files only the kernel creates, although root has permission to write there.
fn is_of_the_kernel(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_ok_and(|it| KERNEL_FILE_SYSTEMS.contains(&(it.f_type as u64)))
}

/// Whether a path does not exist and no file can be created at it.
pub fn is_uncreatable(path: &Path) -> bool {
    !path.exists() && check_creatable(path).is_err()
}

fn missing_parent(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.exists())
}

/// Creates the parent directory, if it does not exist.
fn create_parent(path: &Path) -> Result<(), OpenError> {
    let Some(parent) = missing_parent(path) else { return Ok(()) };
    std::fs::create_dir(parent).map_err(|source| OpenError::Directory { path: parent.into(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn created_file_has_its_space_reserved_or_is_sparse_if_too_large() {
        let scratch = tempfile::tempdir().unwrap();
        let sharing = SharedPath {
            bytes: 0,
            allow_buffered: true,
            placement: false,
            persistent: true,
            opened: None,
            given_bytes: 0,
        };
        let reserved_bytes = |name: &str, bytes: u64| {
            let path = scratch.path().join(name);
            let device = sharing.open_path(&path, bytes, false).unwrap();
            assert_eq!(device.geometry().capacity_bytes, bytes);
            std::fs::metadata(&path).unwrap().blocks() * 512
        };
        assert!(reserved_bytes("fits", 1 << 20) >= 1 << 20);
        assert_eq!(reserved_bytes("larger than the disk", 1 << 43), 0);
    }
}
