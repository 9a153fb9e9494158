//! The region store: log-structured regions.
