//! The server as its clients see it: each request with its exact reply, hostile clients, and random clients compared
//! with a model.

#![allow(clippy::unwrap_used, reason = "in a test, a failed unwrap fails the test")]

mod hostile;
mod large;
mod large_clients;
mod limits;
mod metrics;
mod model;
mod restart;
mod security;
mod setup;
mod table;
mod table_meta;
mod twin;
