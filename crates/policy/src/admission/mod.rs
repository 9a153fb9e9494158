//! Admission policies, one a file, and the table of their names.

pub mod always;

pub use always::Always;
