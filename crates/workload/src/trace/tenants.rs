//! Who makes the requests of a trace: names out of its columns, and numbers for them.
//!
//! A name is what stands in the tenant columns, joined by `/` where there are several; empty columns at the end are left
//! out, and a row in which all are empty has no tenant. The first [`MAX_TENANTS`] names that a trace has are told apart,
//! and all others are one, so that memory stays bounded whatever stands in a trace. Which are told apart follows from the
//! order of the rows alone. (Keeping those with the most requests would need a second pass, or a sketch that tells
//! their counts only nearly.)

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64;

/// Names that are told apart.
pub const MAX_TENANTS: usize = 1 << 16;
/// Longer names are known by their hash.
const LONGEST_NAME_BYTES: usize = 128;

/// Who made a request: a number that [`TenantNames`] knows the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(NonZeroU32);

impl Tenant {
    /// All that are not told apart.
    pub const OTHERS: Self = Self(NonZeroU32::MIN);

    /// From 0, that of [`OTHERS`](Self::OTHERS), to [`MAX_TENANTS`].
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The tenant of this index.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn of_index(index: usize) -> Self {
        assert!(index <= MAX_TENANTS, "an index of a tenant");
        Self(NonZeroU32::MIN.saturating_add(index as u32))
    }
}

/// The names that were met so far, shared by whoever reads a trace and whoever tells of it.
#[derive(Debug, Clone, Default)]
pub struct TenantNames(Arc<Mutex<Vec<Arc<str>>>>);

impl TenantNames {
    /// The names by index; that of [`Tenant::OTHERS`] is left out, so that index 1 is the first.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The tenant's name; `None` for the others.
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

/// Gives names their numbers. One reader has it; the names that are shared are locked only for a new one.
#[derive(Debug)]
pub(super) struct Interner {
    names: TenantNames,
    known: HashMap<Box<[u8]>, Tenant>,
    /// The name that is being looked up.
    name: Vec<u8>,
}

impl Interner {
    /// One that has met nobody yet.
    pub(super) fn new(names: TenantNames) -> Self {
        names.clear();
        Self { names, known: HashMap::new(), name: Vec::new() }
    }

    /// The tenant that these columns name; `None` where they are empty.
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
        Some(known.unwrap_or_else(|| self.meet()))
    }

    #[cold]
    fn meet(&mut self) -> Tenant {
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
    fn a_name_is_its_columns_and_the_same_name_is_the_same_tenant() {
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
    fn names_beyond_the_bound_are_one_and_those_before_it_stay_who_they_are() {
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
    fn long_names_are_told_apart_by_their_hash() {
        let (mut interner, names) = fresh();
        let long = |last: u8| [&[b'x'; 500][..], &[last]].concat();
        let one = interner.tenant(&[&long(b'1')]).unwrap();
        assert_ne!(interner.tenant(&[&long(b'2')]), Some(one));
        assert_eq!(interner.tenant(&[&long(b'1')]), Some(one));
        assert_eq!(names.of(one).unwrap().len(), 17);
        let longest = interner.tenant(&[&[b'x'; LONGEST_NAME_BYTES]]).unwrap();
        assert_eq!(names.of(longest).unwrap().len(), LONGEST_NAME_BYTES, "it is as it stands");
    }

    /// A replay that is asked for its requests again shares the names with the first time.
    #[test]
    fn a_new_reader_meets_everybody_anew() {
        let (mut interner, names) = fresh();
        interner.tenant(&[b"gone"]).unwrap();
        let here = Interner::new(names.clone()).tenant(&[b"here"]).unwrap();
        assert_eq!((names.of(here).as_deref(), names.all().len()), (Some("here"), 1));
    }
}
