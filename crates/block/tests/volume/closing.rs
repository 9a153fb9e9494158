//! Closing a volume that is in use.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use device::timer::SystemTimer;
use device::wrap::GateDevice;
use device::{Device, IoBuffer, MemoryDevice, Request, RequestKind};
use flashwright_block::sets::Tuning;
use flashwright_block::volume::{Volume, VolumeConfig, VolumeErrorKind};

use crate::faulty::Faulty;
use crate::world::{Shape, World, config};

/// Dirty blocks over the whole disk, including its ends, whose checksums identify it.
async fn dirty(volume: Volume) {
    for block in (0..1024).step_by(7).chain([1023]) {
        let data = IoBuffer::copy_of(&[block as u8 | 1; 4096]).into();
        volume.write(block * 4096, data, false).await.unwrap();
    }
    volume.flush().await.unwrap();
}

/// Cleaning must end before the disk's checksums are recorded.
#[test]
fn volume_closed_during_cleaning_recognises_its_disk() {
    for ordered in [false, true] {
        // The disk takes about 8 ms per block.
        for close_after_ns in (0..1_200_000_000).step_by(60_000_000) {
            let world = World::new(1, Shape { disk_bytes: 4 << 20, ..Shape::default() });
            let tuning = Tuning { dirty_percent: 0, ..config().tuning };
            let volume = world.volume(&VolumeConfig { tuning, ordered, ..config() });
            world.run(dirty(volume.clone()));
            let upkeep = volume.clone();
            let upkeep = world.simulation.spawn(async move { upkeep.run_upkeep().await });
            let flusher = volume.clone();
            let flusher = world.simulation.spawn(async move { flusher.clean().await });
            let (closer, sleeper) = (volume, world.simulation.world());
            world.run(async move {
                sleeper.sleep(close_after_ns).await;
                closer.close().await.unwrap();
            });
            world.simulation.run_until_idle();
            assert!(upkeep.result().is_some(), "it ends with the volume");
            match flusher.result().expect("it ends with the volume") {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind(), VolumeErrorKind::Closed),
            }
            world.open();
        }
    }
}

/// The flush must fail, because no commit covered its write.
#[test]
fn flush_waiting_during_a_failed_close_fails() {
    let gate = Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(4 << 20))));
    let disk = Faulty::new(4 << 20);
    let (flash, behind): (Arc<dyn Device>, Arc<dyn Device>) = (gate.clone(), disk.clone());
    let volume = pollster::block_on(async {
        Volume::create(&flash, &behind, &config(), 5).await.unwrap();
        Volume::open(flash, behind, Arc::new(SystemTimer::default())).await.unwrap().0
    });
    let write = |byte: u8| {
        let data = IoBuffer::copy_of(&[byte; 4096]).into();
        pollster::block_on(volume.write(0, data, false)).unwrap();
    };
    let mut context = Context::from_waker(Waker::noop());
    write(1);
    gate.close(RequestKind::Flush);
    let mut first = pin!(volume.flush());
    assert!(first.as_mut().poll(&mut context).is_pending());
    write(2);
    let mut second = pin!(volume.flush());
    assert!(second.as_mut().poll(&mut context).is_pending());
    disk.fail(|request| matches!(request, Request::Flush));
    assert!(pollster::block_on(volume.close()).is_err());
    assert_eq!(gate.open(), 1);
    assert!(matches!(first.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    match second.as_mut().poll(&mut context) {
        Poll::Ready(Err(error)) => assert_eq!(error.kind(), VolumeErrorKind::Closed),
        other => panic!("{other:?}"),
    }
}
