//! `flashwright block`: flash in front of a disk, for any program that speaks to a block device.

mod cached;
mod check;
mod contents;
mod control;
mod create;
mod descriptors;
mod destroy;
mod devices;
mod figures;
mod flush;
mod knobs;
mod prometheus;
mod recording;
mod replay;
mod serve;
mod set;
mod shape;
mod status;
mod upgrade;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;

/// What to do with a cached disk.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a cache of a flash device for a disk.
    Create(create::Arguments),
    /// Serve a cached disk to NBD clients until a signal comes.
    Serve(serve::Arguments),
    /// Tell how a served cache is doing, or what is on a flash device.
    Status(status::Arguments),
    /// Change how a cache behaves, while it is served or not.
    Set(set::Arguments),
    /// Bring everything that is newer on flash to the disk.
    Flush(cached::Arguments),
    /// Bring a cache that an older program made to the newest format.
    Upgrade(cached::Arguments),
    /// Verify what is on flash.
    Check(check::Arguments),
    /// Make a cache unusable, so that the disk is used alone from then on.
    Destroy(destroy::Arguments),
    /// Put recorded or made-up requests to the cache's core, in virtual time.
    Replay(replay::Arguments),
}

/// Runs one of the commands.
pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::Create(arguments) => create::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Set(arguments) => set::run(arguments),
        Command::Flush(arguments) => flush::run(arguments),
        Command::Upgrade(arguments) => upgrade::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Destroy(arguments) => destroy::run(arguments),
        Command::Replay(arguments) => replay::run(arguments),
    }
}
