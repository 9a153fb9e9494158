//! Builds the guest's initramfs, and judges its console output.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The first process: waits for the drives, runs the probes, prints their exit codes, switches the machine off.
const INIT: &str = include_str!("init.sh");

/// The first process of a measuring guest: runs fio and our program in turn.
const INIT_MEASURE: &str = include_str!("measure.sh");

/// A `bench` config of a hybrid cache on two drives with placement.
const BENCH_CONFIG: &str = include_str!("bench.json");

/// Packs busybox and the guest's files into an initramfs.
pub fn initramfs(folder: &Path, busybox: &Path, contents: &Contents<'_>) -> Result<PathBuf, String> {
    pack(folder, busybox, contents).map_err(|error| format!("packing the guest: {error}"))
}

/// Files of a guest besides busybox.
pub struct Contents<'a> {
    /// Our programs, whose libraries have the same paths as here.
    pub built: &'a [PathBuf],
    /// Programs of Debian packages, and their libraries.
    pub tools: &'a [PathBuf],
    /// A driver that the kernel has as a module.
    pub module: Option<&'a Path>,
    /// The guest's task.
    pub job: Job<'a>,
}

/// The guest's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job<'a> {
    /// Runs these probes.
    Probe(&'a [&'static str]),
    /// Measures our CPU time per read and fio's.
    Measure,
}

/// Directories in the guest's root.
const DIRECTORIES: [&str; 6] = ["bin", "dev", "modules", "proc", "sys", "tmp"];

fn pack(folder: &Path, busybox: &Path, contents: &Contents<'_>) -> std::io::Result<PathBuf> {
    let (root, init, probes) = match contents.job {
        Job::Probe(probes) => (folder.join("guest"), INIT, probes),
        Job::Measure => (folder.join("guest-measure"), INIT_MEASURE, &[][..]),
    };
    if root.exists() {
        // The previous guest had another kernel's modules.
        fs::remove_dir_all(&root)?;
    }
    for directory in DIRECTORIES {
        fs::create_dir_all(root.join(directory))?;
    }
    if let Some(module) = contents.module {
        unpack_module(busybox, module, &root.join("modules"))?;
    }
    fs::write(root.join("probes"), probes.join("\n"))?;
    let programs = contents.built.iter().chain(contents.tools).map(PathBuf::as_path);
    for program in programs.chain([busybox]) {
        let name = program.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
        fs::copy(program, root.join("bin").join(name))?;
    }
    for library in libraries_of(contents.built)? {
        let place = root.join(library.strip_prefix("/").unwrap_or(&library));
        fs::create_dir_all(place.parent().unwrap_or(&root))?;
        fs::copy(&library, place)?;
    }
    fs::write(root.join("init"), init)?;
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
    fs::write(root.join("bench.json"), BENCH_CONFIG)?;
    let mut names = vec![".".to_owned()];
    list(&root, Path::new(""), &mut names)?;
    let archive = folder.join("initramfs.cpio");
    let mut cpio = Command::new(busybox)
        .args(["cpio", "-o", "-H", "newc"])
        .current_dir(&root)
        .stdin(Stdio::piped())
        .stdout(fs::File::create(&archive)?)
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut list) = cpio.stdin.take() {
        list.write_all(names.join("\n").as_bytes())?;
    }
    let status = cpio.wait()?;
    if status.success() { Ok(archive) } else { Err(std::io::Error::other(format!("cpio: {status}"))) }
}

/// The loader and libraries of programs built here.
fn libraries_of(programs: &[PathBuf]) -> std::io::Result<BTreeSet<PathBuf>> {
    let listed = Command::new("ldd").args(programs).stderr(Stdio::inherit()).output()?;
    let words = String::from_utf8_lossy(&listed.stdout).into_owned();
    // Lines with a program's name end with a colon.
    let is_library = |word: &&str| word.starts_with('/') && !word.ends_with(':');
    Ok(words.split_whitespace().filter(is_library).map(PathBuf::from).collect())
}

/// Lists a directory of the guest, each directory before its contents.
fn list(root: &Path, directory: &Path, names: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(root.join(directory))? {
        let entry = entry?;
        let name = directory.join(entry.file_name());
        names.push(name.display().to_string());
        if entry.file_type()?.is_dir() {
            list(root, &name, names)?;
        }
    }
    Ok(())
}

/// Unpacks a module into `directory`, because busybox loads no compressed modules.
fn unpack_module(busybox: &Path, module: &Path, directory: &Path) -> std::io::Result<()> {
    let name = module.file_name().unwrap_or_default().to_string_lossy();
    let Some(plain) = name.strip_suffix(".xz") else {
        return fs::copy(module, directory.join(&*name)).map(drop);
    };
    let unpacked = fs::File::create(directory.join(plain))?;
    let status = Command::new(busybox).arg("xzcat").arg(module).stdout(unpacked).status()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other(format!("xzcat {name}: {status}"))) }
}

/// Prints the probes' output. Fails unless they ran on one of `releases`, all of them completed, and no check failed.
pub fn verdict(console: &str, releases: &RangeInclusive<(u32, u32)>, probes: usize) -> Result<(), String> {
    let said: Vec<&str> = console.lines().filter_map(|line| line.trim().strip_prefix("PROBE ")).collect();
    for line in &said {
        println!("vm:   {line}");
    }
    let kernel = said.iter().find_map(|line| release(line.strip_prefix("kernel ")?));
    if let Some(kernel) = kernel.filter(|kernel| !releases.contains(kernel)) {
        return Err(format!("the guest ran on {kernel:?} instead of {releases:?}"));
    }
    let failed = said.iter().filter(|line| line.starts_with("FAILED")).count();
    let ended = console.lines().any(|line| line.trim() == "GUEST-RC=0");
    let done = said.iter().filter(|line| line.starts_with("done")).count();
    if ended && failed == 0 && kernel.is_some() && done == probes {
        return Ok(());
    }
    let last: Vec<&str> = console.lines().rev().take(30).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Err(format!("{failed} checks failed; the console's last lines:\n{}", last.join("\n")))
}

/// The major and minor number in `6.12.57+deb13-cloud-amd64`.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(['.', '-', '+']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_probe_without_failures_passes() {
        let verdict = |console: &str| verdict(console, &((6, 12)..=(6, 15)), 1);
        let kernel = "PROBE kernel 6.12.57+deb13\n";
        let passed = "PROBE ok a\r\nPROBE done: 1 checks\r\nGUEST-RC=0\r\n";
        assert_eq!(verdict(&format!("{kernel}{passed}")), Ok(()));
        for broken in [
            "",
            "PROBE ok a\nGUEST-RC=0\n",
            "PROBE ok a\nPROBE done: 1 checks\n",
            "PROBE FAILED a\nPROBE done: 1 checks\nGUEST-RC=0\n",
            "PROBE done: 1 checks\nGUEST-RC=1\n",
        ] {
            assert!(verdict(&format!("{kernel}{broken}")).is_err(), "{broken:?}");
        }
        let twice = super::verdict(&format!("{kernel}{passed}"), &((6, 12)..=(6, 15)), 2);
        assert!(twice.is_err(), "the other probe printed nothing");
        assert!(verdict(passed).is_err(), "the kernel is unknown");
        assert!(verdict(&format!("PROBE kernel 7.3.4\n{passed}")).is_err(), "the kernel is another one");
    }
}
