//! The model SSD: predicts the effect of a workload on a drive without the drive.
//!
//! [`Ftl`] is a page-mapped flash translation layer: reclaim units, garbage collection, placement handles, wear. It
//! counts pages and stores no payload.
//!
//! Of this workspace's crates it depends on `device` only; caches, JSON and command lines are in other crates.

pub mod as_device;
pub mod card;
mod check;
mod collect;
mod content;
mod controller;
pub mod drive;
mod ftl;
pub mod gc;
pub mod geometry;
mod mapping;
pub mod medium;
pub mod model;
pub mod over;
pub mod placement;
pub mod run;
pub mod stats;
pub mod timing;
pub mod wear;

pub use as_device::{Assignment, Namespace, Payload, SsdDevice};
pub use card::{Card, CardError};
pub use drive::Drive;
pub use ftl::{Ftl, Upkeep};
pub use gc::VictimPolicy;
pub use geometry::{Layout, LogicalPage, PhysicalPage, Shape, ShapeError, UnitId};
pub use medium::{Medium, Untimed};
pub use over::DriveOver;
pub use placement::{HandleKind, Isolation, Placement};
pub use stats::Stats;
pub use timing::Timing;
pub use wear::Levelling;
