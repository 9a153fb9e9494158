//! Requests that are dropped while a table or a superblock is being written for them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use device::timer::SystemTimer;
use device::wrap::{CrashDevice, GateDevice, Power};
use device::{Device, IoBuffer, MemoryDevice, RequestKind};
use flashwright_block::volume::{Result, Volume};

use crate::world::{commit, smallest_journal, write_past_cache};

const BLOCK: u64 = 4096;

/// More blocks than one table block has space for.
const BLOCKS: u64 = 640;

struct Stage {
    crash: Arc<CrashDevice>,
    gate: Arc<GateDevice>,
    power: Arc<Power>,
    disk: Arc<dyn Device>,
    volume: Volume,
}

async fn write(volume: &Volume, byte: u8) -> Result<()> {
    for block in (0..BLOCKS).step_by(64) {
        let data = IoBuffer::copy_of(&[byte; 64 * BLOCK as usize]).into();
        volume.write(block * BLOCK, data, false).await?;
    }
    Ok(())
}

impl Stage {
    /// All blocks are written and durable, and the next commit needs a table first.
    fn with_a_full_journal() -> Self {
        let power = Arc::new(Power::default());
        let crash = Arc::new(CrashDevice::new(MemoryDevice::new(8 << 20)).powered_by(&power));
        let gate = Arc::new(GateDevice::new(crash.clone()));
        let (flash, disk): (Arc<dyn Device>, Arc<dyn Device>) =
            (gate.clone(), Arc::new(MemoryDevice::new(4 << 20)));
        let volume = pollster::block_on(async {
            Volume::create(&flash, &disk, &smallest_journal(), 5).await.unwrap();
            let timer = Arc::new(SystemTimer::default());
            let (volume, _) = Volume::open(flash, disk.clone(), timer).await.unwrap();
            write(&volume, 1).await.unwrap();
            volume.flush().await.unwrap();
            while volume.stats().journal_used_blocks < volume.stats().journal_blocks * 3 / 4 {
                volume.write(0, IoBuffer::copy_of(&[1; 512]).into(), false).await.unwrap();
                commit(&volume).await;
            }
            assert_eq!(volume.stats().io.checkpoints, 0);
            volume.write(0, IoBuffer::copy_of(&[1; 512]).into(), false).await.unwrap();
            write_past_cache(&volume).await.unwrap();
            volume
        });
        Self { crash, gate, power, disk, volume }
    }

    /// Starts `request` and drops it after `writes` writes, with the next one in flight. Returns whether there was a next one.
    fn give_up_after(&self, writes: u64, request: impl Future<Output = Result<()>>) -> bool {
        self.gate.close(RequestKind::Write);
        let mut request = pin!(request);
        let mut poll = || request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        for _ in 0..writes {
            match poll() {
                Poll::Ready(ended) => {
                    ended.unwrap();
                    return false;
                }
                Poll::Pending => assert_eq!(self.gate.release_held(), 1),
            }
        }
        poll().is_pending()
    }

    /// The contents of the volume when it is opened on this flash.
    fn found(&self, flash: Arc<MemoryDevice>) -> Vec<u8> {
        pollster::block_on(async {
            let timer = Arc::new(SystemTimer::default());
            let (volume, _) = Volume::open(flash, self.disk.clone(), timer).await.unwrap();
            volume.read(0, (BLOCKS * BLOCK) as usize).await.unwrap().to_vec()
        })
    }
}

/// Otherwise the superblock could refer to a table that the next table overwrites.
#[test]
fn table_in_force_is_not_overwritten_after_a_dropped_request() {
    for writes in 0.. {
        for cut in 0.. {
            let stage = Stage::with_a_full_journal();
            if !stage.give_up_after(writes, stage.volume.flush()) {
                assert!(writes > 3, "a table and two superblocks were written");
                return;
            }
            stage.gate.open();
            stage.power.cut_after(stage.power.requests() + cut);
            let volume = &stage.volume;
            let ended = pollster::block_on(async {
                write(volume, 2).await?;
                write_past_cache(volume).await?;
                volume.flush().await
            });
            if ended.is_ok() {
                assert!(cut > 20, "another table was written");
                break;
            }
            for seed in 0..4 {
                let found = stage.found(Arc::new(stage.crash.crash(seed)));
                assert!(
                    found.chunks(512).all(|sector| sector == [1; 512] || sector == [2; 512]),
                    "given up after {writes} writes, cut after {cut} requests, image {seed}"
                );
            }
        }
    }
}

/// A superblock that marks the volume as closed must not be on flash while clients continue to write, because recovery would skip the
/// intent log.
#[test]
fn dropped_close_closes_the_volume_or_leaves_it_open() {
    let mut outcomes = [0, 0];
    for writes in 0.. {
        let stage = Stage::with_a_full_journal();
        if !stage.give_up_after(writes, stage.volume.close()) {
            break;
        }
        stage.gate.open();
        let data = IoBuffer::copy_of(&[2; BLOCK as usize]).into();
        let written = pollster::block_on(stage.volume.write(BLOCK, data, false));
        let found = stage.found(Arc::new(stage.crash.kill(0)));
        let expected = if written.is_ok() { 2 } else { 1 };
        assert_eq!(found[BLOCK as usize], expected, "given up after {writes} writes");
        outcomes[usize::from(written.is_ok())] += 1;
    }
    assert!(outcomes[0] > 3, "a table, a commit and two superblocks were written: {outcomes:?}");
}
