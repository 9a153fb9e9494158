//! The files that a config names.

use std::path::PathBuf;

use super::cachebench::Config;
use super::instance::InstanceConfig;
use super::lower::trace_files;

impl Config {
    /// Paths of the config and its distribution files.
    #[must_use]
    pub fn own_files(&self) -> Vec<PathBuf> {
        let of = |instance: &InstanceConfig| {
            let own = std::slice::from_ref(&instance.distribution);
            let pools = own.iter().chain(&instance.test.pool_distributions);
            let names = pools.flat_map(|it| [&it.value_sizes_file, &it.popularity_file]);
            let named = names.filter(|name| !name.is_empty());
            named.map(|name| instance.directory.join(name)).collect::<Vec<_>>()
        };
        std::iter::once(self.file.clone()).chain(self.instances.iter().flat_map(of)).collect()
    }

    /// Paths of the traces that are read.
    #[must_use]
    pub fn traces_read(&self) -> Vec<PathBuf> {
        self.instances.iter().flat_map(|instance| trace_files(instance).1).collect()
    }

    /// Paths of the flash devices.
    #[must_use]
    pub fn flash_paths(&self) -> Vec<PathBuf> {
        self.instances.iter().flat_map(|instance| &instance.cache.nvm_paths).map(PathBuf::from).collect()
    }

    /// Paths of the event CSV files.
    #[must_use]
    pub fn event_files(&self) -> Vec<PathBuf> {
        let names = self.instances.iter().map(|instance| &instance.cache.event_file);
        names.filter(|name| !name.is_empty()).map(PathBuf::from).collect()
    }

    /// Paths of the traces that are written: traces of misses, and binary traces.
    #[must_use]
    pub fn traces_written(&self) -> Vec<PathBuf> {
        let binary = |instance: &InstanceConfig| {
            let name = &instance.test.replay.binary_file;
            instance.test.writes_binary_trace().then(|| instance.directory.join(name))
        };
        self.instances.iter().flat_map(|it| it.miss_trace().into_iter().chain(binary(it))).collect()
    }
}
