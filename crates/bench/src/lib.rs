//! Benchmarks a cache: configs, runs, measurements and reports.
//!
//! [`config`] reads a config and makes a plan, [`run`] executes it, [`consistency`] checks the values found, and [`report`]
//! formats the results. [`environment`] describes the machine, [`progress`] and [`bar`] show the progress, [`chart`] draws
//! lines, and [`picture`] encodes images.
//!
//! [`events`] records events of keys. [`session`] connects all parts. [`simulate`] computes hit ratios of policies over a
//! trace. [`drive`] has operations on a drive without a cache; [`jobs`] runs fio job files on a model drive; [`evaluate`] combines drives with workload profiles into a
//! verdict.
//!
//! The run loop does not depend on the cache engine: it uses the trait [`run::target::Target`].

pub mod bar;
pub mod binary_trace;
pub mod block;
pub mod chart;
pub mod config;
pub mod consistency;
pub mod drive;
pub mod environment;
pub mod evaluate;
pub mod events;
pub mod file_id;
pub mod jobs;
mod moment;
mod palette;
pub mod picture;
pub mod predict;
pub mod progress;
pub mod report;
pub mod run;
pub mod session;
mod side_by_side;
pub mod simulate;
pub mod steady;
pub mod study;
pub mod tenants;
pub mod trace;
