//! The write-back block cache: flash in front of a slow disk, for any program that speaks to a block device.
//!
//! It loses nothing that an acknowledged flush covered. What it decides (which set, which victim, what to clean and when) is
//! the pure core in [`sets`]: no I/O, no clock. [`volume`] does the I/O those decisions ask for, in either world; [`nbd`],
//! [`fuse`] and [`ublk`] serve a volume, or any device, to other programs ([`export`]).
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
//! // A thread of its own drives `volume.run_upkeep()`: cleaning, and tables for the journal.
//! volume.write(4096, IoBuffer::copy_of(&[7; 8192]).into(), false).await?;
//! volume.flush().await?; // from here on it survives a power cut
//! assert_eq!(volume.read(8192, 512).await?[..], [7; 512]);
//! assert_eq!(volume.stats().dirty_blocks, 2);
//! volume.clean().await?; // to the disk
//! volume.close().await?;
//! # Ok::<(), flashwright_block::volume::VolumeError>(()) }).unwrap();
//! ```
//!
//! This room knows nothing of the hybrid cache: the two keep different promises.

pub mod export;
pub mod fuse;
pub mod nbd;
pub mod sets;
pub mod striped;
pub mod ublk;
pub mod volume;
