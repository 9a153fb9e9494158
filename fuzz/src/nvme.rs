//! Data structures that a drive can return.

use device::nvme::fdp::{self, Configurations, Event, Feature, PlacementStatus, Statistics};
use device::nvme::identify::{Controller, Namespace};
use device::nvme::log_pages::{EnduranceGroup, OcpSmart, Smart};

/// Decodes the bytes as each data structure; decoded entries must lie inside the input.
pub fn check(data: &[u8]) {
    let _ = Controller::decode(data);
    let _ = Namespace::decode(data);
    let _ = Smart::decode(data);
    let _ = EnduranceGroup::decode(data);
    let _ = OcpSmart::decode(data);
    let _ = Configurations::decode(data);
    if let Ok(statistics) = Statistics::decode(data) {
        assert_eq!(
            statistics.write_amplification_since(&statistics),
            None,
            "there are no writes between equal statistics"
        );
    }
    if let Ok(handles) = fdp::decode_handle_use(data) {
        assert!(handles.len() <= data.len());
    }
    if let Ok(events) = Event::decode_all(data) {
        assert!(events.len() <= data.len());
    }
    if let Ok(status) = PlacementStatus::decode_all(data) {
        assert!(status.len() <= data.len());
    }
    if let Some(bytes) = data.first_chunk() {
        let _ = Feature::decode(u32::from_le_bytes(*bytes));
    }
}
