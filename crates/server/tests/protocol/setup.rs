//! Servers and clients for the tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use cache::{Cache, FlashConfig};
use device::{Device, MemoryDevice};
use flashwright_server::{Address, Counter, Options, Server};

/// Time limit for a reply, generous for a busy machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Flash that outlives the servers on it.
pub fn flash(bytes: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(bytes))
}

/// Options of a server on a free port.
pub fn options() -> Options {
    Options { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 2, ..Options::default() }
}

/// A server on `flash` with little DRAM.
pub fn serve(flash: &Arc<dyn Device>, options: Options) -> Server {
    let mut config = FlashConfig::new(Arc::clone(flash));
    config.pending_bytes = 1 << 20;
    let builder = Cache::builder().dram_bytes(4 << 20).max_item_bytes(64 << 10);
    let cache = builder.flash_config(config).small_item_share(0.5).open().unwrap();
    Server::start(Arc::new(cache), options).unwrap()
}

/// A server without flash, with items of up to 1 MiB.
pub fn serve_in_memory(options: Options) -> Server {
    let cache = Cache::builder().dram_bytes(64 << 20).open().unwrap();
    Server::start(Arc::new(cache), options).unwrap()
}

/// Waits until a counter has the value `expected`: it may rise only after the client has the reply or the end of its connection.
#[track_caller]
pub fn assert_counter(server: &Server, counter: Counter, expected: u64) {
    while server.counter(counter) < expected {
        std::thread::yield_now();
    }
    assert_eq!(server.counter(counter), expected);
}

/// The TCP address of a server.
pub fn address(server: &Server) -> SocketAddr {
    match &server.addresses()[0] {
        Address::Tcp(address) => *address,
        Address::Unix(path) => panic!("{} is not TCP", path.display()),
    }
}

/// A client.
pub struct Client {
    socket: TcpStream,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(REPLY_TIMEOUT)).unwrap();
        socket.set_write_timeout(Some(REPLY_TIMEOUT)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket }
    }

    pub fn of(server: &Server) -> Self {
        Self::connect(address(server))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Sends, unless the server has closed the connection.
    pub fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Receives at least one byte; empty if the server has closed the connection.
    pub fn receive_some(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 64 << 10];
        match self.socket.read(&mut bytes) {
            Ok(count) => bytes.truncate(count),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => bytes.clear(),
            Err(error) => panic!("no reply: {error}"),
        }
        bytes
    }

    /// The replies to `requests`, and to a `version` behind them that marks the end.
    pub fn replies(&mut self, requests: &[u8]) -> Vec<u8> {
        self.send(requests);
        self.send(b"version\r\n");
        let mut replies = Vec::new();
        loop {
            let received = self.receive_some();
            replies.extend_from_slice(&received);
            let last_line = replies.strip_suffix(b"\r\n").map(|rest| rest.len()).and_then(|end| {
                let start = replies[..end].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
                replies[start..].starts_with(b"VERSION ").then_some(start)
            });
            if let Some(start) = last_line {
                replies.truncate(start);
                return replies;
            }
            assert!(!received.is_empty(), "the connection was closed after {:?}", text(&replies));
        }
    }

    /// Sends a request and returns the line of the reply.
    pub fn line(&mut self, request: &str) -> String {
        text(&self.replies(format!("{request}\r\n").as_bytes())).trim_end().to_owned()
    }

    /// Everything until the server closes the connection.
    pub fn receive_all(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let received = self.receive_some();
            if received.is_empty() {
                return all;
            }
            all.extend_from_slice(&received);
        }
    }
}

/// Replies as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether replies are as expected, where `#` stands for any number.
pub fn matches(expected: &str, replies: &[u8]) -> bool {
    let mut rest = replies;
    let mut pieces = expected.split('#');
    let Some(after) = rest.strip_prefix(pieces.next().unwrap_or("").as_bytes()) else { return false };
    rest = after;
    for piece in pieces {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let Some(after) = rest[digits..].strip_prefix(piece.as_bytes()).filter(|_| digits > 0) else {
            return false;
        };
        rest = after;
    }
    rest.is_empty()
}
