//! Conformance of the model drive to the device contract.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::rc::Rc;
use std::sync::Arc;

use device::conformance::{self, Subject};
use device::{Device, MemoryDevice, Simulation};
use flashwright_ssd::{Card, DriveOver, Isolation, Payload, Shape, SsdDevice, Upkeep};

fn shape(block_bytes: u32, page_bytes: u32) -> Shape {
    let unit_pages = 64;
    Shape {
        block_bytes,
        page_bytes,
        unit_pages,
        units: 24,
        reserve_units: 0,
        logical_pages: 20 * unit_pages,
        groups: 1,
        isolation: Isolation::initially_isolated(4),
    }
}

#[test]
fn model_drive_conforms_with_pages_of_one_or_more_blocks() {
    for (block_bytes, page_bytes) in [(4096, 4096), (512, 4096), (4096, 16384)] {
        conformance::run(|| {
            let layout = shape(block_bytes, page_bytes).layout().unwrap();
            Box::new(SsdDevice::new(layout, Upkeep::default(), Payload::Kept)) as Box<dyn Device>
        });
    }
}

#[test]
fn model_drive_in_a_simulation_conforms() {
    let card = Card::load("test").unwrap();
    conformance::run_driven(|| {
        let simulation = Rc::new(Simulation::new(7));
        let device = SsdDevice::in_world(
            simulation.world(),
            &card,
            &shape(4096, 4096),
            Upkeep::default(),
            Payload::Kept,
        );
        let driver = Rc::clone(&simulation);
        Subject { device: Arc::new(device.unwrap()), drive: Some(Box::new(move || driver.run_until_idle())) }
    });
}

#[test]
fn model_drive_over_another_device_conforms() {
    for card in Card::built_in() {
        conformance::run_driven(|| {
            let simulation = Rc::new(Simulation::new(7));
            let memory = Arc::new(MemoryDevice::with_block_bytes(32 << 20, 4096).absorbing(true));
            let device = DriveOver::new(memory, &card, Arc::new(simulation.world()));
            let driver = Rc::clone(&simulation);
            Subject {
                device: Arc::new(device.unwrap()),
                drive: Some(Box::new(move || driver.run_until_idle())),
            }
        });
    }
}
