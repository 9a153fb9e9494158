//! What to run: CacheBench's JSON, read strictly, checked once, and turned into a plan.
//!
//! [`cachebench`] reads a file as it was typed, [`check`] says what cannot be meant, [`lower`] makes a [`plan`] of it:
//! plain structs with units in their names, the only thing that the rest of the bench sees.

mod amounts;
pub mod cachebench;
pub mod check;
pub mod distribution_files;
mod files;
pub mod grouped;
pub mod keys;
pub mod knob;
pub mod lower;
mod names;
pub mod needs;
pub mod overrides;
pub mod plan;
mod region_policy;
mod scale;
mod text;

pub use cachebench::{Config, ConfigError, InstanceConfig, Loaded};
pub use overrides::{DeviceSpec, Override};
