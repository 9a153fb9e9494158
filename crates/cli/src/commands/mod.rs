//! One command a file.

pub mod bench;
