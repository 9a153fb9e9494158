//! Fuzzing of the protocol: arbitrary bytes cause no panic, stay within memory limits, and give the same result however they are
//! split. Used by tests with random bytes and by the fuzz targets.

use super::handshake::{Handshake, Offer, Step};
use super::receive_buffer::{Next, ReceiveBuffer};
use super::transmission::Rules;
use super::wire::MAX_PAYLOAD_BYTES;
use crate::export::{Context, Shape};

#[cfg(test)]
mod tests;

/// The first byte determines how the rest is split.
pub fn check_handshake(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let whole = run_handshake(bytes, bytes.len().max(1));
    assert_eq!(whole, run_handshake(bytes, usize::from(cut % 50) + 1));
    assert!(
        whole.0.len() <= max_output_bytes(bytes),
        "{} bytes of output for {} of input",
        whole.0.len(),
        bytes.len()
    );
}

/// The first byte determines how the rest is split.
pub fn check_requests(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else { return };
    assert_eq!(parse_requests(bytes, usize::MAX), parse_requests(bytes, usize::from(cut) * 37 + 1));
}

/// Upper bound of the reply: each option is answered with a few hundred bytes.
fn max_output_bytes(input: &[u8]) -> usize {
    18 + input.len() / 16 * 600 + 600
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
fn run_handshake(bytes: &[u8], cut: usize) -> (Vec<u8>, usize, Step) {
    let offers = offers();
    let mut handshake = Handshake::new(&offers);
    let (mut output, mut pending, mut left) = (Vec::new(), Vec::new(), bytes);
    handshake.greet(&mut output);
    loop {
        let (taken, step) = handshake.advance(&pending, &mut output);
        assert!(taken <= pending.len());
        pending.drain(..taken);
        if step != Step::More {
            return (output, pending.len() + left.len(), step);
        }
        if taken > 0 {
            continue;
        }
        assert!(pending.len() < Handshake::MAX_INPUT_BYTES, "the handshake needs more input than its limit");
        if left.is_empty() {
            return (output, pending.len(), step);
        }
        let (next, rest) = left.split_at(cut.min(left.len()));
        pending.extend(next);
        left = rest;
    }
}

/// The requests that the parser finds in `bytes`, given in parts of `cut`, with memory available in two of three attempts.
fn parse_requests(bytes: &[u8], cut: usize) -> Vec<String> {
    let rules = Rules { shape: SHAPE, structured: true, has_contexts: true };
    let (mut intake, mut left, mut seen, mut attempts) =
        (ReceiveBuffer::new(rules, &[]), bytes, Vec::new(), 0);
    loop {
        let next = intake.next(|bytes| {
            assert!(bytes <= MAX_PAYLOAD_BYTES as usize, "a request may ask for {bytes} bytes of memory");
            attempts += 1;
            attempts % 3 != 0
        });
        match next {
            Next::NoSpace => {}
            Next::Invalid => {
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
                let (received, _) =
                    intake.fill(|buffers| Ok(scatter(&left[..cut], buffers))).expect("memory does not fail");
                assert!(received > 0, "there is always space for more");
                left = &left[received..];
            }
        }
    }
}

fn scatter(mut bytes: &[u8], buffers: &mut [std::io::IoSliceMut<'_>]) -> usize {
    let before = bytes.len();
    for buffer in buffers {
        let (head, tail) = bytes.split_at(buffer.len().min(bytes.len()));
        buffer[..head.len()].copy_from_slice(head);
        bytes = tail;
    }
    before - bytes.len()
}
