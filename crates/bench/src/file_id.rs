//! Which file a path leads to, whether there is one yet or not.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// A symlink may lead to another, but not for ever.
const MOST_LINKS: usize = 40;

/// What paths that lead to one file have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileId {
    /// A file or directory, by file system and inode.
    File(u64, u64),
    /// A block device, whichever of its nodes it is known by.
    BlockDevice(u64),
    /// Nothing yet: where it would be.
    New(PathBuf),
}

impl FileId {
    /// What `path` leads to. `None` is something that has no content to lose: a terminal, a pipe, `/dev/null`.
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

/// Whether both lead to one file.
#[must_use]
pub fn is_same(one: &Path, other: &Path) -> bool {
    FileId::of(one).is_some_and(|id| Some(id) == FileId::of(other))
}

/// Where a path to nothing ends, behind its symlinks and those on its way.
fn end_of(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
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
    fn a_file_is_the_same_by_whatever_path() {
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
    fn what_keeps_nothing_is_nobody_elses() {
        assert!(!is_same(Path::new("/dev/null"), Path::new("/dev/null")));
    }
}
