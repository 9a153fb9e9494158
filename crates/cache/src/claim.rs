//! Ensures that each device has at most one cache in this process. A file or block device is locked against other processes when it is
//! opened. Two caches on one device object would overwrite each other's items.

use std::sync::Arc;

use device::Device;
use parking_lot::Mutex;

use crate::error::CacheError;

/// Addresses of the devices that caches of this program use.
static CLAIMED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The exclusive right to use a device, until it is dropped.
pub(crate) struct Claim(Arc<dyn Device>);

impl Claim {
    pub(crate) fn on(device: &Arc<dyn Device>) -> Result<Self, CacheError> {
        let mut claimed = CLAIMED.lock();
        let address = address(device);
        if claimed.contains(&address) {
            return Err(CacheError::Occupied(
                "the flash device is in use by another cache of this program: close or drop that one first, or give each cache a \
                 part of the device (SliceDevice)"
                    .to_owned(),
            ));
        }
        claimed.push(address);
        Ok(Self(Arc::clone(device)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = CLAIMED.lock();
        if let Some(at) = claimed.iter().position(|&claimed| claimed == address(&self.0)) {
            claimed.swap_remove(at);
        }
    }
}

/// The address of the device, without its vtable. The claim holds the device, so the address stays in use.
fn address(device: &Arc<dyn Device>) -> usize {
    Arc::as_ptr(device).cast::<()>() as usize
}
