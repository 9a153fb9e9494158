//! A target in virtual time: each get takes a constant time and misses.

use std::ops::Deref;
use std::sync::Arc;

use device::timer::{Timer, sleep};
use flashwright_bench::run::target::{Found, Layer, SetHow, SetOutcome, Snapshot, Target};

pub struct SlowTarget {
    timer: Arc<dyn Timer>,
    service_ns: u64,
}

impl SlowTarget {
    pub fn new(timer: Arc<dyn Timer>, service_ns: u64) -> Self {
        Self { timer, service_ns }
    }
}

pub struct Nothing;

impl Deref for Nothing {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &[]
    }
}

impl Found for Nothing {
    fn layer(&self) -> Layer {
        Layer::Flash
    }
    fn each_link(&self, _show: &mut dyn FnMut(&[u8])) {}
}

impl Target for SlowTarget {
    type Item<'a> = Nothing;

    async fn get(&self, _key: &[u8]) -> Option<Nothing> {
        sleep(&*self.timer, self.service_ns).await;
        None
    }

    async fn set(
        &self,
        _key: &[u8],
        _value_bytes: usize,
        _how: SetHow,
        _fill: impl FnOnce(&mut [u8]),
    ) -> SetOutcome {
        SetOutcome::Refused
    }

    async fn chain(&self, _key: &[u8], _value_bytes: usize, _fill: impl FnOnce(&mut [u8])) -> bool {
        false
    }

    fn delete(&self, _key: &[u8]) -> bool {
        false
    }

    fn could_exist(&self, _key: &[u8]) -> bool {
        false
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }
}
