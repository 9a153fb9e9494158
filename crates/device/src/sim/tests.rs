//! Behaviour of the simulation.

use std::cell::RefCell;
use std::rc::Rc;

use event_listener::{Event, listener};

use super::*;
use crate::{Device, IoBuffer, MemoryDevice};

/// The actions of three tasks with their times, in order.
fn event_log(seed: u64) -> Vec<(u64, &'static str)> {
    let simulation = Simulation::new(seed);
    let event_log = Rc::new(RefCell::new(Vec::new()));
    for name in ["anna", "bert", "cleo"] {
        let (world, event_log) = (simulation.world(), Rc::clone(&event_log));
        simulation.spawn(async move {
            for _ in 0..8 {
                world.sleep(world.random() % 3).await;
                event_log.borrow_mut().push((world.monotonic_ns(), name));
            }
        });
    }
    simulation.run_until_idle();
    event_log.take()
}

#[test]
fn run_depends_on_the_seed_alone() {
    assert_eq!(event_log(1), event_log(1));
    assert!((2..20).any(|seed| event_log(seed) != event_log(1)));
}

#[test]
fn clock_jumps_from_event_to_event() {
    let simulation = Simulation::new(0);
    let world = simulation.world();
    let seen = simulation.block_on(async move {
        let start_ns = world.monotonic_ns();
        world.sleep(3_600_000_000_000).await;
        (start_ns, world.monotonic_ns(), world.unix_seconds())
    });
    assert_eq!(seen, (0, 3_600_000_000_000, VirtualClock::EPOCH_UNIX_SECONDS + 3600));
}

#[test]
fn run_until_stops_before_later_events() {
    let simulation = Simulation::new(0);
    let world = simulation.world();
    let task = simulation.spawn(async move { world.sleep(100).await });
    simulation.run_until(99);
    assert_eq!((simulation.clock().monotonic_ns(), task.result()), (99, None));
    simulation.run_until(100);
    assert_eq!(task.result(), Some(()));
}

#[test]
fn simultaneous_events_run_in_random_order() {
    let order = |seed| {
        let simulation = Simulation::new(seed);
        let order = Arc::new(Mutex::new(Vec::new()));
        for number in 0..4 {
            let order = Arc::clone(&order);
            simulation.world().schedule(10, move || order.lock().push(number));
        }
        simulation.run_until_idle();
        order.lock().clone()
    };
    let orders: std::collections::BTreeSet<Vec<i32>> = (0..200).map(order).collect();
    assert_eq!(orders.len(), 24, "every order of four events occurs");
}

#[test]
fn tasks_can_wait_with_event_listeners() {
    let simulation = Simulation::new(5);
    let (event, ready) = (Rc::new(Event::new()), Rc::new(RefCell::new(false)));
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let (event, ready) = (Rc::clone(&event), Rc::clone(&ready));
            simulation.spawn(async move {
                while !*ready.borrow() {
                    listener!(event => listener);
                    if !*ready.borrow() {
                        listener.await;
                    }
                }
            })
        })
        .collect();
    simulation.run_until_idle();
    assert!(waiters.iter().all(|waiter| waiter.result().is_none()));
    *ready.borrow_mut() = true;
    event.notify(usize::MAX);
    simulation.run_until_idle();
    assert!(waiters.iter().all(|waiter| waiter.result().is_some()));
}

#[test]
fn task_can_await_another() {
    let simulation = Simulation::new(5);
    let world = simulation.world();
    let inner = simulation.spawn(async move {
        world.sleep(10).await;
        6
    });
    assert_eq!(simulation.block_on(async move { inner.await * 7 }), 42);
}

#[test]
#[should_panic(expected = "deadlock")]
fn deadlock_panics() {
    Simulation::new(0).block_on(std::future::pending::<()>());
}

#[test]
fn device_serves_one_request_per_channel() {
    let simulation = Simulation::new(0);
    let latency =
        LatencyModel { read_ns: 100, per_4k_ns: 0, jitter_ns: 0, channels: 2, ..Default::default() };
    let content = Arc::new(MemoryDevice::new(1 << 20));
    let device: Arc<dyn Device> = Arc::new(SimulatedDevice::new(simulation.world(), content, latency));
    let ends = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..5 {
        let (device, world, ends) = (Arc::clone(&device), simulation.world(), Rc::clone(&ends));
        simulation.spawn(async move {
            device.read(0, 512).await.unwrap();
            ends.borrow_mut().push(world.monotonic_ns());
        });
    }
    simulation.run_until_idle();
    assert_eq!(ends.take(), [100, 100, 200, 200, 300]);
}

#[test]
fn read_concurrent_with_a_write_returns_old_or_new_data() {
    let found = |seed| {
        let simulation = Simulation::new(seed);
        let content = Arc::new(MemoryDevice::new(1 << 20));
        let device: Arc<dyn Device> =
            Arc::new(SimulatedDevice::new(simulation.world(), content, LatencyModel::default()));
        drop(device.write(0, IoBuffer::copy_of(&[1; 512])));
        let read = simulation.block_on(device.read(0, 512));
        read.unwrap()[0]
    };
    let found: std::collections::BTreeSet<u8> = (0..50).map(found).collect();
    assert_eq!(found.len(), 2);
}

#[test]
fn blocking_call_advances_the_clock() {
    let simulation = Simulation::new(0);
    let latency = LatencyModel { write_ns: 500, per_4k_ns: 10, jitter_ns: 0, ..Default::default() };
    let content = Arc::new(MemoryDevice::new(1 << 20));
    let device = SimulatedDevice::new(simulation.world(), content, latency);
    let data = IoBuffer::zeroed(8192);
    device.execute(crate::Request::write(0, data)).unwrap();
    assert_eq!(simulation.clock().monotonic_ns(), 520);
}
