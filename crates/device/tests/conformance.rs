//! The contract, on every device and wrapper of this crate.

use std::sync::Arc;

use flashwright_device::conformance::Subject;
use flashwright_device::file::{Engine, OpenOptions};
use flashwright_device::sim::LatencyModel;
use flashwright_device::{
    Device, FileDevice, MemoryDevice, SimulatedDevice, Simulation, SliceDevice, StripeDevice, conformance,
};

const CAPACITY_BYTES: u64 = 32 << 20;

#[test]
fn memory_keeps_the_contract() {
    conformance::run(|| Box::new(MemoryDevice::new(CAPACITY_BYTES)));
    conformance::run(|| Box::new(MemoryDevice::with_block_bytes(CAPACITY_BYTES, 4096)));
}

#[test]
fn a_direct_file_keeps_the_contract() {
    let scratch = tempfile::tempdir().unwrap();
    conformance::run(|| temporary_file(&scratch, &OpenOptions::default()));
}

#[test]
fn a_buffered_file_keeps_the_contract() {
    let scratch = tempfile::tempdir().unwrap();
    conformance::run(|| temporary_file(&scratch, &OpenOptions { buffered: true, ..Default::default() }));
}

#[test]
fn a_file_without_io_uring_keeps_the_contract() {
    let scratch = tempfile::tempdir().unwrap();
    let engine = Some(Engine::ThreadPool);
    conformance::run(|| temporary_file(&scratch, &OpenOptions { engine, ..Default::default() }));
}

#[test]
fn a_stripe_keeps_the_contract() {
    for unit_bytes in [4096, 20 << 10, 1 << 20] {
        conformance::run(|| {
            let devices = (0..3).map(|_| memory()).collect();
            Box::new(StripeDevice::new(devices, unit_bytes).unwrap())
        });
    }
}

#[test]
fn a_slice_keeps_the_contract() {
    let range = 4096..CAPACITY_BYTES - 8192;
    conformance::run(|| Box::new(SliceDevice::new(memory(), range.clone()).unwrap()));
}

#[test]
fn a_simulated_device_keeps_the_contract() {
    for channels in [1, 7, 64] {
        conformance::run_driven(|| {
            let simulation = Simulation::new(channels as u64);
            let latency = LatencyModel { channels, ..Default::default() };
            let device = Arc::new(SimulatedDevice::new(simulation.world(), memory(), latency));
            Subject { device, drive: Some(Box::new(move || simulation.run_until_idle())) }
        });
    }
}

fn memory() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(CAPACITY_BYTES))
}

/// The crate's own target directory may be anywhere; the system's temporary one usually allows direct I/O.
fn temporary_file(scratch: &tempfile::TempDir, options: &OpenOptions) -> Box<dyn Device> {
    let options = OpenOptions { size_bytes: Some(CAPACITY_BYTES), ..options.clone() };
    Box::new(
        FileDevice::create_temporary(scratch.path(), &options).expect("a file in the temporary directory"),
    )
}
