//! The contract, on every device and wrapper of this crate.

use flashwright_device::file::{Engine, OpenOptions};
use flashwright_device::{Device, FileDevice, MemoryDevice, conformance};

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

/// The crate's own target directory may be anywhere; the system's temporary one usually allows direct I/O.
fn temporary_file(scratch: &tempfile::TempDir, options: &OpenOptions) -> Box<dyn Device> {
    let options = OpenOptions { size_bytes: Some(CAPACITY_BYTES), ..options.clone() };
    Box::new(
        FileDevice::create_temporary(scratch.path(), &options).expect("a file in the temporary directory"),
    )
}
