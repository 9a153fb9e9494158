//! Stores a numbered trace in temporary files, for information that must be known before the first request is simulated.
//!
//! ```text
//! accesses.tmp    12 bytes per access: object, weight, seconds (u32 each, in native byte order);
//!                 the two top bits of the seconds mark a removal and a set
//! tenants.tmp     a u32 per access: its tenant; only if tenants are distinguished
//! ttls.tmp        a u32 per access: TTL in seconds; only if any access has one
//! next_uses.tmp   a u32 per access: number of the next access to the same object; u32::MAX for never or a removal
//! next_seconds.tmp  a u32 per access: time of the next use; only if any access has a TTL
//! ```
//!
//! Next uses are found by reading backwards, with four bytes of memory per object instead of per access. All files are unlinked
//! when they are created, so that they disappear with the process.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use policy::eviction::clairvoyant;
use policy::simulate::Access;

use super::{BATCH_ACCESSES, Batch, Batches, SimulateError};
use crate::run::stop::Stop;

const RECORD_BYTES: usize = 12;
const REMOVAL: u32 = 1 << 31;
const SET: u32 = 1 << 30;
const NEVER: u32 = u32::MAX;

/// The files, with a read position.
pub(crate) struct Spool {
    accesses: File,
    tenants: Option<File>,
    ttls: Option<File>,
    next_uses: Option<File>,
    next_seconds: Option<File>,
    count: u64,
    next: u64,
    bytes: Vec<u8>,
}

impl Spool {
    /// Writes all batches of `source`.
    pub(crate) fn of(
        source: &mut dyn Batches,
        with_next_uses: bool,
        stop: &Stop,
        mut progress: impl FnMut(u64),
    ) -> Result<Self, SimulateError> {
        let mut accesses = temporary()?;
        let (mut tenants, mut ttls) = (None, None);
        let (mut batch, mut bytes, mut count, mut objects) = (Batch::default(), Vec::new(), 0, 0);
        while !stop.is_set() && source.next(&mut batch)? {
            bytes.clear();
            objects = batch.accesses.iter().fold(objects, |most, access| most.max(access.object + 1));
            batch.accesses.iter().for_each(|access| bytes.extend_from_slice(&encode(access)));
            accesses.write_all(&bytes).map_err(failed)?;
            for (file, words) in [(&mut tenants, &batch.tenants), (&mut ttls, &batch.ttls)] {
                append_words(file, words, count, &mut bytes)?;
            }
            count += batch.accesses.len() as u64;
            progress(count);
        }
        // Missing values at the end are 0.
        ttls.iter().try_for_each(|file| file.set_len(count * 4)).map_err(failed)?;
        let (next_uses, next_seconds) = (None, None);
        let mut spool = Self { accesses, tenants, ttls, next_uses, next_seconds, count, next: 0, bytes };
        if with_next_uses {
            spool.find_next_uses(objects)?;
        }
        Ok(spool)
    }

    /// Reads from the last access to the first: the next use of an object is the access seen before.
    fn find_next_uses(&mut self, objects: u32) -> Result<(), SimulateError> {
        if self.count >= u64::from(NEVER) {
            let message = "clairvoyant policies need a trace of fewer than 2^32 accesses";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, message)));
        }
        let file = temporary()?;
        let mut seen = vec![NEVER; objects as usize];
        let mut seconds = self.ttls.is_some().then(|| vec![0; objects as usize]);
        let mut next_seconds = None;
        let mut batch = Batch::default();
        let mut end = self.count;
        while end > 0 {
            let start = end.saturating_sub(BATCH_ACCESSES as u64);
            self.read(start..end, &mut batch)?;
            self.bytes.resize((end - start) as usize * 4, 0);
            let places =
                self.bytes.chunks_exact_mut(4).zip(&batch.accesses).zip(start as u32..end as u32).rev();
            for ((place, access), number) in places {
                // An object that is removed before its next request is not in the cache then: it has no next use.
                let of_those_before = if access.is_removal { NEVER } else { number };
                let next = std::mem::replace(&mut seen[access.object as usize], of_those_before);
                place.copy_from_slice(&next.to_ne_bytes());
            }
            file.write_all_at(&self.bytes, start * 4).map_err(failed)?;
            if let Some(seconds) = &mut seconds {
                let of_next = |access: &Access| {
                    std::mem::replace(&mut seconds[access.object as usize], access.now_seconds)
                };
                let mut words: Vec<u32> = batch.accesses.iter().rev().map(of_next).collect();
                words.reverse();
                append_words(&mut next_seconds, &words, start, &mut self.bytes)?;
            }
            end = start;
        }
        (self.next_uses, self.next_seconds) = (Some(file), next_seconds);
        Ok(())
    }

    /// Number of accesses.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Sets the read position to the start.
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }

    fn read(&mut self, range: std::ops::Range<u64>, batch: &mut Batch) -> Result<(), SimulateError> {
        self.bytes.resize((range.end - range.start) as usize * RECORD_BYTES, 0);
        let at = range.start * RECORD_BYTES as u64;
        self.accesses.read_exact_at(&mut self.bytes, at).map_err(failed)?;
        batch.accesses.clear();
        batch.accesses.extend(self.bytes.chunks_exact(RECORD_BYTES).map(decode));
        Ok(())
    }

    fn read_words(&mut self, range: std::ops::Range<u64>, batch: &mut Batch) -> Result<(), SimulateError> {
        let Batch { tenants, ttls, next_seconds, .. } = batch;
        let files = [(&self.tenants, tenants), (&self.ttls, ttls), (&self.next_seconds, next_seconds)];
        for (file, words) in files {
            words.clear();
            let Some(file) = file else { continue };
            self.bytes.resize((range.end - range.start) as usize * 4, 0);
            file.read_exact_at(&mut self.bytes, range.start * 4).map_err(failed)?;
            words.extend(self.bytes.chunks_exact(4).map(|bytes| word(bytes, 0)));
        }
        Ok(())
    }

    fn read_next_uses(
        &mut self,
        range: std::ops::Range<u64>,
        batch: &mut Batch,
    ) -> Result<(), SimulateError> {
        batch.next_uses.clear();
        let Some(file) = &self.next_uses else { return Ok(()) };
        self.bytes.resize((range.end - range.start) as usize * 4, 0);
        file.read_exact_at(&mut self.bytes, range.start * 4).map_err(failed)?;
        let numbers = self.bytes.chunks_exact(4).map(|bytes| word(bytes, 0));
        batch.next_uses.extend(numbers.map(|number| match number {
            NEVER => clairvoyant::NEVER,
            number => u64::from(number),
        }));
        Ok(())
    }
}

impl Batches for Spool {
    fn next(&mut self, batch: &mut Batch) -> Result<bool, SimulateError> {
        let range = self.next..self.count.min(self.next + BATCH_ACCESSES as u64);
        self.next = range.end;
        self.read(range.clone(), batch)?;
        self.read_words(range.clone(), batch)?;
        self.read_next_uses(range, batch)?;
        Ok(!batch.accesses.is_empty())
    }
}

/// Writes the words at position `place` of the file, which is created first if needed.
fn append_words(
    file: &mut Option<File>,
    words: &[u32],
    place: u64,
    bytes: &mut Vec<u8>,
) -> Result<(), SimulateError> {
    if words.is_empty() {
        return Ok(());
    }
    bytes.clear();
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_ne_bytes()));
    let file = match file {
        Some(file) => file,
        none => none.insert(temporary()?),
    };
    file.write_all_at(bytes, place * 4).map_err(failed)
}

fn encode(access: &Access) -> [u8; RECORD_BYTES] {
    let mark = |is: bool, mark: u32| if is { mark } else { 0 };
    let seconds =
        access.now_seconds.min(SET - 1) | mark(access.is_removal, REMOVAL) | mark(access.is_set, SET);
    let mut record = [0; RECORD_BYTES];
    for (place, word) in record.chunks_exact_mut(4).zip([access.object, access.weight, seconds]) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    record
}

fn decode(record: &[u8]) -> Access {
    let seconds = word(record, 2);
    Access {
        object: word(record, 0),
        weight: word(record, 1),
        now_seconds: seconds & (SET - 1),
        is_removal: seconds & REMOVAL != 0,
        is_set: seconds & SET != 0,
    }
}

fn word(bytes: &[u8], number: usize) -> u32 {
    let bytes = bytes[number * 4..number * 4 + 4].try_into();
    u32::from_ne_bytes(bytes.expect("four bytes"))
}

fn temporary() -> Result<File, SimulateError> {
    tempfile::tempfile().map_err(failed)
}

fn failed(source: io::Error) -> SimulateError {
    SimulateError::Spool { folder: std::env::temp_dir(), source }
}
