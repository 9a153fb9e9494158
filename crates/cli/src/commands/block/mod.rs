//! `flashwright block`: flash in front of a disk, for any program that uses a block device.

mod cached;
mod check;
mod create;
mod destroy;
mod flush;
mod grow;
mod list;
mod replace;
mod replay;
mod result_file;
mod serve;
mod set;
mod shape;
mod status;
mod ublk;
mod upgrade;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;

/// The `block` commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a cache on a flash device for a disk.
    Create(create::Arguments),
    /// Serve a cached disk over NBD, ublk or FUSE until interrupted.
    Serve(serve::Arguments),
    /// List the caches that the files in /etc/flashwright/block.d name.
    List(list::Arguments),
    /// Show the state of a served cache, or the contents of a flash device.
    Status(status::Arguments),
    /// Change the settings of a cache, served or not.
    Set(set::Arguments),
    /// Write all dirty blocks back to the disk.
    Flush(cached::Arguments),
    /// Upgrade a cache made by an older version to the newest format.
    Upgrade(cached::Arguments),
    /// Verify a cache's metadata, and with --full its data.
    Check(check::Arguments),
    /// Destroy a cache, so that the disk can be used alone.
    Destroy(destroy::Arguments),
    /// Record the new size of a disk that was enlarged, of a cache that is served or not.
    Grow(cached::Arguments),
    /// Move a cache, served or not, to another flash device, larger or smaller, with all its blocks.
    ReplaceFlash(replace::Arguments),
    /// List ublk devices, or delete one whose server is gone.
    #[command(subcommand)]
    Ublk(ublk::Command),
    /// Replay recorded or generated requests through the cache, in virtual time.
    Replay(replay::Arguments),
}

/// Runs one of the commands.
pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::Create(arguments) => create::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Set(arguments) => set::run(arguments),
        Command::Flush(arguments) => flush::run(arguments),
        Command::Upgrade(arguments) => upgrade::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Destroy(arguments) => destroy::run(arguments),
        Command::Grow(arguments) => grow::run(arguments),
        Command::ReplaceFlash(arguments) => replace::run(arguments),
        Command::Ublk(command) => ublk::run(command),
        Command::Replay(arguments) => replay::run(arguments),
    }
}
