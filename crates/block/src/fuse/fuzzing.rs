//! Fuzzing of the file system: arbitrary requests, which the kernel would send through `/dev/fuse`, come through a socket. Each is answered
//! once, or not at all if its kind has no answer, and reaches the export only as a valid operation.

use std::sync::Arc;
use std::time::Duration;

use device::{ErrorKind, IoBuffer, IoError};
use fuser::{Config, INodeNo, Session, SessionACL};
use rustix::fd::OwnedFd;
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use super::OneFile;
use crate::export::{Context, Export, Extent, Operation, Reply, Shape, contract};

const INIT: u32 = 26;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const WRITE: u32 = 16;
const SETXATTR: u32 = 21;
const IOCTL: u32 = 39;
const DESTROY: u32 = 38;
/// `FUSE_FORGET` and `FUSE_BATCH_FORGET`: unless invalid, they have no answer.
const FORGET: [u32; 2] = [2, 42];

/// Sizes of `struct fuse_in_header`, `struct fuse_setxattr_in` and `struct fuse_out_header`.
const HEADER_BYTES: usize = 40;
const SETXATTR_BYTES: usize = 8;
const ANSWER_HEADER_BYTES: usize = 16;

/// The seconds and nanoseconds of the three times of `struct fuse_setattr_in`.
const SETATTR_TIMES: std::ops::Range<usize> = 32..68;

/// Longest answer that fits the socket, and longest body.
const MAX_ANSWERED_BYTES: u32 = 64 << 10;
const MAX_BODY_BYTES: usize = 32 << 10;

/// Executes requests decoded from `data`. Each has an operation code, an inode number, a length of two bytes (little-endian), and as many
/// bytes after the header. If the first byte of `data` is odd, the file is read-only.
pub fn check_requests(data: &[u8]) {
    let Some((&how, mut rest)) = data.split_first() else { return };
    let shape = Shape {
        size_bytes: 1 << 40,
        block_bytes: 1,
        sector_bytes: 512,
        preferred_bytes: 4096,
        read_only: how & 1 == 1,
    };
    let mut kernel = Kernel::mount(shape);
    while let Some((&[code, inode, low, high], after)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(after.len()).min(MAX_BODY_BYTES);
        let (body, next) = after.split_at(len);
        rest = next;
        // The kernel sends DESTROY once, at the end.
        if u32::from(code) != DESTROY {
            kernel.check_request(u32::from(code), u64::from(inode), body);
        }
    }
    kernel.unmount();
}

/// The side of the kernel.
struct Kernel {
    socket: OwnedFd,
    session: fuser::BackgroundSession,
    /// Identifier of the last request.
    unique: u64,
}

impl Kernel {
    fn mount(shape: Shape) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let (socket, server) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("there are sockets");
        let limit = Some(Duration::from_secs(20));
        set_socket_timeout(&socket, Timeout::Recv, limit).expect("a socket has a time limit");
        let files = OneFile {
            name: "disk".into(),
            export: Arc::new(Checked { shape }),
            inode: INodeNo(7),
            _end: None,
        };
        // Version 7.31, a read-ahead of 128 KiB, and FUSE_ASYNC_READ.
        let body: Vec<u8> = [7_u32, 31, 128 << 10, 1].into_iter().flat_map(u32::to_ne_bytes).collect();
        send(&socket, &request(INIT, 1, 0, &body), SendFlags::empty()).expect("the socket has space");
        let session = Session::from_fd(files, server, SessionACL::All, Config::default());
        let session = session.and_then(Session::spawn).expect("the handshake is valid");
        let kernel = Self { socket, session, unique: 1 };
        assert_eq!(kernel.answer(), 1);
        kernel
    }

    /// Sends a request and another one that has an answer, and checks that the former is answered at most once before.
    fn check_request(&mut self, code: u32, inode: u64, body: &[u8]) {
        let (unique, marker) = (self.unique + 1, self.unique + 2);
        self.unique = marker;
        let mut body = body.to_vec();
        correct_data_len(code, &mut body);
        if code == SETATTR {
            clear_times(&mut body);
        }
        for request in [request(code, unique, inode, &body), request(GETATTR, marker, 1, &[0; 16])] {
            send(&self.socket, &request, SendFlags::empty()).expect("the session serves requests");
        }
        let first = self.answer();
        if first == unique {
            assert_eq!(self.answer(), marker, "one answer to a request of kind {code}");
        } else {
            assert!(first == marker && FORGET.contains(&code), "a request of kind {code} has no answer");
        }
    }

    /// The identifier of the next answer.
    fn answer(&self) -> u64 {
        let mut buffer = vec![0; 2 * MAX_ANSWERED_BYTES as usize];
        let received = retry_on_intr(|| recv(&self.socket, &mut buffer[..], RecvFlags::empty()));
        let (len, _) = received.expect("there is an answer");
        assert!(len >= ANSWER_HEADER_BYTES, "an answer of {len} bytes");
        let length = u32::from_ne_bytes(*buffer.first_chunk().expect("it has a header"));
        assert_eq!(length as usize, len, "the length in the header");
        u64::from_ne_bytes(*buffer[8..].first_chunk().expect("it has a header"))
    }

    fn unmount(self) {
        let destroy = request(DESTROY, self.unique + 1, 0, &[]);
        send(&self.socket, &destroy, SendFlags::empty()).expect("the session serves requests");
        let ended = self.session.guard.join().expect("the session does not panic");
        ended.expect("the session ends without an error");
    }
}

/// Corrects the length of the data within a request. The kernel computes it, and fuser panics if it is wrong.
fn correct_data_len(code: u32, body: &mut [u8]) {
    let name_end =
        body.iter().skip(SETXATTR_BYTES).position(|&byte| byte == 0).map(|at| SETXATTR_BYTES + at + 1);
    let (field, data_start) = match code {
        WRITE => (16, Some(40)),
        IOCTL => (24, Some(32)),
        SETXATTR => (0, name_end),
        _ => return,
    };
    let data_bytes = data_start.and_then(|start| body.len().checked_sub(start));
    if let (Some(bytes), Some(field)) = (data_bytes, body.get_mut(field..field + 4)) {
        field.copy_from_slice(&u32::try_from(bytes).expect("a body is short").to_ne_bytes());
    }
}

/// Clears the times within a request to set attributes. fuser panics at those that `SystemTime` cannot hold; the test
/// `session_that_panics_is_unmounted` covers them.
fn clear_times(body: &mut [u8]) {
    let end = SETATTR_TIMES.end.min(body.len());
    if let Some(times) = body.get_mut(SETATTR_TIMES.start..end) {
        times.fill(0);
    }
}

/// A request with its header.
fn request(code: u32, unique: u64, inode: u64, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER_BYTES + body.len()).expect("a body is short");
    let mut bytes = Vec::with_capacity(len as usize);
    bytes.extend(len.to_ne_bytes());
    bytes.extend(code.to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(inode.to_ne_bytes());
    // User, group and process 0, and no extensions.
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend(body);
    bytes
}

/// An export that accepts any offset and length, and checks each operation. Long reads fail.
struct Checked {
    shape: Shape,
}

impl Export for Checked {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, operation: Operation, reply: Reply) {
        contract::assert_valid(&operation, &self.shape);
        reply.send(match operation {
            Operation::Read { len, .. } if len > MAX_ANSWERED_BYTES => {
                Err(IoError::new(ErrorKind::Medium, "too long for the socket"))
            }
            Operation::Read { len, .. } => Ok(Some(IoBuffer::zeroed(len as usize).into())),
            _ => Ok(None),
        });
    }

    fn extents(&self, _: Context, _: u64, _: u64, _: usize) -> Result<Vec<Extent>, IoError> {
        Err(IoError::new(ErrorKind::Unsupported, "a file system does not ask for extents"))
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn one(code: u8, inode: u8, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len()).expect("a body is short").to_le_bytes();
        [&[code, inode, len[0], len[1]], body].concat()
    }

    /// `struct fuse_read_in`; `fuse_write_in` and `fuse_fallocate_in` start alike.
    fn range(offset: u64, len: u32) -> Vec<u8> {
        [&0_u64.to_ne_bytes()[..], &offset.to_ne_bytes(), &len.to_ne_bytes(), &[0; 20]].concat()
    }

    #[test]
    fn read_longer_than_an_export_accepts_is_refused() {
        for len in [0, 1, 4096, 32 << 20, (32 << 20) + 1, 1 << 31, u32::MAX] {
            for offset in [0, 5, (1 << 40) - 1, 1 << 40, u64::MAX] {
                check_requests(&[&[0][..], &one(15, 2, &range(offset, len))].concat());
            }
        }
    }

    #[test]
    fn random_requests_are_answered_once_and_valid_for_the_export() {
        let mut random = StdRng::seed_from_u64(0xF05E);
        for turn in 0..300 {
            let mut data = vec![turn as u8];
            for _ in 0..20 {
                let mut body: Vec<u8> = (0..random.random_range(0..96)).map(|_| random.random()).collect();
                if random.random() {
                    body = [range(random.random::<u64>() >> 23, random.random()), body].concat();
                }
                data.extend(one(random.random_range(0..60), random.random_range(0..4), &body));
            }
            check_requests(&data);
        }
    }
}
