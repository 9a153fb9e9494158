//! The front ends, by which clients reach a served disk. A front end is a file here and a line of [`front_ends!`].

mod fuse;
mod nbd;
mod ublk;

use std::path::PathBuf;
use std::sync::Arc;

use block::export::{Client, Export};
use clap::Args;
use serde_json::Value;

use crate::control;

/// A requested front end.
pub trait FrontEnd {
    /// Checks what can be checked before the cache is opened.
    fn prepare(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Starts to serve clients.
    fn start(&mut self, disk: &ServedDisk) -> Result<(), String>;

    /// The address by which clients use the disk, once started.
    fn address(&self) -> String;

    /// The address for the line that reports the start; `None` if it is reported only without other front ends.
    fn ready_address(&self) -> Option<String> {
        Some(self.address())
    }

    /// The default control socket of a server whose first front end this is.
    fn control_path(&self) -> PathBuf;

    /// The block device that this front end makes, which no result may overwrite.
    fn block_device(&self) -> Option<PathBuf> {
        None
    }

    /// The source of the front end's part of the status.
    fn monitor(&self) -> Option<Arc<dyn Monitor>> {
        None
    }

    /// Finishes requests in flight and stops. `say` receives a line for the user.
    fn stop(&mut self, say: &dyn Fn(&str)) -> Result<(), String>;
}

/// The part of the status that a running front end reports.
pub trait Monitor: Send + Sync {
    /// Adds that part.
    fn add_to(&self, status: &mut Value);

    /// The connected clients; `None` if the front end has no connections.
    fn clients(&self) -> Option<Vec<Client>> {
        None
    }
}

/// The disk that front ends serve.
pub struct ServedDisk {
    /// Executes the requests of clients.
    pub export: Arc<dyn Export>,
    /// Executes the requests of clients whose blocks are not cached.
    pub uncached: Option<Arc<dyn Export>>,
    /// Name of the export.
    pub name: String,
    /// Flash and disk, for clients.
    pub description: String,
    /// An identity that is unique on this machine until it reboots, or why there is none.
    pub identity: Result<u64, String>,
}

/// Group of the flags that select a server, which exclude each other.
pub const SERVER: &str = "server";

/// Declares the front ends: module, flags of `block serve` and those of them that request the front end, and flags in the group [`SERVER`] by
/// which other commands find the server. The first requested front end determines the server's address and control socket.
macro_rules! front_ends {
    ($($module:ident: $flags:ident $requesting:literal, $target:ident;)+) => {
        /// Heading of the access flags.
        pub const ACCESS: &str = concat!("Access (at least one of", $(" ", $requesting,)+ ")");

        /// Flags of `block serve` for all front ends.
        #[derive(Debug, Args)]
        pub struct FrontEndFlags {
            $(#[command(flatten)] pub $module: $module::$flags,)+
        }

        impl FrontEndFlags {
            /// The requested front ends; at least one.
            pub fn requested(&self, name: &str) -> Result<Vec<Box<dyn FrontEnd>>, String> {
                let all = [$(self.$module.front_end(name)?),+];
                let requested: Vec<_> = all.into_iter().flatten().collect();
                if requested.is_empty() {
                    let usages = [$($module::USAGE),+].join(", ");
                    return Err(format!("no way to reach the disk: give {usages}, or several of them"));
                }
                Ok(requested)
            }

            /// Adds the flags to the configuration in a result.
            pub fn add_to(&self, config: &mut Value) {
                $(self.$module.add_to(config);)+
            }
        }

        /// Selects a server.
        #[derive(Debug, Args)]
        pub struct Target {
            $(#[command(flatten)] $module: $module::$target,)+
            /// The server's control socket, if it was given --control
            #[arg(long, value_name = "PATH", group = SERVER)]
            pub control: Option<PathBuf>,
        }

        impl Target {
            /// The control socket, if a server is selected.
            #[must_use]
            pub fn path(&self) -> Option<PathBuf> {
                let of_front_ends = [$(self.$module.control_path()),+];
                self.control.clone().or_else(|| of_front_ends.into_iter().flatten().next())
            }
        }
    };
}

front_ends! {
    nbd: NbdFlags "--socket --listen", NbdTarget;
    ublk: UblkFlags "--ublk", UblkTarget;
    fuse: FuseFlags "--fuse", FuseTarget;
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        target: Target,
        #[arg(long, conflicts_with = SERVER)]
        flash: bool,
    }

    #[test]
    fn flags_of_two_servers_exclude_each_other() {
        let flags = [["--socket", "s"], ["--listen", "127.0.0.1:1"], ["--ublk", "1"], ["--control", "c"]];
        for (at, one) in flags.iter().enumerate() {
            let parsed = |other: &[&str]| Line::try_parse_from([&["line"], &one[..], other].concat());
            assert!(parsed(&[]).is_ok_and(|line| line.target.path().is_some()), "{one:?}");
            for other in flags[..at].iter().map(|other| &other[..]).chain([&["--flash"][..]]) {
                let kind = parsed(other).map_err(|error| error.kind()).err();
                assert_eq!(kind, Some(ErrorKind::ArgumentConflict), "{one:?} {other:?}");
            }
        }
    }
}
