//! Small objects: set-associative buckets.
