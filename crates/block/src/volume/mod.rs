//! The volume: two devices, one cache, and the promise that an acknowledged flush is kept.
