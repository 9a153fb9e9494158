//! The methods of a simulator that wraps another.

/// The methods of [`Simulator`](policy::simulate::Simulator) that a wrapper passes on unchanged.
macro_rules! forward_simulator {
    ($field:ident) => {
        fn counts(&self) -> policy::simulate::Counts {
            self.$field.counts()
        }

        fn holds(&self, object: u32) -> bool {
            self.$field.holds(object)
        }

        fn expire(&mut self, object: u32) {
            self.$field.expire(object);
        }

        fn needs_future(&self) -> bool {
            self.$field.needs_future()
        }
    };
}
pub(crate) use forward_simulator;
