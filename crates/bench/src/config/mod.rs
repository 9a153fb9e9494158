//! Reads CacheBench's JSON strictly, checks it, and converts it to a plan.
//!
//! [`cachebench`] reads a file as typed, [`check`] checks its values, and [`lower`] converts it to a [`plan`]: plain structs
//! with units in their names, on which the rest of the bench depends.

mod amounts;
pub mod cachebench;
pub mod check;
pub mod condition;
pub mod distribution_files;
mod files;
pub mod findings;
pub mod grouped;
mod instance;
pub mod keys;
pub mod lower;
pub mod names;
pub mod needs;
mod normalize;
pub mod overrides;
pub mod plan;
mod region_policy;
mod scale;
pub mod schema;
mod text;

pub use cachebench::{Config, ConfigError, Loaded};
pub use instance::InstanceConfig;
pub use overrides::{DeviceSpec, Override};
