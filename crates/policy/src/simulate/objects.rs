//! Dense numbers for keys, in order of first appearance.
//!
//! Two tables. If keys are small numbers (generated traces, converted formats), an array by key suffices: four bytes. Other keys are hashed
//! with linear probing; a table entry has 32 bits of the hash and the number, and the keys are stored by number. Requests are processed in
//! groups so that their memory is fetched in parallel.

/// Longest array by key, relative to the number of objects.
const SPARSE_AT_MOST: u64 = 4;
/// Length of the array that is always allowed: 4 MiB.
const SHORT: u64 = 1 << 20;
/// Keys looked up together.
const GROUP: usize = 64;
const FEWEST_PLACES: usize = 1 << 12;
/// Marks an unknown key; numbers are stored plus one.
const EMPTY: u64 = 0;

/// Keys seen and their numbers.
pub struct Objects {
    count: u32,
    table: Table,
}

enum Table {
    /// Number + 1 of each key, 0 for those not seen.
    ByKey(Vec<u32>),
    Hashed(Hashed),
}

#[derive(Default)]
struct Hashed {
    /// Upper half: 32 bits of the hash. Lower half: number + 1.
    places: Vec<u64>,
    keys: Vec<u64>,
}

impl Default for Objects {
    fn default() -> Self {
        Self { count: 0, table: Table::ByKey(Vec::new()) }
    }
}

impl Objects {
    /// No objects yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of keys seen.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether no key was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of a key, a new one if the key was not seen before.
    ///
    /// # Panics
    /// With the 2^32-th key.
    #[inline]
    pub fn number(&mut self, key: u64) -> u32 {
        if let Table::ByKey(numbers) = &mut self.table {
            if let Some(number) = numbers.get_mut(key as usize).filter(|_| key <= u64::from(u32::MAX)) {
                if *number == 0 {
                    self.count = self.count.checked_add(1).expect("fewer than 2^32 objects");
                    *number = self.count;
                }
                return *number - 1;
            }
            return self.number_beyond(key);
        }
        self.number_hashed(key)
    }

    /// Appends the numbers of many keys to `numbers`.
    pub fn number_all(&mut self, keys: impl Iterator<Item = u64>, numbers: &mut Vec<u32>) {
        let mut group = [0; GROUP];
        let mut keys = keys.fuse();
        loop {
            let mut length = 0;
            for (place, key) in group.iter_mut().zip(&mut keys) {
                *place = key;
                length += 1;
            }
            if length == 0 {
                return;
            }
            let group = &group[..length];
            match &self.table {
                Table::ByKey(by_key) => {
                    let read = group.iter().map(|key| by_key.get(*key as usize).copied().unwrap_or(0));
                    std::hint::black_box(read.fold(0, |all, number| all ^ number));
                }
                Table::Hashed(hashed) => hashed.look_ahead(group),
            }
            numbers.extend(group.iter().map(|key| self.number(*key)));
        }
    }

    /// Handles a key beyond the end of the array.
    #[cold]
    fn number_beyond(&mut self, key: u64) -> u32 {
        let Table::ByKey(numbers) = &mut self.table else { unreachable!("there is a list") };
        if key < SHORT.max(SPARSE_AT_MOST * u64::from(self.count)).min(u32::MAX.into()) {
            // By doubling, because keys often appear in order.
            let length = (key as usize + 1).next_power_of_two();
            numbers.resize(length, 0);
        } else {
            let seen = numbers.iter().zip(0..).filter(|(number, _)| **number != 0);
            let mut hashed = Hashed { places: Vec::new(), keys: vec![0; self.count as usize] };
            seen.for_each(|(number, key)| hashed.keys[*number as usize - 1] = key);
            hashed.grow();
            self.table = Table::Hashed(hashed);
        }
        self.number(key)
    }

    fn number_hashed(&mut self, key: u64) -> u32 {
        let Table::Hashed(hashed) = &mut self.table else { unreachable!("there is no list") };
        let hash = spread(key);
        let mask = hashed.places.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            let entry = hashed.places[place];
            if entry == EMPTY {
                break;
            }
            if entry >> 32 == hash >> 32 {
                let number = entry as u32 - 1;
                if hashed.keys[number as usize] == key {
                    return number;
                }
            }
            place = (place + 1) & mask;
        }
        self.count = self.count.checked_add(1).expect("fewer than 2^32 objects");
        hashed.places[place] = hash & UPPER | u64::from(self.count);
        hashed.keys.push(key);
        if hashed.keys.len() * 4 > hashed.places.len() * 3 {
            hashed.grow();
        }
        self.count - 1
    }
}

const UPPER: u64 = !(u32::MAX as u64);

impl Hashed {
    /// Reads the keys' table entries, then the keys stored there.
    fn look_ahead(&self, keys: &[u64]) {
        let mask = self.places.len() - 1;
        let mut entries = [EMPTY; GROUP];
        for (entry, key) in entries.iter_mut().zip(keys) {
            *entry = self.places[spread(*key) as usize & mask];
        }
        let read = entries[..keys.len()].iter().map(|entry| {
            let number = (*entry as u32).wrapping_sub(1);
            self.keys.get(number as usize).copied().unwrap_or(0)
        });
        std::hint::black_box(read.fold(0, |all, key| all ^ key));
    }

    fn grow(&mut self) {
        let places = (self.keys.len() * 2).next_power_of_two().max(FEWEST_PLACES);
        self.places = vec![EMPTY; places];
        for (key, number) in self.keys.iter().zip(1_u64..) {
            let hash = spread(*key);
            let mut place = hash as usize & (places - 1);
            while self.places[place] != EMPTY {
                place = (place + 1) & (places - 1);
            }
            self.places[place] = hash & UPPER | number;
        }
    }
}

/// A folded multiplication: both halves of the product depend on all bits of the key.
fn spread(key: u64) -> u64 {
    let product = u128::from(key ^ 0x2D35_8DCC_AA6C_78A5) * 0x9E37_79B9_7F4A_7C15_u128;
    let folded = product as u64 ^ (product >> 64) as u64;
    folded.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    fn check(keys: &[u64]) -> Objects {
        let mut twin = HashMap::new();
        let expected: Vec<u32> = keys
            .iter()
            .map(|&key| {
                let next = twin.len() as u32;
                *twin.entry(key).or_insert(next)
            })
            .collect();
        let (mut one, mut all) = (Objects::new(), Objects::new());
        assert!(keys.iter().map(|&key| one.number(key)).eq(expected.iter().copied()));
        let mut numbers = Vec::new();
        all.number_all(keys.iter().copied(), &mut numbers);
        assert_eq!(numbers, expected);
        assert_eq!(all.len(), twin.len());
        all
    }

    #[test]
    fn keys_are_numbered_in_order_of_appearance() {
        let mut rng = StdRng::seed_from_u64(1);
        let objects = check(&(0..50_000).map(|_| rng.random_range(0..20_000)).collect::<Vec<_>>());
        assert!(matches!(objects.table, Table::ByKey(_)));
        let objects = check(&(0..50_000).map(|_| (rng.random::<u64>() % 9000) << 40).collect::<Vec<_>>());
        assert!(matches!(objects.table, Table::Hashed(_)));
        // Small keys first, then one too large for the array.
        let mixed =
            (0..30_000).map(|i| if i > 20_000 && i % 7 == 0 { u64::MAX - i % 1000 } else { i % 9000 });
        check(&mixed.collect::<Vec<_>>());
        check(&[0, 1 << 20, u64::from(u32::MAX), 1 << 32, u64::MAX, 0]);
        check(&[]);
    }
}
