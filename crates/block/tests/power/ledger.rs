//! The permitted contents of each sector.

use std::collections::BTreeSet;

use device::{IoBuffer, IoSlice};

pub const SECTOR: usize = 512;

/// An event in the history of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A write of this version.
    Written(u64),
    /// A trim: afterwards zeros or any earlier version.
    Trimmed,
}

/// The history of each sector, and the events known to be durable.
#[derive(Clone)]
pub struct Ledger {
    sectors: Vec<Sector>,
    versions: u64,
}

#[derive(Clone)]
struct Sector {
    events: Vec<Event>,
    /// Number of acknowledged events.
    completed: usize,
    /// The last event covered by an acknowledged flush.
    durable: usize,
    /// Versions before earlier restarts: a trim may restore them.
    earlier: BTreeSet<u64>,
}

/// The events that are durable if a flush that begins now succeeds.
pub struct BegunFlush(Vec<usize>);

impl Ledger {
    /// All sectors zero and durable.
    pub fn new(bytes: u64) -> Self {
        let sector =
            Sector { events: vec![Event::Written(0)], completed: 1, durable: 0, earlier: BTreeSet::new() };
        Self { sectors: vec![sector; bytes as usize / SECTOR], versions: 0 }
    }

    /// Bytes for a write of `count` sectors at `first`, which counts as in flight from now on.
    pub fn begin_write(&mut self, first: usize, count: usize) -> IoSlice {
        self.versions += 1;
        let mut data = IoBuffer::zeroed(count * SECTOR);
        for (sector, into) in (first..).zip(data.chunks_exact_mut(SECTOR)) {
            self.sectors[sector].events.push(Event::Written(self.versions));
            fill(into, sector as u64, self.versions);
        }
        data.into()
    }

    /// Begins an operation that zeroes sectors, which has the effect of a write.
    pub fn begin_zero(&mut self, first: usize, count: usize) {
        for sector in &mut self.sectors[first..first + count] {
            sector.events.push(Event::Written(0));
        }
    }

    pub fn begin_trim(&mut self, first: usize, count: usize) {
        for sector in &mut self.sectors[first..first + count] {
            sector.events.push(Event::Trimmed);
        }
    }

    /// Records an acknowledged write, zeroing or trim of the sectors. A sector has at most one operation in flight.
    pub fn complete(&mut self, first: usize, count: usize) {
        for sector in &mut self.sectors[first..first + count] {
            sector.completed = sector.events.len();
        }
    }

    pub fn begin_flush(&self) -> BegunFlush {
        BegunFlush(self.sectors.iter().map(|sector| sector.completed - 1).collect())
    }

    pub fn end_flush(&mut self, flush: &BegunFlush) {
        for (sector, &event) in self.sectors.iter_mut().zip(&flush.0) {
            sector.durable = sector.durable.max(event);
        }
    }

    /// Checks a read without a power cut: the last version, or one in flight.
    pub fn check_read(&self, first: usize, bytes: &[u8]) -> Result<(), String> {
        self.check(first, bytes, |sector| sector.completed - 1)
    }

    /// Checks a read after a power cut.
    pub fn check_recovered(&self, first: usize, bytes: &[u8]) -> Result<(), String> {
        self.check(first, bytes, |sector| sector.durable)
    }

    fn check(&self, first: usize, bytes: &[u8], from: impl Fn(&Sector) -> usize) -> Result<(), String> {
        for (number, bytes) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            let sector = &self.sectors[number];
            let found = version(bytes, number as u64)
                .ok_or_else(|| format!("sector {number} holds no version of its own: {:?}", &bytes[..24]))?;
            let from = from(sector);
            // The usual case, without allocating a set.
            if sector.events[from..].contains(&Event::Written(found)) {
                continue;
            }
            let legal = sector.legal(from);
            if !legal.contains(&found) {
                return Err(format!("sector {number} holds version {found}, and may hold {legal:?}"));
            }
        }
        Ok(())
    }

    /// Makes the contents found after a power cut the only permitted ones.
    pub fn adopt(&mut self, bytes: &[u8]) {
        for (number, bytes) in bytes.chunks_exact(SECTOR).enumerate() {
            let version = version(bytes, number as u64).expect("it was checked");
            let sector = &mut self.sectors[number];
            sector.earlier.extend(sector.events.iter().filter_map(|event| match event {
                Event::Written(version) => Some(*version),
                Event::Trimmed => None,
            }));
            (sector.events, sector.completed, sector.durable) = (vec![Event::Written(version)], 1, 0);
        }
    }

    /// Whether these are possible contents of a plain disk after a power cut: all data covered by some flush, and any subset of the
    /// writes up to the next flush. `flushed` has the last versions before each flush. Only for histories of one client without
    /// trims and zeros.
    pub fn is_stale_but_consistent(&self, bytes: &[u8], flushed: &[u64]) -> Result<(), String> {
        let found: Vec<u64> = bytes
            .chunks_exact(SECTOR)
            .enumerate()
            .map(|(number, bytes)| version(bytes, number as u64).ok_or(format!("sector {number} is strange")))
            .collect::<Result<_, _>>()?;
        let newest = found.iter().max().copied().unwrap_or(0);
        let covered = flushed.iter().rfind(|&&version| version < newest).copied().unwrap_or(0);
        for (number, (sector, &found)) in self.sectors.iter().zip(&found).enumerate() {
            let must_have = sector.events.iter().filter_map(|event| match event {
                Event::Written(version) if *version <= covered => Some(*version),
                _ => None,
            });
            let must_have = must_have.max().unwrap_or(0);
            if found < must_have {
                return Err(format!(
                    "the disk has version {newest}, so all up to {covered}; sector {number} has {found}, not {must_have}"
                ));
            }
        }
        Ok(())
    }

    /// The last version assigned.
    pub fn versions(&self) -> u64 {
        self.versions
    }

    /// The longest prefix of the write history whose bytes are all present; an error if the contents are not a prefix. Only
    /// for histories of one client without trims and zeros.
    pub fn prefix(&self, bytes: &[u8]) -> Result<(), String> {
        let found: Vec<u64> = bytes
            .chunks_exact(SECTOR)
            .enumerate()
            .map(|(number, bytes)| version(bytes, number as u64).expect("it was checked"))
            .collect();
        let last = found.iter().max().copied().unwrap_or(0);
        for (number, (sector, &found)) in self.sectors.iter().zip(&found).enumerate() {
            let newest = sector.events.iter().filter_map(|event| match event {
                Event::Written(version) if *version <= last => Some(*version),
                _ => None,
            });
            let newest = newest.max().unwrap_or(0);
            if newest != found {
                return Err(format!(
                    "version {last} is there, and sector {number} holds {found} instead of {newest}"
                ));
            }
        }
        Ok(())
    }
}

impl Sector {
    fn legal(&self, from: usize) -> BTreeSet<u64> {
        let mut legal = BTreeSet::new();
        for (number, event) in self.events.iter().enumerate().skip(from) {
            match event {
                Event::Written(version) => {
                    legal.insert(*version);
                }
                Event::Trimmed => {
                    legal.insert(0);
                    legal.extend(&self.earlier);
                    legal.extend(self.events[..number].iter().filter_map(|event| match event {
                        Event::Written(version) => Some(*version),
                        Event::Trimmed => None,
                    }));
                }
            }
        }
        legal
    }
}

fn fill(into: &mut [u8], sector: u64, version: u64) {
    for (number, word) in into.chunks_exact_mut(8).enumerate() {
        let value = match number {
            0 => version,
            _ => mix(sector << 32 ^ version << 8 ^ number as u64),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// The version that these bytes of a sector have; `None` if they are not a version.
fn version(bytes: &[u8], sector: u64) -> Option<u64> {
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let mut expected = [0; SECTOR];
    if version > 0 {
        fill(&mut expected, sector, version);
    }
    (*bytes == expected).then_some(version)
}

fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    number ^ (number >> 29)
}

/// Checks that the ledger detects errors.
#[test]
fn ledger_detects_lost_torn_foreign_and_outdated_sectors() {
    let mut ledger = Ledger::new(8 * SECTOR as u64);
    let first = ledger.begin_write(0, 2);
    ledger.complete(0, 2);
    let flush = ledger.begin_flush();
    ledger.end_flush(&flush);
    let second = ledger.begin_write(0, 2);
    for legal in [&first, &second] {
        assert_eq!(ledger.check_recovered(0, legal), Ok(()));
    }
    assert!(ledger.check_recovered(0, &[0; SECTOR]).is_err(), "lost");
    assert!(ledger.check_recovered(1, &first).is_err(), "of another sector");
    let mut torn = [0; SECTOR];
    torn[..256].copy_from_slice(&first[..256]);
    torn[256..].copy_from_slice(&second[256..SECTOR]);
    assert!(ledger.check_recovered(0, &torn).is_err(), "torn");
    ledger.complete(0, 2);
    assert!(ledger.check_read(0, &first).is_err(), "read after overwritten");
    assert!(ledger.prefix(&[&second[..SECTOR], &first[SECTOR..], &[0; 6 * SECTOR]].concat()).is_err());
}
