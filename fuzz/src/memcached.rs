//! The parser of memcached's text protocol, and a server on a socket that receives the same bytes.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cache::Cache;
use server::protocol::parse;
use server::{Address, Options, Server};

use crate::scratch::Scratch;

struct Served {
    server: Server,
    scratch: Scratch,
}

fn served() -> &'static Served {
    static SERVED: OnceLock<Served> = OnceLock::new();
    SERVED.get_or_init(|| {
        let scratch = Scratch::new();
        let cache = Cache::builder().dram_bytes(4 << 20).open().unwrap();
        let listen = vec![Address::Unix(scratch.path("memcached.sock"))];
        let options = Options { listen, threads: 1, ..Options::default() };
        let server = Server::start(Arc::new(cache), options).unwrap();
        Served { server, scratch }
    })
}

/// Parses each line by itself, and then sends all bytes to the server, which must reply and close the connection.
pub fn check(data: &[u8]) {
    for line in data.split(|&byte| byte == b'\n') {
        // An invalid line has a reply of one line.
        if let Err(invalid) = parse(line) {
            assert!(!invalid.reply.is_empty() && !invalid.reply.contains('\n'));
        }
    }
    let served = served();
    let mut socket = UnixStream::connect(served.scratch.path("memcached.sock")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let writer = socket.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The server may close the connection before it has read everything.
            let _ = (&writer).write_all(data);
            let _ = writer.shutdown(Shutdown::Write);
        });
        let mut replies = Vec::new();
        if let Err(error) = socket.read_to_end(&mut replies) {
            let is_closed = error.kind() == std::io::ErrorKind::ConnectionReset;
            assert!(is_closed, "the server neither replies nor closes the connection: {error}");
        }
    });
    while served.server.open_connections() > 0 {
        std::thread::yield_now();
    }
}
