//! A write-back block cache: flash in front of a slow disk, presented as a block device.
//!
//! Data covered by an acknowledged flush survives a power cut. [`sets`] decides, without I/O or a clock, which set holds a
//! block, which block is evicted, and which blocks are cleaned. [`volume`] performs the I/O, on real devices or in simulated time.
//! [`nbd`], [`fuse`] and [`ublk`] serve a volume, or any other device, to programs through [`export`].
//!
//! ```
//! # use std::sync::Arc;
//! use device::{Device, IoBuffer, MemoryDevice, timer::SystemTimer};
//! use flashwright_block::volume::{Volume, VolumeConfig};
//!
//! # pollster::block_on(async {
//! let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
//! let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 30));
//! Volume::create(&flash, &disk, &VolumeConfig::default(), 0x7a61_c2f0).await?;
//!
//! let (volume, _found) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await?;
//! // A thread drives `volume.run_upkeep()`, which cleans and writes checkpoints.
//! volume.write(4096, IoBuffer::copy_of(&[7; 8192]).into(), false).await?;
//! volume.flush().await?; // the writes above now survive a power cut
//! assert_eq!(volume.read(8192, 512).await?[..], [7; 512]);
//! assert_eq!(volume.stats().dirty_blocks, 2);
//! volume.clean().await?; // to the disk
//! volume.close().await?;
//! # Ok::<(), flashwright_block::volume::VolumeError>(()) }).unwrap();
//! ```
//!
//! The crate does not use the hybrid cache, whose durability rules differ.

pub mod export;
pub mod fuse;
pub mod nbd;
pub mod sets;
pub mod striped;
pub mod ublk;
pub mod volume;
