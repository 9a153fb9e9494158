//! The model drive keeps the contract of every device.

use device::{Device, conformance};
use flashwright_ssd::{Isolation, Payload, Shape, SsdDevice, Upkeep};

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
fn it_keeps_the_contract_with_pages_of_a_block_and_larger_ones() {
    for (block_bytes, page_bytes) in [(4096, 4096), (512, 4096), (4096, 16384)] {
        conformance::run(|| {
            let layout = shape(block_bytes, page_bytes).layout().unwrap();
            Box::new(SsdDevice::new(layout, Upkeep::default(), Payload::Kept)) as Box<dyn Device>
        });
    }
}
