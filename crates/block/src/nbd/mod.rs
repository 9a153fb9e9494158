//! The Network Block Device server: any program can use what is served as a block device.
