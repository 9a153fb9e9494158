//! Fuzzing of the protocol: arbitrary bytes cause no panic, stay within memory limits, and give the same result however they are
//! split. Used by tests with random bytes and by the fuzz targets.

use super::handshake::{Handshake, Offer, Step};
use super::intake::{Intake, Next};
use super::transmission::Rules;
use super::wire::MAX_PAYLOAD_BYTES;
use crate::export::{Context, Shape};

#[cfg(test)]
mod tests;

/// The first byte determines how the rest is split.
pub fn check_handshake(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let whole = shake_hands(bytes, bytes.len().max(1));
    assert_eq!(whole, shake_hands(bytes, usize::from(cut % 50) + 1));
    assert!(whole.0.len() <= most_said(bytes), "{} bytes said to {}", whole.0.len(), bytes.len());
}

/// The first byte determines how the rest is split.
pub fn check_requests(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else { return };
    assert_eq!(take_in(bytes, usize::MAX), take_in(bytes, usize::from(cut) * 37 + 1));
}

/// Upper bound of the reply: each option is answered with a few hundred bytes.
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

/// Runs a handshake over `bytes`, given in parts of `cut`. Returns the output, the number of unused bytes, and the last step.
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

/// The requests that the parser finds in `bytes`, given in parts of `cut`, with memory available in two of three attempts.
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
            Next::NoSpace => {}
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
