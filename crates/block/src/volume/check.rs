//! Verifying a volume.
