//! The journal after writes that a power cut tears.

use device::MemoryDevice;
use pollster::block_on;
use proptest::prelude::*;

use super::block::Record;
use super::*;
use crate::flash::Waiting;

const BLOCK_BYTES: usize = 512;

fn place(flushes: bool) -> JournalPlace {
    let options = JournalOptions { flushes, boot: Some(7), block_bytes: BLOCK_BYTES as u32 };
    JournalPlace { offset_bytes: 1024, blocks: 16, generation: 42, options }
}

fn read_block(device: &MemoryDevice, offset: u64) -> IoBuffer {
    device.execute(Request::read(offset, BLOCK_BYTES)).expect("memory does not fail")
}

fn write_block(device: &MemoryDevice, offset: u64, bytes: &[u8]) {
    let data = IoBuffer::copy_of(bytes).into();
    let placement = PlacementHandle::DEFAULT;
    device.execute(Request::Write { offset, data, placement }).expect("memory does not fail");
}

/// Blocks that differ, with their bytes before and after.
fn changed_blocks(before: &MemoryDevice, after: &MemoryDevice) -> Vec<(u64, IoBuffer, IoBuffer)> {
    let offsets = (0..place(true).bytes()).step_by(BLOCK_BYTES).map(|at| place(true).offset_bytes + at);
    let blocks = offsets.map(|offset| (offset, read_block(before, offset), read_block(after, offset)));
    blocks.filter(|(_, before, after)| before[..] != after[..]).collect()
}

fn chain(device: &MemoryDevice, flushes: bool) -> Result<Chain, ChainError> {
    let device: Arc<dyn Device> = Arc::new(device.duplicate());
    block_on(Chain::read(&device, &place(flushes), Waiting::Thread))
}

/// A journal of removals with the addresses 0, 1, 2, …
struct History {
    device: Arc<MemoryDevice>,
    journal: Journal,
    appended: u64,
    acknowledged: u64,
    through: u64,
}

impl History {
    fn new() -> Self {
        let device = Arc::new(MemoryDevice::with_block_bytes(16 << 10, BLOCK_BYTES as u32));
        let journal = Journal::new(Arc::clone(&device) as _, PlacementHandle::DEFAULT, place(true), 1);
        Self { device, journal, appended: 0, acknowledged: 0, through: 0 }
    }

    fn append(&mut self, removals: u64) {
        for _ in 0..removals {
            self.through += u64::from(self.appended.is_multiple_of(20));
            let address = RemovedAddress(self.appended);
            assert_eq!(self.journal.remove(address, self.through), None, "the ring has space");
            self.appended += 1;
        }
        self.journal.raise_floor(self.through.saturating_sub(5).max(1));
    }

    fn sync(&mut self) {
        self.journal.sync().expect("memory does not fail");
        self.acknowledged = self.appended;
    }

    fn reopen(&mut self) {
        let position = chain(&self.device, true).expect("a whole journal").position();
        let device = Arc::clone(&self.device) as _;
        self.journal = Journal::continued(device, PlacementHandle::DEFAULT, place(true), position);
    }

    /// Checks that an image has all acknowledged removals above the floor, in order, and no others than those appended.
    fn check(&self, image: &MemoryDevice, label: &str) {
        let chain = chain(image, true).unwrap_or_else(|error| panic!("{label}: {error}"));
        let (mut first, mut next) = (None, 0);
        for record in chain.records() {
            let Record::Removal { address, .. } = record else { panic!("{label}: no region was recorded") };
            let expected = *first.get_or_insert(address.0) + next;
            assert_eq!(address.0, expected, "{label}");
            next += 1;
        }
        let found = first.unwrap_or(0)..first.unwrap_or(0) + next;
        // The first removal that concerns the region of the floor.
        let first_needed = (chain.floor() - 1) * 20;
        assert!(found.start <= first_needed, "{label}: removals {found:?}, needed from {first_needed}");
        assert!(
            (self.acknowledged..=self.appended).contains(&found.end) || self.acknowledged == 0,
            "{label}: removals {found:?} of {} acknowledged",
            self.acknowledged
        );
    }
}

#[test]
fn write_torn_at_any_byte_loses_only_records_that_were_not_acknowledged() {
    let mut history = History::new();
    history.sync();
    let mut torn_blocks = 0;
    for step in 0..80_u64 {
        if step % 11 == 10 {
            history.reopen();
        }
        let before = history.device.duplicate();
        // Now and then a group of several blocks.
        history.append(if step % 13 == 0 { 120 } else { step % 4 });
        history.journal.sync().expect("memory does not fail");
        let after = history.device.duplicate();
        history.check(&before, "before the write");
        let blocks = changed_blocks(&before, &after);
        torn_blocks += blocks.len();
        for (torn, (offset, old, new)) in blocks.iter().enumerate() {
            for (others, start) in [("written", &after), ("lost", &before)] {
                // Elsewhere, the image is that of the byte before.
                for at in (0..BLOCK_BYTES).filter(|&at| at == 0 || old[at - 1] != new[at - 1]) {
                    let image = start.duplicate();
                    let label =
                        format!("step {step}, block {torn} of {}, others {others}, byte {at}", blocks.len());
                    write_block(&image, *offset, &[&new[..at], &old[at..]].concat());
                    history.check(&image, &label);
                    write_block(&image, *offset, &[&old[..at], &new[at..]].concat());
                    history.check(&image, &label);
                }
                let image = start.duplicate();
                write_block(&image, *offset, &[0xA5; BLOCK_BYTES]);
                history.check(&image, "garbage in a block");
            }
        }
        history.acknowledged = history.appended;
        history.check(&after, "after the write");
    }
    assert!(torn_blocks > 80, "{torn_blocks} blocks were torn");
}

#[test]
fn damaged_block_that_was_acknowledged_is_detected() {
    let mut history = History::new();
    for _ in 0..40 {
        history.append(3);
        history.sync();
    }
    // Two blocks are full, and the third one is in a tail slot.
    for position in [0, 1] {
        let image = history.device.duplicate();
        write_block(&image, place(true).ring_offset(position), &[0; BLOCK_BYTES]);
        assert!(matches!(chain(&image, true), Err(ChainError::Damaged)), "block {position}");
    }
}

#[test]
fn unflushed_journal_continues_after_a_kill_between_the_blocks_of_a_group() {
    let device = Arc::new(MemoryDevice::with_block_bytes(16 << 10, BLOCK_BYTES as u32));
    let journal = Journal::new(Arc::clone(&device) as _, PlacementHandle::DEFAULT, place(false), 1);
    for address in 0..30 {
        assert_eq!(journal.remove(RemovedAddress(address), 1), None);
    }
    journal.sync().unwrap();
    let before = device.duplicate();
    for address in 30..200 {
        assert_eq!(journal.remove(RemovedAddress(address), 1), None);
    }
    journal.sync().unwrap();
    // Without flushes, a kill leaves the first blocks of the group.
    let mut blocks = changed_blocks(&before, &device);
    blocks.sort_by_key(|(offset, _, _)| (*offset < place(false).ring_offset(0), *offset));
    assert!(blocks.len() > 3, "{} blocks", blocks.len());
    let image = before.duplicate();
    for (offset, _, after) in &blocks {
        write_block(&image, *offset, after);
        let found = chain(&image, false).expect("a whole journal").records().count();
        assert!((30..=200).contains(&found), "{found} records");
    }
}

/// A block as [`fuzzing::check`] expects it, with numbers that are likely in a journal.
fn likely_block() -> impl Strategy<Value = Vec<u8>> {
    let number = || prop_oneof![0..6_u64, 30..40_u64, any::<u64>()];
    let fields = proptest::collection::vec(number(), 6);
    let word = (0..4_u64, prop_oneof![0..40_u64, (0..1_u64 << 54)]).prop_map(|(kind, it)| kind << 62 | it);
    (fields, proptest::collection::vec(word, 0..20)).prop_map(|(fields, words)| {
        let mut bytes = vec![0; 6];
        bytes.extend((words.len() as u16).to_le_bytes());
        // Generation and boot are overwritten.
        let numbers = [0, 0].into_iter().chain(fields).chain(words);
        bytes.extend(numbers.flat_map(u64::to_le_bytes));
        bytes.resize(BLOCK_BYTES, 0);
        bytes
    })
}

proptest! {
    #[test]
    fn recovery_by_an_arbitrary_journal_does_not_panic(
        blocks in proptest::collection::vec(likely_block(), 1..6),
        rest in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut bytes = blocks.concat();
        bytes.extend(rest);
        fuzzing::check(&bytes);
    }
}
