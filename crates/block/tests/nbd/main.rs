//! Tests of the NBD server with a client that can violate the protocol, and with third-party clients.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
#![allow(clippy::print_stdout, reason = "tests print what they skip")]

mod client;
mod clients;
mod conformance;
mod hostile;
mod slots;
mod tools;
