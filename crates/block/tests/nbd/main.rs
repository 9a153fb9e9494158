//! The NBD server from outside: by a client of our own that can be rude, and by everybody else's.

mod client;
mod conformance;
mod hostile;
mod tools;
