//! A minimal NBD client that can send any request.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use flashwright_block::export::Export;
use flashwright_block::nbd::{Address, Offered, Options, Server};

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const NO_HOLE: u16 = 2;
pub const FAST_ZERO: u16 = 16;

/// A server on a socket in a temporary directory.
pub struct Served {
    pub server: Server,
    pub directory: tempfile::TempDir,
}

impl Served {
    pub fn new(export: Arc<dyn Export>, options: Options) -> Self {
        Self::offering([("disk", export)], options)
    }

    /// Serves exports under names; the first is the default.
    pub fn offering<const N: usize>(exports: [(&str, Arc<dyn Export>); N], options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Unix(directory.path().join("nbd.sock"));
        let offered =
            exports.map(|(name, export)| Offered { name: name.into(), description: String::new(), export });
        Self { server: Server::start(&address, offered.into(), options).unwrap(), directory }
    }

    pub fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("nbd.sock")
    }

    pub fn uri(&self) -> String {
        self.server.address().to_string()
    }
}

pub struct Client {
    pub socket: UnixStream,
    structured: bool,
    pub size_bytes: u64,
    pub flags: u16,
}

/// A reply, assembled from its chunks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClientReply {
    pub cookie: u64,
    pub error: u32,
    pub data: Vec<u8>,
    /// Context identifier, then (length, flags) of each extent.
    pub status: Vec<(u32, Vec<(u32, u32)>)>,
}

impl Client {
    /// Connects to the default export, with structured replies and `contexts` if requested.
    pub fn connect(path: &Path, structured: bool, contexts: &[&str]) -> Self {
        Self::connect_to("", path, structured, contexts)
    }

    /// Connects to the export `name`.
    pub fn connect_to(name: &str, path: &Path, structured: bool, contexts: &[&str]) -> Self {
        Self::over(UnixStream::connect(path).unwrap(), name, structured, contexts)
    }

    /// Connects over an existing socket of any kind.
    pub fn over(socket: impl Into<OwnedFd>, name: &str, structured: bool, contexts: &[&str]) -> Self {
        let mut counted = (name.len() as u32).to_be_bytes().to_vec();
        counted.extend(name.as_bytes());
        let mut client = Self::greeted_over(UnixStream::from(socket.into()));
        client.socket.write_all(&3u32.to_be_bytes()).unwrap();
        if structured {
            assert_eq!(client.ask(8, &[]).0, 1, "structured replies");
            client.structured = true;
        }
        if !contexts.is_empty() {
            let mut query = counted.clone();
            query.extend((contexts.len() as u32).to_be_bytes());
            for context in contexts {
                query.extend((context.len() as u32).to_be_bytes());
                query.extend(context.as_bytes());
            }
            let mut result = client.ask(10, &query);
            while result.0 == 4 {
                result = client.result();
            }
            assert_eq!(result.0, 1, "contexts");
        }
        let mut result = client.ask(7, &[&counted[..], &[0; 2]].concat());
        while result.0 == 3 {
            if result.1[..2] == [0, 0] {
                client.size_bytes = u64::from_be_bytes(result.1[2..10].try_into().unwrap());
                client.flags = u16::from_be_bytes(result.1[10..12].try_into().unwrap());
            }
            result = client.result();
        }
        assert_eq!(result.0, 1, "go");
        client
    }

    /// Connects and reads the greeting.
    pub fn greeted(path: &Path) -> Self {
        Self::greeted_over(UnixStream::connect(path).unwrap())
    }

    pub fn over_greeted(socket: impl Into<OwnedFd>) -> Self {
        Self::greeted_over(UnixStream::from(socket.into()))
    }

    fn greeted_over(mut socket: UnixStream) -> Self {
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        Self { socket, structured: false, size_bytes: 0, flags: 0 }
    }

    pub fn ask(&mut self, option: u32, data: &[u8]) -> (u32, Vec<u8>) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.socket.write_all(&bytes).unwrap();
        self.result()
    }

    pub fn result(&mut self) -> (u32, Vec<u8>) {
        let mut head = [0; 20];
        self.socket.read_exact(&mut head).unwrap();
        assert_eq!(head[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
        let mut data = vec![0; u32::from_be_bytes(head[16..].try_into().unwrap()) as usize];
        self.socket.read_exact(&mut data).unwrap();
        (u32::from_be_bytes(head[12..16].try_into().unwrap()), data)
    }

    pub fn send(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, length: u32, payload: &[u8]) {
        let head = request(command, flags, cookie, offset, length);
        self.socket.write_all(&[&head, payload].concat()).unwrap();
    }

    /// Sends a request and waits for the reply. For a read, `length` bytes of data follow.
    pub fn call(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> ClientReply {
        let cookie = 0x1234_5678_9abc_def0 ^ offset;
        self.send(command, flags, cookie, offset, length, payload);
        let reply = self.reply(if command == READ { length } else { 0 });
        assert_eq!(reply.cookie, cookie);
        reply
    }

    /// Reads the next reply. A simple reply does not contain its length, so the caller gives the length of the read.
    pub fn reply(&mut self, read_bytes: u32) -> ClientReply {
        let mut reply = ClientReply::default();
        if !self.structured {
            assert_eq!(self.number(4), 0x6744_6698);
            (reply.error, reply.cookie) = (self.number(4) as u32, self.number(8));
            reply.data = self.bytes(if reply.error == 0 { read_bytes as usize } else { 0 });
            return reply;
        }
        loop {
            assert_eq!(self.number(4), 0x668e_33ef);
            let (flags, kind, cookie) = (self.number(2), self.number(2), self.number(8));
            reply.cookie = cookie;
            let len = self.number(4) as usize;
            let payload = self.bytes(len);
            match kind {
                0 => assert_eq!(payload, []),
                1 => reply.data.extend(&payload[8..]),
                5 => reply.status.push(status(&payload)),
                _ => reply.error = u32::from_be_bytes(payload[..4].try_into().unwrap()),
            }
            if flags == 1 {
                return reply;
            }
        }
    }

    /// Whether the server closes the connection without sending more.
    pub fn is_closed_by_server(&mut self) -> bool {
        matches!(self.socket.read(&mut [0; 1]), Ok(0) | Err(_))
    }

    fn number(&mut self, len: usize) -> u64 {
        self.bytes(len).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }
}

pub fn request(command: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

fn status(payload: &[u8]) -> (u32, Vec<(u32, u32)>) {
    let numbers: Vec<u32> =
        payload.chunks(4).map(|number| u32::from_be_bytes(number.try_into().unwrap())).collect();
    (numbers[0], numbers[1..].chunks(2).map(|extent| (extent[0], extent[1])).collect())
}
