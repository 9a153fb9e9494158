//! The NBD server from outside: by a client of our own that can be rude, and by everybody else's.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

mod client;
mod clients;
mod conformance;
mod hostile;
mod tools;
