//! The store as a whole.
