//! Amounts of a config as the engine counts them, refused by their key where they are more than it can.

pub(super) const MIB: u64 = 1 << 20;

/// The end of the largest file or device: the system counts with a sign. Two of these can be added.
pub(super) const MOST_BYTES: u64 = i64::MAX as u64;

/// Mebibytes in bytes.
pub(super) fn mib(count: u64, key: &str) -> Result<u64, String> {
    count
        .checked_mul(MIB)
        .filter(|bytes| *bytes <= MOST_BYTES)
        .ok_or_else(|| format!("{key}: {count} MiB is too large"))
}

/// An amount in as many bits as it is counted with.
pub(super) fn narrow<T: TryFrom<u64>>(value: u64, key: &str) -> Result<T, String> {
    T::try_from(value).map_err(|_| format!("{key}: {value} is too large"))
}
