//! Runs a workload against an engine: configs, runs, figures, reports.
//!
//! [`config`] reads what to run and makes a plan of it, [`run`] does it, [`consistency`] judges what was found on the way,
//! and [`report`] says how it went. [`environment`] and [`progress`] are what the report and the user want to know besides;
//! [`bar`] shows how far anything is, [`chart`] draws lines, and [`picture`] makes a file of what was
//! drawn.
//!
//! [`events`] writes down what happens to keys. [`session`] ties them together. [`simulate`] is for policies alone: hit ratios over a trace. [`drive`] is for a drive
//! alone: looking at it, trimming, filling and watching it; [`evaluate`] does all of that and the SSD's profiles, and judges.
//!
//! This room does not know how the engine keeps its promises: the loop sees a [`run::target::Target`].

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
