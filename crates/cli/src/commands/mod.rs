//! The commands, one per file.

pub mod bench;
pub mod block;
pub mod compare;
mod confirm;
pub mod evaluate;
pub mod model;
pub mod package_files;
pub mod predict;
pub mod report;
pub mod serve;
pub mod simulate;
pub mod ssd;
pub mod study;
pub mod sweep;
pub mod trace;
pub mod trace_generate;
