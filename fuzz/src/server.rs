//! The NBD server on a socket with an arbitrary client.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use block::export::DeviceExport;
use block::nbd::{Address, Offered, Options, Server};
use device::MemoryDevice;

use crate::scratch::Scratch;

struct Served {
    server: Server,
    scratch: Scratch,
}

fn served() -> &'static Served {
    static SERVED: OnceLock<Served> = OnceLock::new();
    SERVED.get_or_init(|| {
        let scratch = Scratch::new();
        let export = Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(1 << 20))));
        let offered = Offered { name: "disk".into(), description: String::new(), export };
        let options = Options { total_bytes: 40 << 20, bytes_per_connection: 36 << 20, ..Options::default() };
        let server = Server::start(&Address::Unix(scratch.path("nbd.sock")), vec![offered], options).unwrap();
        Served { server, scratch }
    })
}

/// Sends all bytes and closes the sending side. The server must answer, close the connection and release its memory. If the first byte is
/// odd, the bytes follow a valid handshake.
pub fn check(data: &[u8]) {
    let served = served();
    let Some((&how, bytes)) = data.split_first() else { return };
    let mut socket = UnixStream::connect(served.scratch.path("nbd.sock")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let writer = socket.try_clone().unwrap();
    let sent = if how & 1 == 1 { [SOUND, bytes].concat() } else { bytes.to_vec() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The server can close the connection earlier.
            let _ = (&writer).write_all(&sent);
            let _ = writer.shutdown(Shutdown::Write);
        });
        let mut replies = Vec::new();
        if let Err(error) = socket.read_to_end(&mut replies) {
            let is_closed = error.kind() == std::io::ErrorKind::ConnectionReset;
            assert!(is_closed, "the server neither replies nor closes the connection: {error}");
        }
    });
    while served.server.counts().open > 0 {
        std::thread::yield_now();
    }
    assert_eq!(served.server.counts().bytes_in_flight, 0, "no request memory remains allocated");
}

/// Client flags, structured replies, and GO for the default export.
const SOUND: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
