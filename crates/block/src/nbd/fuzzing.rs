//! Whatever bytes come: no panic, no memory beyond the bounds, and the same outcome however the bytes are cut up. The tests
//! try it at random, the fuzz targets by looking for what is new.

use super::handshake::{Handshake, Offer, Step};
use super::intake::{Intake, Next};
use super::transmission::Rules;
use super::wire::MAX_PAYLOAD_BYTES;
use crate::export::{Context, Shape};

#[cfg(test)]
mod tests;

/// The first byte says how the rest is cut up.
pub fn check_handshake(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let whole = shake_hands(bytes, bytes.len().max(1));
    assert_eq!(whole, shake_hands(bytes, usize::from(cut % 50) + 1));
    assert!(whole.0.len() <= most_said(bytes), "{} bytes said to {}", whole.0.len(), bytes.len());
}

/// The first byte says how the rest is cut up.
pub fn check_requests(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else { return };
    assert_eq!(take_in(bytes, usize::MAX), take_in(bytes, usize::from(cut) * 37 + 1));
}

/// Each option is answered with a few hundred bytes at most, however it is made.
fn most_said(heard: &[u8]) -> usize {
    18 + heard.len() / 16 * 600 + 600
}

const SHAPE: Shape = Shape {
    size_bytes: 1 << 20,
    block_bytes: 512,
    sector_bytes: 512,
    preferred_bytes: 4096,
    read_only: false,
};

fn offers() -> [Offer; 2] {
    let contexts = vec![Context::Allocation, Context::Dirty];
    let disk = Offer { name: "disk".into(), description: "a disk".into(), shape: SHAPE, contexts };
    let bare = Offer { name: "bare".into(), description: String::new(), shape: SHAPE, contexts: Vec::new() };
    [disk, bare]
}

/// A handshake over `bytes`, given in pieces of `cut`. What was said, what was left, how it ended.
fn shake_hands(bytes: &[u8], cut: usize) -> (Vec<u8>, usize, Step) {
    let offers = offers();
    let mut handshake = Handshake::new(&offers);
    let (mut said, mut pending, mut left) = (Vec::new(), Vec::new(), bytes);
    handshake.greet(&mut said);
    loop {
        let (taken, step) = handshake.advance(&pending, &mut said);
        assert!(taken <= pending.len());
        pending.drain(..taken);
        if step != Step::More {
            return (said, pending.len() + left.len(), step);
        }
        if taken > 0 {
            continue;
        }
        assert!(pending.len() < Handshake::MOST_INPUT_BYTES, "more is asked for than is ever needed");
        if left.is_empty() {
            return (said, pending.len(), step);
        }
        let (next, rest) = left.split_at(cut.min(left.len()));
        pending.extend(next);
        left = rest;
    }
}

/// Everything the intake makes of `bytes`, given in pieces of `cut`, with room for a request in two of three attempts.
fn take_in(bytes: &[u8], cut: usize) -> Vec<String> {
    let rules = Rules { shape: SHAPE, structured: true, has_contexts: true };
    let (mut intake, mut left, mut seen, mut attempts) = (Intake::new(rules, &[]), bytes, Vec::new(), 0);
    loop {
        let next = intake.next(|bytes| {
            assert!(bytes <= MAX_PAYLOAD_BYTES as usize, "a request may ask for {bytes} bytes of memory");
            attempts += 1;
            attempts % 3 != 0
        });
        match next {
            Next::NoRoom => {}
            Next::Lost => {
                seen.push("lost".into());
                return seen;
            }
            Next::Request(head, command, payload) => {
                let payload = payload.map(|payload| payload.to_vec());
                assert_eq!(payload.as_ref().map_or(0, Vec::len), head.payload_bytes() as usize);
                seen.push(format!("{head:?} {command:?} {payload:?}"));
            }
            Next::Refused(cookie, refusal) => seen.push(format!("{cookie} {refusal:?}")),
            Next::Nothing if left.is_empty() => return seen,
            Next::Nothing => {
                let cut = cut.min(left.len());
                let (came, _) =
                    intake.fill(|room| Ok(scatter(&left[..cut], room))).expect("memory does not fail");
                assert!(came > 0, "there is always room for more");
                left = &left[came..];
            }
        }
    }
}

fn scatter(mut bytes: &[u8], room: &mut [std::io::IoSliceMut<'_>]) -> usize {
    let before = bytes.len();
    for piece in room {
        let (head, tail) = bytes.split_at(piece.len().min(bytes.len()));
        piece[..head.len()].copy_from_slice(head);
        bytes = tail;
    }
    before - bytes.len()
}
