//! One command a file.

pub mod bench;
pub mod model;
pub mod ssd;
