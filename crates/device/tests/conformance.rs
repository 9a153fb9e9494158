//! The contract, on every device and wrapper of this crate.

use std::ops::Range;
use std::sync::Arc;

use flashwright_device::conformance::Subject;
use flashwright_device::event_loop::EventLoop;
use flashwright_device::file::{Engine, OpenOptions};
use flashwright_device::sim::LatencyModel;
use flashwright_device::timer::SystemTimer;
use flashwright_device::wrap::{
    CrashDevice, FaultDevice, Faults, GateDevice, Limits, MeasureDevice, Mechanics, SpindleDevice,
    ThrottleDevice,
};
use flashwright_device::{
    Completion, Device, FileDevice, MemoryDevice, Request, RequestKind, SimulatedDevice, Simulation,
    SliceDevice, StripeDevice, SystemClock, conformance,
};

const CAPACITY_BYTES: u64 = 32 << 20;

#[test]
fn memory_conforms() {
    conformance::run(|| Box::new(MemoryDevice::new(CAPACITY_BYTES)));
    conformance::run(|| Box::new(MemoryDevice::with_block_bytes(CAPACITY_BYTES, 4096)));
}

#[test]
fn direct_file_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    conformance::run(|| temporary_file(&scratch, &OpenOptions::default()));
}

#[test]
fn file_conforms_with_an_event_loop() {
    let scratch = tempfile::tempdir().unwrap();
    let _event_loop = EventLoop::new([]);
    conformance::run(|| temporary_file(&scratch, &OpenOptions::default()));
}

#[test]
fn buffered_file_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    conformance::run(|| temporary_file(&scratch, &OpenOptions { buffered: true, ..Default::default() }));
}

#[test]
fn file_without_io_uring_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    let engine = Some(Engine::ThreadPool);
    conformance::run(|| temporary_file(&scratch, &OpenOptions { engine, ..Default::default() }));
}

#[test]
fn stripe_conforms() {
    for unit_bytes in [4096, 20 << 10, 1 << 20] {
        conformance::run(|| {
            let devices = (0..3).map(|_| memory()).collect();
            Box::new(StripeDevice::new(devices, unit_bytes).unwrap())
        });
    }
}

#[test]
fn slice_conforms() {
    let range = 4096..CAPACITY_BYTES - 8192;
    conformance::run(|| Box::new(SliceDevice::new(memory(), range.clone()).unwrap()));
}

#[test]
fn simulated_device_conforms() {
    for channels in [1, 7, 64] {
        conformance::run_driven(|| {
            let simulation = Simulation::new(channels as u64);
            let latency = LatencyModel { channels, ..Default::default() };
            let device = Arc::new(SimulatedDevice::new(simulation.world(), memory(), latency));
            Subject { device, drive: Some(Box::new(move || simulation.run_until_idle())) }
        });
    }
}

#[test]
fn measured_device_conforms() {
    conformance::run(|| {
        Box::new(MeasureDevice::new(memory(), Arc::new(SystemClock), Arc::new(|_, _, _| {})))
    });
}

#[test]
fn throttled_device_conforms() {
    let limits = Limits { bytes_per_second: Some(8 << 30), requests_per_second: Some(400_000) };
    conformance::run(|| Box::new(ThrottleDevice::new(memory(), Arc::new(SystemTimer::default()), limits)));
    conformance::run_driven(|| {
        let simulation = Simulation::new(3);
        let limits = Limits { bytes_per_second: Some(1 << 20), requests_per_second: Some(100) };
        let device = Arc::new(ThrottleDevice::new(memory(), Arc::new(simulation.world()), limits));
        Subject { device, drive: Some(Box::new(move || simulation.run_until_idle())) }
    });
}

#[test]
fn model_disk_conforms() {
    conformance::run_driven(|| {
        let simulation = Simulation::new(4);
        let timer = Arc::new(simulation.world());
        let device = Arc::new(SpindleDevice::new(memory(), timer, Mechanics::default()));
        Subject { device, drive: Some(Box::new(move || simulation.run_until_idle())) }
    });
}

#[test]
fn fault_device_without_faults_conforms() {
    conformance::run(|| Box::new(FaultDevice::new(memory(), 0, Faults::default())));
}

#[test]
fn gate_device_conforms_when_open_and_when_its_requests_are_released() {
    conformance::run(|| Box::new(GateDevice::new(memory())));
    conformance::run_driven(|| {
        let device = Arc::new(GateDevice::new(memory()));
        for kind in [RequestKind::Read, RequestKind::Write, RequestKind::Flush] {
            device.close(kind);
        }
        let gate = Arc::clone(&device);
        Subject { device, drive: Some(Box::new(move || while gate.release_held() > 0 {})) }
    });
}

#[test]
fn crash_device_conforms() {
    for absorbs in [false, true] {
        let memory = || MemoryDevice::new(CAPACITY_BYTES).absorbing(absorbs);
        conformance::run(|| Box::new(CrashDevice::new(memory())));
    }
}

#[test]
fn nested_wrappers_conform() {
    conformance::run_driven(|| {
        let simulation = Simulation::new(8);
        let absorbing = Arc::new(MemoryDevice::new(CAPACITY_BYTES).absorbing(true));
        let simulated = SimulatedDevice::new(simulation.world(), absorbing, LatencyModel::default());
        let crash = CrashDevice::over(Arc::new(simulated), MemoryDevice::new(CAPACITY_BYTES));
        let fault = FaultDevice::new(Arc::new(crash), 0, Faults::default());
        let measure = MeasureDevice::new(Arc::new(fault), simulation.clock(), Arc::new(|_, _, _| {}));
        let slice: Arc<dyn Device> = Arc::new(SliceDevice::new(Arc::new(measure), 4096..8 << 20).unwrap());
        let device = Arc::new(StripeDevice::new(vec![slice, memory()], 64 << 10).unwrap());
        Subject { device, drive: Some(Box::new(move || simulation.run_until_idle())) }
    });
}

/// Tests the suite: it must detect a device that occasionally violates one rule.
#[test]
fn suite_detects_contract_violations() {
    let broken = [
        Faults { flipped_reads: 0.01, ..Default::default() },
        Faults { flipped_writes: 0.01, ..Default::default() },
        Faults { failed_reads: 0.01, ..Default::default() },
        Faults { failed_writes: 0.01, ..Default::default() },
        Faults { failed_flushes: 0.3, ..Default::default() },
    ];
    for faults in broken {
        let suite = || conformance::run(|| Box::new(FaultDevice::new(memory(), 1, faults)));
        assert!(std::panic::catch_unwind(suite).is_err(), "{faults:?} was not detected");
    }
    for misbehave in [drop_write, misplace_write, accept_anything] {
        let suite = || conformance::run(|| Box::new(Misbehaving { inner: memory(), misbehave }));
        assert!(std::panic::catch_unwind(suite).is_err(), "a broken device was not detected");
    }
}

/// A device that reports everything as a hole, even written data.
#[test]
fn suite_detects_false_holes() {
    let suite = || conformance::run(|| Box::new(FalseHoles(memory())));
    assert!(std::panic::catch_unwind(suite).is_err(), "it was not detected");
}

struct FalseHoles(Arc<dyn Device>);

impl Device for FalseHoles {
    flashwright_device::forward_device!(0: geometry, submit, counters);

    fn hole_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        (!range.is_empty()).then_some(range)
    }
}

/// A device that changes requests.
struct Misbehaving {
    inner: Arc<dyn Device>,
    misbehave: fn(Request) -> Request,
}

impl Device for Misbehaving {
    flashwright_device::forward_device!(inner: geometry, counters);

    fn submit(&self, request: Request, completion: Completion) {
        self.inner.submit((self.misbehave)(request), completion);
    }
}

fn drop_write(request: Request) -> Request {
    match request {
        Request::Write { offset, .. } if offset == 12 * 512 => Request::Flush,
        other => other,
    }
}

fn misplace_write(request: Request) -> Request {
    match request {
        Request::Write { offset, data, placement } if offset == 12 * 512 => {
            Request::Write { offset: offset + 512, data, placement }
        }
        other => other,
    }
}

fn accept_anything(request: Request) -> Request {
    match request {
        Request::Trim { offset, len } => Request::Trim { offset: offset / 512 * 512, len: len / 512 * 512 },
        other => other,
    }
}

fn memory() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(CAPACITY_BYTES))
}

/// The system's temporary directory usually allows direct I/O; the crate's target directory may not.
fn temporary_file(scratch: &tempfile::TempDir, options: &OpenOptions) -> Box<dyn Device> {
    let options = OpenOptions { size_bytes: Some(CAPACITY_BYTES), ..options.clone() };
    Box::new(
        FileDevice::create_temporary(scratch.path(), &options).expect("a file in the temporary directory"),
    )
}
