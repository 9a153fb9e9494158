//! Damage to the last flush on flash: recovery distinguishes an acknowledged flush from one that a power cut interrupted.

use std::sync::Arc;

use device::timer::Timer;
use device::{Device, IoBuffer, MemoryDevice, Request};
use flashwright_block::sets::Mode;
use flashwright_block::volume::journal::block::{BlockHeader, BlockKind, decode, encode};
use flashwright_block::volume::layout::SUPERBLOCKS_BYTES;
use flashwright_block::volume::{Check, Recovery, Result, Superblock, Volume, VolumeConfig, VolumeErrorKind};

use crate::history::{Step, take};
use crate::ledger::Ledger;
use crate::short::cut_everywhere;
use crate::stage::{DISK_BYTES, FLASH_BYTES, Media, Opens, Stage, config, timer};

/// Events between the last flush and the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// No event.
    AtOnce,
    /// One idle second, with upkeep.
    Idle,
    /// One more write, without a flush.
    Write,
}

fn open(media: &Media, timer: Arc<dyn Timer>) -> Result<(Volume, Recovery)> {
    let stage = Stage::new(media.duplicate());
    pollster::block_on(Volume::open(stage.flash, stage.disk, timer))
}

fn check(media: &Media) -> Check {
    let stage = Stage::new(media.duplicate());
    pollster::block_on(Volume::check(stage.flash, stage.disk, timer(), true)).unwrap()
}

fn block(byte: u8) -> device::IoSlice {
    IoBuffer::copy_of(&[byte; 4096]).into()
}

/// Blocks of the last flush. With three, it fills half of the intent log and is a commit; with two, the intent log makes it durable,
/// unless the volume is ordered.
const COUNTS: [u64; 2] = [2, 3];

/// The state after a kill: block 1 with 1s, then in a later flush blocks 1 to `count` with 11s, 12s and 13s.
fn killed(config: &VolumeConfig, count: u64, ending: Ending) -> Media {
    let stage = Stage::new(Media::created(config));
    let timer = timer();
    pollster::block_on(async {
        let (volume, _) = Volume::open(stage.flash.clone(), stage.disk.clone(), timer.clone()).await.unwrap();
        volume.write(4096, block(1), true).await.unwrap();
        for number in 1..=count {
            volume.write(number * 4096, block(10 + number as u8), false).await.unwrap();
        }
        volume.flush().await.unwrap();
        match ending {
            Ending::AtOnce => {}
            Ending::Idle => {
                timer.wait_until(timer.monotonic_ns() + 1_000_000_000);
                volume.upkeep().await.unwrap();
            }
            Ending::Write => volume.write(4 * 4096, block(14), false).await.unwrap(),
        }
    });
    Media { flash: stage.flash.kill(0), disk: stage.disk.kill(0) }
}

fn read(flash: &MemoryDevice, offset: u64) -> IoBuffer {
    flash.execute(Request::read(offset, 4096)).unwrap()
}

fn overwrite(flash: &MemoryDevice, offset: u64, bytes: IoBuffer) {
    flash.execute(Request::write(offset, bytes)).unwrap();
}

/// Flips a bit of the page that has this block's bytes.
fn damage_page(media: &Media, byte: u8) {
    let flash: Arc<dyn Device> = Arc::new(media.flash.duplicate());
    let layout = pollster::block_on(Volume::identify(&flash)).unwrap().layout;
    let pages = (layout.pages_offset()..layout.end()).step_by(4096);
    let offset = pages.into_iter().find(|&offset| read(&media.flash, offset)[..] == [byte; 4096]).unwrap();
    let mut bytes = read(&media.flash, offset);
    bytes[77] ^= 4;
    overwrite(&media.flash, offset, bytes);
}

fn first_byte(volume: &Volume, number: u64) -> Result<u8> {
    pollster::block_on(volume.read(number * 4096, 4096)).map(|bytes| bytes[0])
}

fn variants() -> Vec<VolumeConfig> {
    let flags = [(false, false), (true, false), (false, true), (true, true)];
    let config = |(checksums, ordered)| VolumeConfig { checksums, ordered, ..config(Mode::WriteBack) };
    flags.map(config).into()
}

/// The flash has no record that the flush completed. The intent log still has the write before the damaged page.
#[test]
fn damage_to_an_unconfirmed_flush_rolls_it_back() {
    for (config, count) in
        variants().into_iter().flat_map(|config| COUNTS.map(|count| (config.clone(), count)))
    {
        let media = killed(&config, count, Ending::AtOnce);
        damage_page(&media, 12);
        let found = check(&media).found.unwrap();
        assert!(found.rolled_back);
        assert_eq!((found.rolled_back_blocks, found.damaged_blocks), (count - 1, 0));
        let (volume, recovery) = open(&media, timer()).unwrap();
        assert_eq!((recovery.rolled_back, recovery.rolled_back_blocks), (true, count - 1));
        assert_eq!([1, 2, 3].map(|number| first_byte(&volume, number).unwrap()), [11, 0, 0]);
    }
}

/// Dropping the whole flush would restore replaced blocks whose pages may have been reused.
#[test]
fn damage_to_an_acknowledged_flush_keeps_the_rest_and_fails_reads_of_the_block() {
    let endings = [Ending::Idle, Ending::Write].into_iter().cycle();
    let variants =
        COUNTS.into_iter().flat_map(|count| variants().into_iter().map(move |config| (config, count)));
    for ((config, count), ending) in variants.zip(endings) {
        let media = killed(&config, count, ending);
        damage_page(&media, 12);
        let found = check(&media);
        assert!(!found.is_sound(), "{config:?}");
        assert!(found.problems[0].contains("1 of the blocks that the last acknowledged flush covers"));
        let stage = Stage::new(media);
        let open = || pollster::block_on(Volume::open(stage.flash.clone(), stage.disk.clone(), timer()));
        let (volume, recovery) = open().unwrap();
        assert!(!recovery.rolled_back);
        assert_eq!((recovery.rolled_back_blocks, recovery.damaged_blocks), (0, 1));
        assert_eq!(first_byte(&volume, 1).unwrap(), 11);
        assert_eq!(first_byte(&volume, 3).unwrap(), if count == 3 { 13 } else { 0 });
        assert_eq!(first_byte(&volume, 2).unwrap_err().kind(), VolumeErrorKind::Flash);
        // The damage is still known after another crash, and after a close.
        drop(volume);
        let (volume, _) = open().unwrap();
        first_byte(&volume, 2).unwrap_err();
        pollster::block_on(volume.close()).unwrap();
        let (volume, _) = open().unwrap();
        first_byte(&volume, 2).unwrap_err();
        pollster::block_on(volume.clean()).unwrap_err();
        assert!(volume.stats().dirty_blocks > 0, "the damaged block does not go to the disk");
        pollster::block_on(volume.write(2 * 4096, block(9), true)).unwrap();
        assert_eq!(first_byte(&volume, 2).unwrap(), 9);
        if !config.ordered {
            pollster::block_on(volume.clean()).unwrap();
        }
    }
}

#[test]
fn undamaged_flush_is_recovered_completely() {
    for config in variants() {
        for ending in [Ending::AtOnce, Ending::Idle, Ending::Write] {
            let media = killed(&config, 3, ending);
            assert!(check(&media).is_sound());
            let (volume, recovery) = open(&media, timer()).unwrap();
            assert!(!recovery.rolled_back);
            assert_eq!((recovery.rolled_back_blocks, recovery.damaged_blocks), (0, 0));
            assert_eq!(recovery.log_entries, u64::from(ending == Ending::Write));
            assert_eq!([1, 2, 3].map(|number| first_byte(&volume, number).unwrap()), [11, 12, 13]);
        }
    }
}

/// Otherwise the volume would be opened without the acknowledged commit.
#[test]
fn lost_journal_block_of_acknowledged_flush_is_damage() {
    for config in variants() {
        for (ending, is_known) in [(Ending::Idle, true), (Ending::Write, true), (Ending::AtOnce, false)] {
            let media = killed(&config, 3, ending);
            let (volume, _) = open(&media, timer()).unwrap();
            let (uuid, layout) = (volume.superblock().uuid, volume.superblock().layout);
            let blocks = (layout.journal_offset()..layout.intent_log_offset()).step_by(4096);
            let is_written =
                |&offset: &u64| decode(BlockKind::Journal, uuid, &read(&media.flash, offset)).is_some();
            let last = blocks.into_iter().take_while(is_written).last().unwrap();
            overwrite(&media.flash, last, IoBuffer::zeroed(4096));
            let opened = open(&media, timer());
            assert_eq!(opened.is_err(), is_known, "{ending:?}");
            match opened {
                Err(error) => {
                    assert_eq!(error.kind(), VolumeErrorKind::Damaged);
                    assert!(error.to_string().contains("acknowledged writes after it are lost"), "{error}");
                    assert_eq!(check(&media).found.unwrap_err(), VolumeErrorKind::Damaged);
                }
                Ok((_, recovery)) => assert!(recovery.lost_last_entry),
            }
        }
    }
}

/// The intent log's blocks with entries, by offset.
fn log_blocks(media: &Media) -> Vec<u64> {
    let flash: Arc<dyn Device> = Arc::new(media.flash.duplicate());
    let superblock = pollster::block_on(Volume::identify(&flash)).unwrap();
    let offsets = (superblock.layout.intent_log_offset()..superblock.layout.pages_offset()).step_by(4096);
    let is_entry =
        |&offset: &u64| decode(BlockKind::IntentLog, superblock.uuid, &read(&media.flash, offset)).is_some();
    offsets.filter(is_entry).collect()
}

/// A volume that is not ordered flushes by the intent log. The first flush is of one entry, the second of two.
#[test]
fn lost_log_entry_of_acknowledged_flush_is_damage() {
    for config in variants().into_iter().filter(|config| !config.ordered) {
        for ending in [Ending::Idle, Ending::Write, Ending::AtOnce] {
            let media = killed(&config, 2, ending);
            let blocks = log_blocks(&media);
            assert_eq!(blocks.len(), if ending == Ending::AtOnce { 3 } else { 4 });
            // Without a later entry, only the first flush is known to have ended.
            let flushed = if ending == Ending::AtOnce { 1 } else { 3 };
            for (number, &offset) in blocks.iter().enumerate() {
                let media = media.duplicate();
                overwrite(&media.flash, offset, IoBuffer::zeroed(4096));
                let opened = open(&media, timer());
                assert_eq!(opened.is_err(), number < flushed, "{ending:?}, entry {number}");
                match opened {
                    Err(error) => {
                        assert_eq!(error.kind(), VolumeErrorKind::Damaged);
                        assert!(error.to_string().contains("acknowledged writes are lost"), "{error}");
                        assert_eq!(check(&media).found.unwrap_err(), VolumeErrorKind::Damaged);
                    }
                    Ok((_, found)) => assert!(found.lost_last_entry, "entry {number}"),
                }
            }
        }
    }
}

#[test]
fn damage_to_the_last_unconfirmed_entry_is_reported() {
    for config in variants() {
        let media = killed(&config, 2, Ending::AtOnce);
        let whole = open(&media.duplicate(), timer()).unwrap().1;
        assert!(!whole.lost_last_entry && !whole.rolled_back);
        let offset = newest_record(&media);
        for byte in [0, 9, 17, 25, 29, 33, 40, 70, 4095] {
            let media = media.duplicate();
            let mut bytes = read(&media.flash, offset);
            bytes[byte] ^= 1;
            overwrite(&media.flash, offset, bytes);
            let found = check(&media).found.unwrap();
            assert!(found.lost_last_entry && found.rolled_back, "{config:?}, byte {byte}: {found:?}");
            let (volume, recovery) = open(&media, timer()).unwrap();
            assert!(recovery.lost_last_entry, "byte {byte}");
            assert_eq!(first_byte(&volume, 1).unwrap(), 11, "the flush before it stays");
        }
    }
}

/// The offset of the newest block of journal and intent log.
fn newest_record(media: &Media) -> u64 {
    let superblock = superblock_of(media);
    let layout = &superblock.layout;
    let records = (layout.journal_offset()..layout.pages_offset()).step_by(4096);
    let newest = records.filter_map(|offset| {
        let bytes = read(&media.flash, offset);
        let kinds = [BlockKind::IntentLog, BlockKind::Journal];
        let header = kinds.into_iter().find_map(|kind| decode(kind, superblock.uuid, &bytes))?.0;
        Some((header.commit, header.sequence, offset))
    });
    newest.max().unwrap().2
}

fn superblock_of(media: &Media) -> Superblock {
    let flash: Arc<dyn Device> = Arc::new(media.flash.duplicate());
    pollster::block_on(Volume::identify(&flash)).unwrap()
}

/// Contents by which a failing drive or another program can replace a block.
fn foreign_blocks() -> [Vec<u8>; 4] {
    let mut other_volume = vec![0; 4096];
    let header =
        BlockHeader { sequence: 0, commit: 1, chain: 0, ends_commit: true, confirmed: 0, flushed: 0 };
    encode(BlockKind::IntentLog, 77, &header, &[], &mut other_volume);
    [vec![0; 4096], vec![0xff; 4096], (0..4096).map(|at| (at * 7 % 251) as u8).collect(), other_volume]
}

#[test]
fn replaced_last_unconfirmed_entry_is_reported_once() {
    for config in variants() {
        for bytes in foreign_blocks() {
            let media = killed(&config, 2, Ending::AtOnce);
            overwrite(&media.flash, newest_record(&media), IoBuffer::copy_of(&bytes));
            let found = check(&media).found.unwrap();
            assert!(found.lost_last_entry && found.rolled_back, "{config:?}: {found:?}");
            let stage = Stage::new(media);
            let open = || pollster::block_on(Volume::open(stage.flash.clone(), stage.disk.clone(), timer()));
            let (volume, recovery) = open().unwrap();
            assert!(recovery.lost_last_entry);
            assert_eq!(first_byte(&volume, 1).unwrap(), 11, "the flush before it stays");
            drop(volume);
            let (volume, recovery) = open().unwrap();
            assert!(!recovery.lost_last_entry && !recovery.rolled_back, "it was reported before");
            assert_eq!(first_byte(&volume, 1).unwrap(), 11);
        }
    }
}

/// A flash that had other contents before must not look damaged.
#[test]
fn never_written_blocks_are_not_reported() {
    for config in variants() {
        for bytes in foreign_blocks() {
            let media = Media::empty();
            for offset in (0..FLASH_BYTES).step_by(4096) {
                overwrite(&media.flash, offset, IoBuffer::copy_of(&bytes));
            }
            let stage = Stage::new(media);
            pollster::block_on(stage.create(&config)).unwrap();
            let open = || pollster::block_on(Volume::open(stage.flash.clone(), stage.disk.clone(), timer()));
            for number in 0..3 {
                let (volume, recovery) = open().unwrap();
                assert!(!recovery.lost_last_entry && !recovery.rolled_back, "opening {number}");
                pollster::block_on(volume.write(4096, block(1), number == 1)).unwrap();
            }
        }
    }
}

/// Their journal may have other contents where it was never written.
#[test]
fn volume_of_an_older_program_is_not_reported_as_damaged() {
    let media = killed(&config(Mode::WriteBack), 2, Ending::AtOnce);
    overwrite(&media.flash, newest_record(&media), IoBuffer::zeroed(4096));
    let older = Superblock { has_initial_blocks: false, ..superblock_of(&media) };
    for offset in [0, SUPERBLOCKS_BYTES / 2] {
        media.flash.execute(Request::write(offset, IoBuffer::copy_of(&older.encode()))).unwrap();
    }
    let (volume, recovery) = open(&media, timer()).unwrap();
    assert!(!recovery.lost_last_entry && !recovery.rolled_back);
    assert!(!volume.superblock().has_initial_blocks);
}

/// Power cuts at every request while each write is flushed by the intent log, until its ring has been used several times.
#[test]
fn power_cuts_keep_writes_that_the_intent_log_made_durable() {
    for checksums in [false, true] {
        let media = Media::created(&VolumeConfig { checksums, ..config(Mode::WriteBack) });
        let mut steps = Vec::new();
        for number in 0..30_usize {
            // Never adjacent: sequential writes bypass the cache.
            let first = number * 7 % 20 * 16;
            steps.push(Step::Write { first, count: 8, durable: number % 3 != 0 });
            if number % 5 == 0 {
                steps.push(Step::Read { first: 400 + number * 16, count: 8 });
            }
        }
        cut_everywhere(&media, &steps, true, 500);
        let stage = Stage::new(media);
        let mut ledger = Ledger::new(DISK_BYTES);
        let (mut volume, _) = pollster::block_on(stage.open()).unwrap();
        for &step in &steps {
            pollster::block_on(take(&mut volume, &stage, &mut ledger, step)).unwrap().unwrap();
        }
        let io = volume.stats().io;
        assert_eq!(io.client_flushes, 20);
        assert!(io.commits < 10, "{} commits: the log made the others durable", io.commits);
    }
}

/// A write without a flush survives a killed server, but not a power cut.
#[test]
fn damage_to_an_unflushed_write_is_counted() {
    for config in variants() {
        let media = killed(&config, 3, Ending::Write);
        damage_page(&media, 14);
        let (volume, recovery) = open(&media, timer()).unwrap();
        assert_eq!((recovery.rolled_back, recovery.rolled_back_blocks, recovery.log_entries), (true, 1, 0));
        assert_eq!([3, 4].map(|number| first_byte(&volume, number).unwrap()), [13, 0]);
    }
}
