//! Identity of the file that a path leads to, including files that do not exist yet.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Limit of symlinks, against loops.
const MAX_LINKS: usize = 40;

/// Identity of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileId {
    /// A file or directory, by file system and inode.
    File(u64, u64),
    /// A block device, by device number.
    BlockDevice(u64),
    /// No file yet: the path at which it would be created.
    New(PathBuf),
}

impl FileId {
    /// Identity of the file at `path`. `None` for a file that stores nothing: a terminal, a pipe, `/dev/null`.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match std::fs::metadata(path) {
            Ok(found) => Self::of_found(&found),
            Err(_) => Some(Self::New(end_of(path))),
        }
    }

    fn of_found(found: &Metadata) -> Option<Self> {
        let kind = found.file_type();
        if kind.is_block_device() {
            return Some(Self::BlockDevice(found.rdev()));
        }
        (kind.is_file() || kind.is_dir()).then(|| Self::File(found.dev(), found.ino()))
    }
}

/// Whether both paths lead to the same file.
#[must_use]
pub fn is_same(one: &Path, other: &Path) -> bool {
    FileId::of(one).is_some_and(|id| Some(id) == FileId::of(other))
}

/// Resolves the symlinks of a path to a missing file.
fn end_of(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_same_for_links_and_relative_paths() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        std::fs::hard_link(at("file"), at("hard")).unwrap();
        for (link, target) in
            [("soft", "file"), ("dangling", "later"), ("twice", "dangling"), ("round", "round")]
        {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        for other in ["hard", "soft", "./file", "../FOLDER/file"] {
            let folder = scratch.path().file_name().unwrap().to_str().unwrap();
            assert!(is_same(&at("file"), &at(&other.replace("FOLDER", folder))), "{other}");
        }
        assert!(is_same(&at("later"), &at("./later")) && is_same(&at("later"), &at("twice")));
        assert!(!is_same(&at("later"), &at("other")) && !is_same(&at("file"), &at("later")));
        assert!(is_same(&at("round"), &at("round")));
    }

    #[test]
    fn is_same_is_false_for_dev_null() {
        assert!(!is_same(Path::new("/dev/null"), Path::new("/dev/null")));
    }
}
