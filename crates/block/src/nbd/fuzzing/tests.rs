//! Random bytes, and valid sessions with some bytes replaced.

use proptest::prelude::*;

use super::super::handshake::NegotiatedOptions;
use super::super::wire::{OPTION_MAGIC, REQUEST_MAGIC};
use super::*;

fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(code.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Valid handshakes with lists and contexts.
fn sessions() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        Just(vec![]),
        Just(b"\0\0\0\x04disk\0\0".to_vec()),
        Just(b"\0\0\0\x04bare\0\0".to_vec()),
        Just(b"\0\0\0\0\0\x02\0\x01\0\x02".to_vec()),
        Just(b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..40),
    ];
    let options = proptest::collection::vec((0u32..12, data), 0..12);
    options.prop_map(|options| {
        let mut bytes = 3u32.to_be_bytes().to_vec();
        bytes.extend(options.iter().flat_map(|(code, data)| option(*code, data)));
        bytes
    })
}

/// Valid requests, some past the end or of an unknown kind.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let request = (any::<[bool; 5]>(), 0u16..10, any::<u64>(), 0u64..1 << 21, 0u32..20_000);
    let requests = proptest::collection::vec(request, 0..10);
    requests.prop_map(|requests| {
        let mut bytes = Vec::new();
        for (flags, command, cookie, offset, length) in requests {
            let flags = (0..5).fold(0u16, |all, i| all | (u16::from(flags[i]) << i));
            let length = length & !511;
            bytes.extend(REQUEST_MAGIC.to_be_bytes());
            bytes.extend(flags.to_be_bytes());
            bytes.extend(command.to_be_bytes());
            bytes.extend(cookie.to_be_bytes());
            bytes.extend((offset & !511).to_be_bytes());
            bytes.extend(length.to_be_bytes());
            if command == 1 {
                bytes.extend(std::iter::repeat_n(cookie as u8, length as usize));
            }
        }
        bytes
    })
}

/// `bytes` with some replaced.
fn mutated(strategy: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (strategy, changes).prop_map(|(mut bytes, changes)| {
        for (place, byte) in changes {
            if !bytes.is_empty() {
                let at = place.index(bytes.len());
                bytes[at] = byte;
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_bytes_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        run_handshake(&bytes, 7);
        parse_requests(&bytes, 7);
    }

    #[test]
    fn mutated_handshake_does_not_depend_on_splitting(bytes in mutated(sessions()), cut in 1usize..50) {
        let whole = run_handshake(&bytes, bytes.len().max(1));
        prop_assert_eq!(&whole, &run_handshake(&bytes, cut));
        prop_assert!(whole.0.len() <= max_output_bytes(&bytes));
    }

    #[test]
    fn mutated_requests_do_not_depend_on_splitting(bytes in mutated(requests()), cut in 1usize..9000) {
        prop_assert_eq!(parse_requests(&bytes, usize::MAX), parse_requests(&bytes, cut));
    }
}

#[test]
fn option_of_4_gib_is_skipped_without_storing_it() {
    let offers = offers();
    let mut handshake = Handshake::new(&offers);
    let mut output = Vec::new();
    assert_eq!(handshake.advance(&3u32.to_be_bytes(), &mut output), (4, Step::More));
    let mut head = option(6, &[]);
    head[12..].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(handshake.advance(&head, &mut output), (16, Step::More));
    let mut left = u64::from(u32::MAX);
    let junk = vec![0; 1 << 20];
    while left > 0 {
        let given = left.min(junk.len() as u64) as usize;
        assert_eq!(handshake.advance(&junk[..given], &mut output), (given, Step::More));
        left -= given as u64;
    }
    assert_eq!(
        handshake.advance(&option(2, &[]), &mut output),
        (16, Step::Close),
        "the next option is parsed"
    );
    assert!(output.len() < 200);
}

#[test]
fn contexts_apply_only_to_the_export_they_were_set_for() {
    let set = |name: &[u8]| {
        let query = b"flashwright:dirty";
        let counted = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
        [counted(name), 1u32.to_be_bytes().to_vec(), counted(query)].concat()
    };
    let session = |set_name: &[u8], go_name: &[u8]| {
        let mut go = (go_name.len() as u32).to_be_bytes().to_vec();
        go.extend(go_name);
        go.extend([0, 0]);
        [3u32.to_be_bytes().to_vec(), option(8, &[]), option(10, &set(set_name)), option(7, &go)].concat()
    };
    let agreed = |contexts: &[Context]| {
        Step::Transmit(NegotiatedOptions { place: 0, structured: true, contexts: contexts.to_vec() })
    };
    assert_eq!(run_handshake(&session(b"disk", b"disk"), 99).2, agreed(&[Context::Dirty]));
    assert_eq!(run_handshake(&session(b"", b"disk"), 99).2, agreed(&[]));
    assert_eq!(
        run_handshake(&session(b"other", b"disk"), 99).2,
        agreed(&[]),
        "no such export: nothing is set"
    );
}
