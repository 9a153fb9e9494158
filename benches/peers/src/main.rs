//! Compares Flashwright with its Rust peers: same objects and requests, one process, alternating rounds.

mod dram;
mod dram_peers;
mod flash;
mod measure;
mod population;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(about = "Flashwright beside foyer, moka and quick_cache")]
enum Command {
    /// Caches in memory: CPU, hit ratio, memory an entry.
    Dram(dram::Arguments),
    /// One cache on a file: objects held, bytes written, CPU time.
    Flash(flash::Arguments),
}

fn main() {
    match Command::parse() {
        Command::Dram(arguments) => dram::run(&arguments),
        Command::Flash(arguments) => flash::run(&arguments),
    }
}
