//! Maps and sets of hashes, which are not hashed again.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds an [`IdentityHasher`].
pub(crate) type Hashed = BuildHasherDefault<IdentityHasher>;

/// A hasher that returns the number itself.
#[derive(Default)]
pub(crate) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("the table accepts only hashes of 64 bits");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
