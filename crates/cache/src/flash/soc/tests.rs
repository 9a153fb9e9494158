//! The small-object cache as its caller sees it.
