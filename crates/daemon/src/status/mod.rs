//! The status of a cache, as JSON, text and Prometheus metrics.

pub mod figures;
pub mod prometheus;
pub mod requests;
