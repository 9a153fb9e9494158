//! Debian packages, fetched from the archive that this machine's apt uses, and unpacked into a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that depends on the latest cloud kernel of its suite.
const CLOUD_KERNEL: &str = "linux-image-cloud-amd64";

/// Why packages are unavailable: a reason to skip, not to fail.
pub struct Unavailable(pub String);

impl From<std::io::Error> for Unavailable {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// A private apt whose packages are unpacked under one folder.
pub struct Packages {
    folder: PathBuf,
    configuration: PathBuf,
}

/// The folder of the libraries in an unpacked tree.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";

impl Packages {
    /// Packages in `folder`. Existing ones are not fetched again.
    pub fn open(folder: &Path) -> Result<Self, Unavailable> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(Unavailable("Debian's packages run on Linux on x86-64 only".into()));
        }
        let configuration = configure(folder, &["bookworm", "trixie", "trixie-backports"])?;
        Ok(Self { folder: folder.into(), configuration })
    }

    /// Packages of `suite` with all their dependencies, unpacked into one tree called `name`.
    pub fn install(&self, suite: &str, name: &str, packages: &[&str]) -> Result<PathBuf, Unavailable> {
        let mut arguments = vec!["install", "-y", "--no-install-recommends", "--download-only", "-t", suite];
        arguments.extend_from_slice(packages);
        self.unpacked(name, || Ok(arguments.into_iter().map(str::to_owned).collect()))?;
        Ok(self.folder.join(name))
    }

    /// A command that runs a program of an unpacked tree with the tree's own loader and libraries, because this machine's can be older.
    pub fn program(tree: &Path, program: &str, more_libraries: &str) -> Command {
        let libraries = tree.join(LIBRARIES);
        let places =
            [libraries.clone(), tree.join("usr/lib64"), tree.join("lib64")].map(|it| it.join(LOADER));
        let loader = places.iter().find(|place| place.is_file()).unwrap_or(&places[0]);
        let mut command = Command::new(loader);
        command.arg("--library-path").arg(format!("{0}:{0}/{more_libraries}", libraries.display()));
        command.arg(tree.join(program));
        command
    }

    /// Programs of one package with their loader and libraries, as files for one folder of the guest.
    pub fn programs(
        &self,
        suite: &str,
        package: &str,
        programs: &[&str],
    ) -> Result<Vec<PathBuf>, Unavailable> {
        let tree = self.install(suite, package, &[package])?;
        let libraries = tree.join(LIBRARIES);
        let loader = libraries.join(LOADER);
        let path = std::env::join_paths([&libraries, &libraries.join("ceph")])
            .map_err(|error| Unavailable(error.to_string()))?;
        let mut files = vec![loader.clone()];
        for program in programs.iter().map(|program| tree.join(program)) {
            let mut list = Command::new(&loader);
            list.arg("--list").arg("--library-path").arg(&path).arg(&program);
            let listed = output(&mut list)?;
            let in_tree = |word: &&str| word.starts_with('/') && Path::new(word).starts_with(&tree);
            files.extend(listed.split_whitespace().filter(in_tree).map(PathBuf::from));
            files.push(program);
        }
        Ok(files)
    }

    /// The image of the cloud kernel of `suite`. Its NVMe drivers are built in.
    pub fn kernel(&self, suite: &str) -> Result<PathBuf, Unavailable> {
        let name = format!("kernel-{suite}");
        self.unpacked(&name, || {
            let image = &self.latest_image(suite)?;
            // Newer kernels have a separate package for the image.
            let parts = self.names_after("apt-cache", &["depends", image], "linux-binary-")?;
            let mut arguments = vec!["download".to_owned(), image.clone()];
            arguments.extend(parts);
            Ok(arguments)
        })?;
        find(&self.folder.join(name), |name| name.starts_with("vmlinuz"))
    }

    /// The file of a module of that kernel, if it exists.
    pub fn module(&self, suite: &str, module: &str) -> Result<Option<PathBuf>, Unavailable> {
        let is_module = |name: &str| name.strip_suffix(".xz").unwrap_or(name) == format!("{module}.ko");
        let of_image = self.folder.join(format!("kernel-{suite}"));
        if find(&of_image, |name| name.contains(".ko")).is_ok() {
            return Ok(find(&of_image, is_module).ok());
        }
        // Newer kernels have a separate package for modules.
        let name = format!("modules-{suite}");
        self.unpacked(&name, || {
            let image = self.latest_image(suite)?;
            let modules = self.names_after("apt-cache", &["depends", &image], "linux-modules-")?;
            Ok(std::iter::once("download".to_owned()).chain(modules).collect())
        })?;
        Ok(find(&self.folder.join(name), is_module).ok())
    }

    /// The package of the latest cloud kernel of `suite`.
    fn latest_image(&self, suite: &str) -> Result<String, Unavailable> {
        let version = self.version_in(suite, CLOUD_KERNEL)?;
        let meta = format!("{CLOUD_KERNEL}={version}");
        let latest = self.names_after("apt-cache", &["show", &meta], "linux-image-")?;
        latest.into_iter().next().ok_or_else(|| Unavailable(format!("{suite} has no cloud kernel")))
    }

    /// Fetches packages by apt-get with these arguments and unpacks them into the folder `name`, unless that was done before.
    fn unpacked(
        &self,
        name: &str,
        arguments: impl FnOnce() -> Result<Vec<String>, Unavailable>,
    ) -> Result<(), Unavailable> {
        let (tree, archives) = (self.folder.join(name), self.folder.join("archives").join(name));
        let done = tree.join(".unpacked");
        if done.exists() {
            return Ok(());
        }
        fs::create_dir_all(archives.join("partial"))?;
        fs::create_dir_all(&tree)?;
        self.refresh_lists()?;
        println!("fetching {name}");
        let mut fetch = self.apt("apt-get");
        fetch.current_dir(&archives).arg("-qq");
        fetch.arg("-o").arg(format!("Dir::Cache::archives={}", archives.display())).args(arguments()?);
        // The cause may be package lists older than the archive: the next run fetches them again.
        output(&mut fetch).inspect_err(|_| drop(fs::remove_file(self.folder.join("apt/refreshed"))))?;
        for entry in fs::read_dir(&archives)?
            .flatten()
            .filter(|it| it.path().extension().is_some_and(|it| it == "deb"))
        {
            output(Command::new("dpkg-deb").arg("-x").arg(entry.path()).arg(&tree))?;
        }
        fs::remove_dir_all(&archives)?;
        Ok(fs::write(done, "")?)
    }

    /// The version of a package in one suite. apt's candidate would be the newest version of all suites.
    fn version_in(&self, suite: &str, package: &str) -> Result<String, Unavailable> {
        let table = output(self.apt("apt-cache").args(["madison", package]))?;
        let version = table.lines().find_map(|line| {
            let [_, version, origin] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
                return None;
            };
            let here = origin.split_whitespace().any(|word| word.split('/').next() == Some(suite));
            here.then(|| version.to_owned())
        });
        version.ok_or_else(|| Unavailable(format!("{suite} has no package {package}")))
    }

    fn refresh_lists(&self) -> Result<(), Unavailable> {
        let done = self.folder.join("apt/refreshed");
        if !done.exists() {
            println!("fetching package lists");
            output(self.apt("apt-get").args(["-qq", "update", "-o", "APT::Update::Error-Mode=any"]))?;
            fs::write(done, "")?;
        }
        Ok(())
    }

    /// Words of the command's output that begin with `prefix` and a digit.
    fn names_after(
        &self,
        program: &str,
        arguments: &[&str],
        prefix: &str,
    ) -> Result<Vec<String>, Unavailable> {
        let printed = output(self.apt(program).args(arguments))?;
        let words = printed.split(|letter: char| letter.is_whitespace() || letter == ',');
        let numbered = |word: &&str| {
            word.strip_prefix(prefix)
                .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
        };
        Ok(words.filter(numbered).map(str::to_owned).collect())
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", &self.configuration).env("LC_ALL", "C");
        command
    }
}

/// Configures a private apt: its own lists and cache, and an empty list of installed packages, so that all dependencies are fetched.
fn configure(folder: &Path, suites: &[&str]) -> Result<PathBuf, Unavailable> {
    let apt = folder.join("apt");
    for directory in ["lists/partial", "cache/archives/partial", "etc/sources.d", "etc/preferences.d"] {
        fs::create_dir_all(apt.join(directory))?;
    }
    let (archive, key) = archive()?;
    let signed_by = key.map_or_else(String::new, |key| format!("[signed-by={key}] "));
    let mut sources: Vec<_> =
        suites.iter().map(|suite| format!("deb {signed_by}{archive} {suite} main\n")).collect();
    sources.sort();
    sources.dedup();
    fs::write(apt.join("etc/sources.list"), sources.concat())?;
    fs::write(apt.join("status"), "")?;
    let path = apt.display();
    let settings = format!(
        "Dir::State \"{path}\";\nDir::State::Lists \"{path}/lists\";\nDir::State::status \"{path}/status\";\n\
         Dir::Cache \"{path}/cache\";\nDir::Etc::SourceList \"{path}/etc/sources.list\";\n\
         Dir::Etc::SourceParts \"{path}/etc/sources.d\";\nDir::Etc::PreferencesParts \"{path}/etc/preferences.d\";\n\
         Acquire::Languages \"none\";\nAcquire::Retries \"2\";\nAPT::Sandbox::User \"root\";\n\
         Debug::NoLocking \"1\";\nAPT::Architecture \"amd64\";\n"
    );
    let configuration = apt.join("apt.conf");
    fs::write(&configuration, settings)?;
    Ok(configuration)
}

/// This machine's apt source for Debian, and the key for it.
fn archive() -> Result<(String, Option<String>), Unavailable> {
    let directory = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let mut files: Vec<_> = directory.map(|entry| entry.path()).collect();
    files.sort();
    files.push("/etc/apt/sources.list".into());
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    let found = texts.into_iter().find_map(|text| stanza(&text).or_else(|| line(&text)));
    found.ok_or_else(|| Unavailable("no Debian archive among this machine's apt sources".into()))
}

/// Parses a file of stanzas: `URIs: …/debian` and `Signed-By: …`.
fn stanza(text: &str) -> Option<(String, Option<String>)> {
    text.split("\n\n").find_map(|stanza| {
        let field = |name: &str| {
            let value = stanza.lines().find_map(|line| line.strip_prefix(name))?;
            value.split_whitespace().next().map(str::to_owned)
        };
        let archive = field("URIs:").filter(|archive| is_debian(archive))?;
        Some((archive, field("Signed-By:")))
    })
}

/// Parses a file of lines: `deb [signed-by=…] …/debian suite component`.
fn line(text: &str) -> Option<(String, Option<String>)> {
    text.lines().filter(|line| line.starts_with("deb ")).find_map(|line| {
        let words = || line.split(|letter: char| letter.is_whitespace() || "[]".contains(letter));
        let archive = words().find(|word| is_debian(word))?;
        let key = words().find_map(|word| word.strip_prefix("signed-by="));
        Some((archive.to_owned(), key.map(str::to_owned)))
    })
}

fn is_debian(archive: &str) -> bool {
    archive.contains("://") && archive.trim_end_matches('/').ends_with("/debian")
}

pub fn find(folder: &Path, wanted: impl Fn(&str) -> bool + Copy) -> Result<PathBuf, Unavailable> {
    fn search(folder: &Path, wanted: impl Fn(&str) -> bool + Copy) -> Option<PathBuf> {
        let mut entries: Vec<_> = fs::read_dir(folder).ok()?.flatten().collect();
        entries.sort_by_key(fs::DirEntry::path);
        entries.iter().find_map(|entry| {
            let kind = entry.file_type().ok()?;
            if kind.is_dir() {
                return search(&entry.path(), wanted);
            }
            (kind.is_file() && wanted(&entry.file_name().to_string_lossy())).then(|| entry.path())
        })
    }
    search(folder, wanted)
        .ok_or_else(|| Unavailable(format!("the required file is not in {}", folder.display())))
}

fn output(command: &mut Command) -> Result<String, Unavailable> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Unavailable(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let last = message.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no error message");
    Err(Unavailable(format!("{program} {}: {last}", output.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_is_found_in_both_formats_of_sources() {
        let stanzas = "Types: deb\nURIs: http://mirror.test/debian-security\nSigned-By: /k1\n\n\
                       Types: deb\nURIs: http://mirror.test/debian/\nSuites: a b\nSigned-By: /k2\n";
        assert_eq!(stanza(stanzas), Some(("http://mirror.test/debian/".into(), Some("/k2".into()))));
        let lines = "# deb http://no.test/debian a main\ndeb [arch=amd64 signed-by=/k] http://mirror.test/debian a main\n";
        assert_eq!(line(lines), Some(("http://mirror.test/debian".into(), Some("/k".into()))));
        assert_eq!(
            line("deb http://mirror.test/debian a main"),
            Some(("http://mirror.test/debian".into(), None))
        );
        assert_eq!((stanza(lines), line(stanzas)), (None, None));
    }
}
