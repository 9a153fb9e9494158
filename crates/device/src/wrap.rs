//! Wrappers: devices on another device, each with one additional property. They keep the contract, and the conformance suite runs on each.

pub mod crash;
pub mod fault;
pub mod gate;
pub mod measure;
pub mod spindle;
pub mod throttle;

pub use crash::{CrashDevice, Power};
pub use fault::{FaultDevice, Faults};
pub use gate::GateDevice;
pub use measure::MeasureDevice;
pub use spindle::{Mechanics, SpindleDevice};
pub use throttle::{Limits, ThrottleDevice};
