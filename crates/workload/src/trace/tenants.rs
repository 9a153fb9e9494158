//! The clients in a trace: reads their names from columns and numbers them.
//!
//! A name consists of the tenant columns, joined by `/`; empty trailing columns are dropped, and a row with only empty columns has no
//! tenant. The first [`MAX_TENANTS`] names of a trace are distinguished and all others are combined, which bounds memory. The selection
//! depends only on the order of rows. (Keeping those with the most requests would require a second pass, or a sketch with approximate
//! counts.)

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64;

/// Number of names that are distinguished.
pub const MAX_TENANTS: usize = 1 << 16;
/// Longer names are replaced by their hash.
const LONGEST_NAME_BYTES: usize = 128;

/// A client, by a number; [`TenantNames`] has the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(NonZeroU32);

impl Tenant {
    /// All tenants beyond [`MAX_TENANTS`].
    pub const OTHERS: Self = Self(NonZeroU32::MIN);

    /// The index, from 0 ([`OTHERS`](Self::OTHERS)) to [`MAX_TENANTS`].
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The tenant with this index.
    ///
    /// # Panics
    /// If the index is above [`MAX_TENANTS`].
    #[must_use]
    pub fn of_index(index: usize) -> Self {
        assert!(index <= MAX_TENANTS, "the index must be at most MAX_TENANTS");
        Self(NonZeroU32::MIN.saturating_add(index as u32))
    }
}

/// The names seen so far, shared by the readers and the reports of a trace.
#[derive(Debug, Clone, Default)]
pub struct TenantNames(Arc<Mutex<Vec<Arc<str>>>>);

impl TenantNames {
    /// The names by index, without [`Tenant::OTHERS`], so that the first name has index 1.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The tenant's name; `None` for [`Tenant::OTHERS`].
    #[must_use]
    pub fn of(&self, tenant: Tenant) -> Option<Arc<str>> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tenant.index().checked_sub(1).and_then(|place| names.get(place).cloned())
    }

    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn push(&self, name: &[u8]) {
        let name = Arc::from(String::from_utf8_lossy(name));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(name);
    }
}

/// Numbers the names. Used by one reader; the shared names are locked only when one is added.
#[derive(Debug)]
pub(super) struct Interner {
    names: TenantNames,
    known: HashMap<Box<[u8]>, Tenant>,
    /// The name being looked up.
    name: Vec<u8>,
}

impl Interner {
    /// Creates an interner without names.
    pub(super) fn new(names: TenantNames) -> Self {
        names.clear();
        Self { names, known: HashMap::new(), name: Vec::new() }
    }

    /// The tenant named by these columns; `None` if they are empty.
    #[inline]
    pub(super) fn tenant(&mut self, columns: &[&[u8]]) -> Option<Tenant> {
        let last = columns.iter().rposition(|column| !column.is_empty())?;
        self.name.clear();
        for (place, column) in columns[..=last].iter().enumerate() {
            if place > 0 {
                self.name.push(b'/');
            }
            self.name.extend_from_slice(column);
        }
        if self.name.len() > LONGEST_NAME_BYTES {
            self.shorten();
        }
        let known = self.known.get(&self.name[..]).copied();
        Some(known.unwrap_or_else(|| self.add()))
    }

    #[cold]
    fn add(&mut self) -> Tenant {
        if self.known.len() == MAX_TENANTS {
            return Tenant::OTHERS;
        }
        let tenant = Tenant::of_index(self.known.len() + 1);
        self.known.insert(self.name.as_slice().into(), tenant);
        self.names.push(&self.name);
        tenant
    }

    #[cold]
    fn shorten(&mut self) {
        let hash = xxh3_64(&self.name);
        self.name.clear();
        self.name.extend_from_slice(format!("#{hash:016x}").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> (Interner, TenantNames) {
        let names = TenantNames::default();
        (Interner::new(names.clone()), names)
    }

    #[test]
    fn name_joins_its_columns_and_equal_names_are_one_tenant() {
        let (mut interner, names) = fresh();
        let one = interner.tenant(&[b"web", b"7"]).unwrap();
        let two = interner.tenant(&[b"web", b""]).unwrap();
        let three = interner.tenant(&[b"", b"7"]).unwrap();
        assert_eq!(interner.tenant(&[b"web", b"7"]), Some(one));
        assert_eq!(interner.tenant(&[b"web"]), Some(two));
        assert_eq!(interner.tenant(&[b"", b""]), None);
        let of = |tenant| names.of(tenant).unwrap().to_string();
        assert_eq!((of(one), of(two), of(three)), ("web/7".into(), "web".into(), "/7".into()));
        assert_eq!((one.index(), names.all().len()), (1, 3));
    }

    #[test]
    fn names_beyond_the_limit_are_combined() {
        let (mut interner, names) = fresh();
        for number in 0..MAX_TENANTS + 1000 {
            let tenant = interner.tenant(&[number.to_string().as_bytes()]).unwrap();
            let expected = if number < MAX_TENANTS { number + 1 } else { 0 };
            assert_eq!(tenant.index(), expected);
        }
        assert_eq!(interner.tenant(&[b"65535"]), Some(Tenant::of_index(MAX_TENANTS)));
        assert_eq!(interner.tenant(&[b"0"]), Some(Tenant::of_index(1)));
        assert_eq!((names.all().len(), names.of(Tenant::OTHERS)), (MAX_TENANTS, None));
    }

    #[test]
    fn long_names_are_distinguished_by_hash() {
        let (mut interner, names) = fresh();
        let long = |last: u8| [&[b'x'; 500][..], &[last]].concat();
        let one = interner.tenant(&[&long(b'1')]).unwrap();
        assert_ne!(interner.tenant(&[&long(b'2')]), Some(one));
        assert_eq!(interner.tenant(&[&long(b'1')]), Some(one));
        assert_eq!(names.of(one).unwrap().len(), 17);
        let longest = interner.tenant(&[&[b'x'; LONGEST_NAME_BYTES]]).unwrap();
        assert_eq!(names.of(longest).unwrap().len(), LONGEST_NAME_BYTES, "it is unchanged");
    }

    /// A replay whose sources are created again shares the names with its first run.
    #[test]
    fn new_reader_starts_without_names() {
        let (mut interner, names) = fresh();
        interner.tenant(&[b"gone"]).unwrap();
        let here = Interner::new(names.clone()).tenant(&[b"here"]).unwrap();
        assert_eq!((names.of(here).as_deref(), names.all().len()), (Some("here"), 1));
    }
}
