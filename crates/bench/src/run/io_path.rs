//! A warning for flash whose requests do not use io_uring.

use device::Device;

use crate::config::plan::FlashPlan;

/// The warning for `device`, the flash of `plan`; `None` if it uses io_uring, or if it is in memory or a model.
#[must_use]
pub fn warning(plan: &FlashPlan, device: &dyn Device) -> Option<String> {
    let message = device.engine()?.warning()?;
    let paths: Vec<String> = plan.paths.iter().map(|path| path.display().to_string()).collect();
    Some(format!("flash: {}: {message}", paths.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::file::OpenOptions;
    use device::{Engine, FileDevice, MemoryDevice, SliceDevice};

    use super::*;
    use crate::run::fit;

    #[test]
    fn threads_instead_of_io_uring_are_a_warning() {
        let directory = tempfile::tempdir().unwrap();
        let mut plan = fit::tests::plan(vec![(100, 50)]);
        plan.paths = vec![directory.path().join("flash")];
        let options = OpenOptions {
            size_bytes: Some(1 << 20),
            create: true,
            buffered: true,
            engine: Some(Engine::ThreadPool),
            ..OpenOptions::default()
        };
        let device = FileDevice::open(&plan.paths[0], &options).unwrap();
        let part = SliceDevice::new(Arc::new(device), 0..1 << 19).unwrap();
        let message = warning(&plan, &part).unwrap();
        assert!(message.contains("io_uring is not available") && message.contains("flash"), "{message}");
        assert_eq!(warning(&plan, &MemoryDevice::new(1 << 20)), None);
    }
}
