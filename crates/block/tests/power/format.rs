//! Volumes of an older format: writes to them, and power cuts during their upgrade.

use std::sync::Arc;

use device::{Device, IoBuffer, MemoryDevice, Request};
use flashwright_block::sets::{Mode, PolicyState, SetPolicy, Tuning};
use flashwright_block::volume::journal::block::{BlockKind, decode};
use flashwright_block::volume::record::Record;
use flashwright_block::volume::superblock::{FORMAT_VERSION, OLDEST_FORMAT};
use flashwright_block::volume::{Superblock, Volume, VolumeConfig, VolumeErrorKind};

use crate::history::{Shape, Step, draw, play, read_all};
use crate::ledger::Ledger;
use crate::short::{cut_everywhere, recover};
use crate::stage::{DISK_BYTES, Media, Opens, Stage, config};

const SHAPE: Shape = Shape { steps: 10, sectors: 300, longest: 24, with_trims: true };

/// Blocks enter the hot list at the first hit, so that the recovered lists can be distinguished.
fn quick(mode: Mode, format: u32) -> VolumeConfig {
    let config = config(mode);
    let policy = SetPolicy::Lru2q { hot_percent: 75, promote_hits: 1 };
    VolumeConfig { format, tuning: Tuning { policy, ..config.tuning }, ..config }
}

fn superblock_of(media: &Media) -> Superblock {
    let flash: Arc<dyn Device> = Arc::new(media.flash.duplicate());
    pollster::block_on(Volume::identify(&flash)).unwrap()
}

fn read(flash: &MemoryDevice, offset: u64) -> IoBuffer {
    flash.execute(Request::read(offset, 4096)).unwrap()
}

/// Whether any record before the pages has policy state.
fn has_policy_state(media: &Media) -> bool {
    let superblock = superblock_of(media);
    let layout = superblock.layout;
    let blocks = (layout.table_offset(0)..layout.pages_offset()).step_by(4096);
    let kinds = [BlockKind::Table, BlockKind::Journal, BlockKind::IntentLog];
    blocks.flat_map(|offset| kinds.map(|kind| (kind, offset))).any(|(kind, offset)| {
        let block = read(&media.flash, offset);
        let Some((_, _, mut units)) = decode(kind, superblock.uuid, &block) else { return false };
        std::iter::from_fn(|| Record::take_from(&mut units))
            .any(|record| record.held.is_some_and(|held| held.policy_state != PolicyState::default()))
    })
}

fn played(config: &VolumeConfig, seed: u64, last: &[Step]) -> (Media, Ledger) {
    let stage = Stage::new(Media::created(config));
    let mut ledger = Ledger::new(DISK_BYTES);
    let mut steps = draw(&Shape { steps: 40, ..SHAPE }, seed);
    // Ensures that some blocks become hot.
    steps.extend([Step::Write { first: 0, count: 24, durable: true }, Step::Read { first: 0, count: 24 }]);
    steps.extend(last);
    pollster::block_on(play(&stage, &mut ledger, &steps)).unwrap();
    // No power cut: the state after all completed requests.
    (Media { flash: stage.flash.kill(0), disk: stage.disk.kill(0) }, ledger)
}

/// An older program can open the volume until it is upgraded.
#[test]
fn volume_keeps_its_format_until_upgrade() {
    for seed in 0..6 {
        for (format, last) in [
            (OLDEST_FORMAT, &[Step::Flush, Step::Reopen, Step::Upkeep][..]),
            (OLDEST_FORMAT, &[Step::Reopen, Step::Close]),
            (FORMAT_VERSION, &[Step::Close]),
        ] {
            let (media, _) = played(&quick(Mode::WriteBack, format), seed, last);
            assert_eq!(superblock_of(&media).format, format, "seed {seed}");
            assert_eq!(has_policy_state(&media), format == FORMAT_VERSION, "seed {seed}, {last:?}");
        }
        let (media, _) = played(&quick(Mode::WriteBack, OLDEST_FORMAT), seed, &[Step::Upgrade]);
        assert_eq!(superblock_of(&media).format, FORMAT_VERSION, "seed {seed}");
        assert!(has_policy_state(&media), "seed {seed}");
    }
}

/// Cuts power at every request: opening of an old volume, upgrade, writes after it, close.
#[test]
fn power_cuts_during_upgrade_and_close_keep_durable_data() {
    let mut cuts = 0;
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteOnly] {
        for (seed, ordered) in [(300, false), (301, false), (302, mode.keeps_dirty())] {
            let config = VolumeConfig { ordered, ..quick(mode, OLDEST_FORMAT) };
            let media = Media::created(&config);
            let mut steps = draw(&SHAPE, seed);
            steps.push(Step::Upgrade);
            steps.extend(draw(&Shape { steps: 6, ..SHAPE }, seed + 50));
            // The first table after the upgrade, and the superblock of the open volume.
            steps.extend([Step::Reopen, Step::Write { first: 9, count: 20, durable: true }, Step::Close]);
            cuts += cut_everywhere(&media, &steps, false, seed);
        }
    }
    println!("{cuts} cuts");
}

/// A power cut leaves one of the two formats, and both superblock copies have it after the volume was opened.
#[test]
fn power_cut_during_upgrade_leaves_one_format() {
    let (mut older, mut newer) = (0, 0);
    for seed in 400..403 {
        let (before, ledger) = played(&quick(Mode::WriteBack, OLDEST_FORMAT), seed, &[Step::Flush]);
        for cut in 0.. {
            let stage = Stage::new(before.duplicate());
            stage.power.cut_after(cut);
            let upgraded = pollster::block_on(async { stage.open().await?.0.upgrade().await });
            for image in 0..4 {
                let media = stage.crash(image);
                let format = superblock_of(&media).format;
                let count = if format == OLDEST_FORMAT { &mut older } else { &mut newer };
                *count += 1;
                assert!(format == FORMAT_VERSION || !has_policy_state(&media), "seed {seed}, cut {cut}");
                assert!(upgraded.is_err() || format == FORMAT_VERSION, "seed {seed}, cut {cut}");
                let checked = pollster::block_on(recover(&media, &ledger, false));
                checked.unwrap_or_else(|wrong| panic!("seed {seed}, cut {cut}, image {image}: {wrong}"));
                either_copy_is_enough(&media, &ledger, format);
            }
            if !stage.power.is_cut() {
                break;
            }
        }
    }
    assert!(older > 50 && newer > 20, "{older} of the older format, {newer} of the newer");
}

/// Opens an image after a cut, and checks that damage to either superblock copy then loses nothing.
fn either_copy_is_enough(media: &Media, ledger: &Ledger, format: u32) {
    let stage = Stage::new(media.duplicate());
    pollster::block_on(async {
        let (volume, _) = stage.open().await.unwrap();
        volume.flush().await.unwrap();
    });
    for copy in [0, 64 << 10] {
        let (flash, disk) = (stage.flash.kill(1), stage.disk.kill(1));
        let mut bytes = read(&flash, copy);
        bytes[100] ^= 1;
        flash.execute(Request::write(copy, bytes)).unwrap();
        let media = Media { flash, disk };
        assert_eq!(superblock_of(&media).format, format);
        let bytes = pollster::block_on(async {
            let (volume, _) = Stage::new(media).open().await.unwrap();
            read_all(&volume).await.unwrap()
        });
        ledger.check_recovered(0, &bytes).unwrap();
    }
}

/// The newer format is in one superblock copy or in both. The flash is not modified.
#[test]
fn newer_format_is_refused_by_number() {
    let (media, _) = played(&quick(Mode::WriteBack, FORMAT_VERSION), 1, &[Step::Close]);
    let newer = Superblock { format: FORMAT_VERSION + 1, ..superblock_of(&media) }.encode();
    for copies in [&[0][..], &[64 << 10], &[0, 64 << 10]] {
        let media = media.duplicate();
        for &offset in copies {
            media.flash.execute(Request::write(offset, IoBuffer::copy_of(&newer))).unwrap();
        }
        let stage = Stage::new(media);
        let error = pollster::block_on(stage.open()).map(drop).unwrap_err();
        assert_eq!(error.kind(), VolumeErrorKind::NewerFormat);
        assert!(error.to_string().contains(&format!("has format {}", FORMAT_VERSION + 1)), "{error}");
        assert_eq!(stage.flash.counters().writes, 0);
    }
}

#[test]
fn create_with_unknown_format_fails() {
    for format in [0, OLDEST_FORMAT - 1, FORMAT_VERSION + 1, u32::MAX] {
        let stage = Stage::new(Media::empty());
        let made = pollster::block_on(stage.create(&quick(Mode::WriteBack, format)));
        assert_eq!(made.unwrap_err().kind(), VolumeErrorKind::Config);
    }
}
