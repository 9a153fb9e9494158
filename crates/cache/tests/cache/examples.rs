//! Runs the examples to completion.

#[path = "../../examples/async_tasks.rs"]
mod async_tasks;
#[path = "../../examples/hybrid_file.rs"]
mod hybrid_file;
#[path = "../../examples/memory_only.rs"]
mod memory_only;
#[path = "../../examples/read_through.rs"]
mod read_through;
#[path = "../../examples/restart.rs"]
mod restart;
#[path = "../../examples/sessions.rs"]
mod sessions;
#[path = "../../examples/simulated.rs"]
mod simulated;

use std::error::Error;

macro_rules! runs {
    ($($example:ident)*) => {$(
        #[test]
        fn $example() -> Result<(), Box<dyn Error>> {
            $example::main()
        }
    )*};
}

runs! { async_tasks hybrid_file memory_only read_through restart sessions simulated }

#[test]
fn every_example_is_run() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(folder).map_or(0, |files| files.count());
    assert_eq!(files, 7, "a new example needs its line above");
}
