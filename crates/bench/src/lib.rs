//! Runs a workload against an engine: configs, runs, figures, reports.
//!
//! [`config`] reads what to run; the rest follows.

pub mod config;
