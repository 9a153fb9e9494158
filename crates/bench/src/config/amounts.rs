//! Unit conversions of config values. A value that is too large is reported with its key.

pub(super) const MIB: u64 = 1 << 20;

/// Largest size of a file or device: Linux counts offsets in an `i64`. The sum of two such sizes fits in a `u64`.
pub(super) const MAX_BYTES: u64 = i64::MAX as u64;

/// Converts mebibytes to bytes.
pub(super) fn mib(count: u64, key: &str) -> Result<u64, String> {
    count
        .checked_mul(MIB)
        .filter(|bytes| *bytes <= MAX_BYTES)
        .ok_or_else(|| format!("{key}: {count} MiB is too large"))
}

/// Converts a value to a narrower integer type.
pub(super) fn narrow<T: TryFrom<u64>>(value: u64, key: &str) -> Result<T, String> {
    T::try_from(value).map_err(|_| format!("{key}: {value} is too large"))
}
