//! `cargo xtask package`: a .deb, an .rpm and an archive with a static binary, in `target/packages`.

use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::MetadataCommand;

/// Installs a package in a fresh Debian, uses it, and removes it.
const TEST: &str = include_str!("release/test.sh");

/// Exit status of a skipped test.
const SKIPPED: i32 = 77;

const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";

/// The crates that can be published.
const LIBRARIES: &[&str] =
    &["device", "policy", "ssd", "workload", "cache", "block", "daemon", "server", "bench"];

/// Builds all packages.
pub fn build() -> Result<(), String> {
    let root = root();
    let target = target_directory(root)?;
    let packages = root.join("target/packages");
    std::fs::create_dir_all(&packages).map_err(|error| format!("{}: {error}", packages.display()))?;
    cargo(root, &["build", "--release", "-p", "flashwright"])?;
    let binary = target.join("release/flashwright");
    crate::run(Command::new(&binary).arg("package-files").arg(&packages).arg("--quiet"))?;
    let output = packages.to_str().ok_or("the path of the repository is not UTF-8")?;
    tool(root, &["deb", "-p", "flashwright", "--no-build", "--strip", "--output", output])?;
    // cargo-generate-rpm does not strip.
    let stripped = packages.join("flashwright");
    crate::run(Command::new("strip").arg("-o").arg(&stripped).arg(&binary))?;
    tool(root, &["generate-rpm", "-p", "crates/cli", "--output", output])?;
    archive(root, &target, &packages)?;
    println!("packages are in {output}");
    Ok(())
}

/// The archive with the static binary, if this machine can link one.
fn archive(root: &Path, target: &Path, packages: &Path) -> Result<(), String> {
    let built = cargo(root, &["build", "--release", "-p", "flashwright", "--target", STATIC_TARGET]);
    if let Err(error) = built {
        return Err(format!(
            "{error}\nthe static binary needs `rustup target add {STATIC_TARGET}` and musl-gcc (Debian: musl-tools)"
        ));
    }
    // The Containerfile expects the binary beside the packages.
    let binary = packages.join("flashwright");
    let from = target.join(STATIC_TARGET).join("release/flashwright");
    std::fs::copy(&from, &binary).map_err(|error| format!("{}: {error}", from.display()))?;
    crate::run(Command::new("strip").arg(&binary))?;
    let name = format!("flashwright-{}-{STATIC_TARGET}.tar.gz", env!("CARGO_PKG_VERSION"));
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(packages.join(name)).arg("-C").arg(packages).args([
        "flashwright",
        "man1",
        "completions",
    ]);
    crate::run(tar.arg("-C").arg(root.join("packages")).args(["systemd", "sysusers.d", "tmpfiles.d", "etc"]))
}

/// Installs the newest .deb in a fresh Debian 12, and removes it.
pub fn test() -> Result<(), String> {
    let packages = root().join("target/packages");
    let script = Command::new("bash").args(["-euc", TEST, "release/test.sh"]).arg(&packages).status();
    let status = script.map_err(|error| format!("bash: {error}"))?;
    match status.code() {
        Some(0 | SKIPPED) => Ok(()),
        _ => Err(format!("the test of the Debian package: {status}")),
    }
}

/// Packs the library crates as `cargo publish` would, and compiles each from its archive.
pub fn crates() -> Result<(), String> {
    let mut arguments = vec!["package".to_owned(), "--allow-dirty".to_owned()];
    arguments.extend(LIBRARIES.iter().flat_map(|name| ["-p".to_owned(), format!("flashwright-{name}")]));
    crate::run(Command::new(env!("CARGO")).args(arguments).current_dir(root()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

fn target_directory(root: &Path) -> Result<PathBuf, String> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec();
    metadata.map(|it| it.target_directory.into()).map_err(|error| format!("cargo metadata: {error}"))
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<(), String> {
    crate::run(Command::new(env!("CARGO")).args(arguments).current_dir(root))
}

/// Runs a command that is installed separately.
fn tool(root: &Path, arguments: &[&str]) -> Result<(), String> {
    cargo(root, arguments)
        .map_err(|error| format!("{error}\nit needs `cargo install cargo-{}`", arguments[0]))
}
