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

/// Implements methods of [`Device`](crate::Device) by calls of the wrapped device in a field: `forward_device!(inner: geometry, counters);`
/// in the `impl`.
#[macro_export]
macro_rules! forward_device {
    ($field:tt: $($method:ident),+) => {
        $($crate::forward_device!(@$method $field);)+
    };
    (@geometry $field:tt) => {
        fn geometry(&self) -> $crate::Geometry {
            self.$field.geometry()
        }
    };
    (@refresh_capacity $field:tt) => {
        fn refresh_capacity(&self, limit_bytes: u64) -> Result<u64, $crate::IoError> {
            self.$field.refresh_capacity(limit_bytes)
        }
    };
    (@submit $field:tt) => {
        fn submit(&self, request: $crate::Request, completion: $crate::Completion) {
            self.$field.submit(request, completion);
        }
    };
    (@execute $field:tt) => {
        fn execute(&self, request: $crate::Request) -> $crate::Outcome {
            self.$field.execute(request)
        }
    };
    (@absorb $field:tt) => {
        fn absorb(&self, offset: u64, data: &$crate::IoSlice) -> Option<Result<(), $crate::IoError>> {
            self.$field.absorb(offset, data)
        }
    };
    (@hole_in $field:tt) => {
        fn hole_in(&self, range: ::std::ops::Range<u64>) -> Option<::std::ops::Range<u64>> {
            self.$field.hole_in(range)
        }
    };
    (@trims_to_zeros $field:tt) => {
        fn trims_to_zeros(&self) -> bool {
            self.$field.trims_to_zeros()
        }
    };
    (@engine $field:tt) => {
        fn engine(&self) -> Option<$crate::Engine> {
            self.$field.engine()
        }
    };
    (@counters $field:tt) => {
        fn counters(&self) -> $crate::Counters {
            self.$field.counters()
        }
    };
    (@allocate_handle $field:tt) => {
        fn allocate_handle(&self, consumer: &str) -> $crate::PlacementHandle {
            self.$field.allocate_handle(consumer)
        }
    };
}
