//! Structures built field by field.

use super::super::bytes::torture;
use super::*;

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

fn descriptor(valid: bool, isolations: &[u8]) -> Vec<u8> {
    let size = 64 + 4 * isolations.len() + 8; // a little more than it needs, as the format permits
    let mut bytes = vec![0; size];
    put(&mut bytes, 0, &(size as u16).to_le_bytes());
    bytes[2] = u8::from(valid) << 7 | 0b0010;
    put(&mut bytes, 4, &2u32.to_le_bytes());
    put(&mut bytes, 8, &(isolations.len() as u16).to_le_bytes());
    put(&mut bytes, 10, &7u16.to_le_bytes());
    put(&mut bytes, 12, &128u32.to_le_bytes());
    put(&mut bytes, 16, &(6u64 << 30).to_le_bytes());
    put(&mut bytes, 24, &3600u32.to_le_bytes());
    for (handle, &isolation) in isolations.iter().enumerate() {
        bytes[64 + 4 * handle] = isolation;
    }
    bytes
}

fn configurations() -> Vec<u8> {
    let mut bytes = vec![0; 16];
    bytes[0] = 1; // two, counted from zero
    bytes.extend(descriptor(true, &[1, 1, 2, 9]));
    bytes.extend(descriptor(false, &[2]));
    let size = bytes.len() as u32;
    put(&mut bytes, 4, &size.to_le_bytes());
    bytes
}

#[test]
fn consecutive_configurations_are_decoded() {
    let found = Configurations::decode(&configurations()).unwrap();
    assert_eq!(found.page_bytes as usize, configurations().len());
    let first = Configuration {
        valid: true,
        reclaim_groups: 2,
        max_placement_ids: 8,
        max_namespaces: 128,
        reclaim_unit_bytes: Some(6 << 30),
        time_limit_seconds: Some(3600),
        handles: vec![
            Isolation::Initially,
            Isolation::Initially,
            Isolation::Persistently,
            Isolation::Other(9),
        ],
    };
    let second = Configuration { valid: false, handles: vec![Isolation::Persistently], ..first };
    assert_eq!(found.each, [first, second]);
}

#[test]
fn descriptor_with_invalid_length_ends_the_list() {
    for size in [0u16, 63, 64 + 15] {
        let mut bytes = configurations();
        put(&mut bytes, 16, &size.to_le_bytes());
        assert_eq!(Configurations::decode(&bytes).unwrap().each, []);
    }
}

#[test]
fn handle_usage_distinguishes_host_and_controller() {
    let mut bytes = vec![0; 8 + 8 * 4];
    bytes[0] = 4;
    for (handle, used) in [1, 2, 0, 3].into_iter().enumerate() {
        bytes[8 + 8 * handle] = used;
    }
    let expected = [HandleUse::Host, HandleUse::Controller, HandleUse::Unused, HandleUse::Other(3)];
    assert_eq!(decode_handle_use(&bytes).unwrap(), expected);
    assert_eq!(decode_handle_use(&bytes[..20]).unwrap(), expected[..1], "complete entries only");
    torture::prefixes(&bytes, 8, decode_handle_use);
    torture::noise(&bytes, decode_handle_use);
}

fn statistics(host: u128, media: u128) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    put(&mut bytes, 0, &host.to_le_bytes());
    put(&mut bytes, 16, &media.to_le_bytes());
    put(&mut bytes, 32, &5u128.to_le_bytes());
    bytes
}

#[test]
fn write_amplification_is_unknown_without_writes() {
    let earlier = Statistics::decode(&statistics(1 << 80, 1 << 81)).unwrap();
    let later = Statistics::decode(&statistics((1 << 80) + 100, (1 << 81) + 130)).unwrap();
    assert_eq!((earlier.host_written_bytes, earlier.media_erased_bytes), (1 << 80, 5));
    assert_eq!(later.write_amplification_since(&earlier), Some(1.3));
    assert_eq!(earlier.write_amplification_since(&earlier), None);
    assert_eq!(earlier.write_amplification_since(&later), None);
}

fn events() -> Vec<u8> {
    let mut bytes = vec![0; 64 * 4];
    bytes[0] = 3;
    for (number, (kind, flags)) in [(0x03, 0b111), (0x80, 0b100), (0x70, 0)].into_iter().enumerate() {
        let event = &mut bytes[64 * (number + 1)..];
        (event[0], event[1]) = (kind, flags);
        put(event, 2, &0x4001u16.to_le_bytes());
        put(event, 4, &77u64.to_le_bytes());
        put(event, 12, &1u32.to_le_bytes());
        put(event, 32, &2u16.to_le_bytes());
        event[34] = 5;
    }
    bytes
}

#[test]
fn event_fields_are_present_only_if_their_flags_are_set() {
    let found = Event::decode_all(&events()).unwrap();
    let whole = Event {
        kind: EventKind::InvalidPlacementId,
        placement_id: Some(0x4001),
        namespace: Some(1),
        place: Some((2, 5)),
        timestamp: 77,
    };
    let placed = Event { kind: EventKind::MediaReallocated, placement_id: None, namespace: None, ..whole };
    let bare = Event { kind: EventKind::Other(0x70), place: None, ..placed };
    assert_eq!(found, [whole, placed, bare]);
}

#[test]
fn feature_has_state_and_configuration() {
    assert_eq!(Feature::decode(0x0301), Feature { enabled: true, configuration: 3 });
    assert_eq!(Feature::decode(0xFFFF_00FE), Feature { enabled: false, configuration: 0 });
}

fn placement_status() -> Vec<u8> {
    let mut bytes = vec![0; 16 + 32 * 2];
    bytes[14] = 2;
    for (number, (id, handle, left)) in
        [(0x0000u16, 0u16, 1024u64), (0x4000, 0, 1000)].into_iter().enumerate()
    {
        let at = 16 + 32 * number;
        put(&mut bytes, at, &id.to_le_bytes());
        put(&mut bytes, at + 2, &handle.to_le_bytes());
        put(&mut bytes, at + 8, &left.to_le_bytes());
    }
    bytes
}

#[test]
fn placement_identifiers_have_their_remaining_blocks() {
    let bytes = placement_status();
    assert_eq!(PlacementStatus::count(&bytes[..16]).unwrap(), 2);
    let status = |placement_id, blocks_left| PlacementStatus {
        placement_id,
        handle: 0,
        time_left_seconds: None,
        blocks_left,
    };
    assert_eq!(PlacementStatus::decode_all(&bytes).unwrap(), [status(0, 1024), status(0x4000, 1000)]);
    assert_eq!(PlacementStatus::decode_all(&bytes[..48]).unwrap().len(), 1, "complete entries only");
}

#[test]
fn short_and_random_pages_do_not_panic() {
    torture::prefixes(&configurations(), 16, Configurations::decode);
    torture::noise(&configurations(), Configurations::decode);
    torture::prefixes(&statistics(1, 2), 48, Statistics::decode);
    torture::noise(&statistics(1, 2), Statistics::decode);
    torture::prefixes(&events(), 64, Event::decode_all);
    torture::noise(&events(), Event::decode_all);
    torture::prefixes(&placement_status(), 16, PlacementStatus::decode_all);
    torture::noise(&placement_status(), PlacementStatus::decode_all);
}
