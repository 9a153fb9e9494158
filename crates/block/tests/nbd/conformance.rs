//! Conformance to the NBD protocol.

use std::io::{Read, Write};
use std::sync::{Arc, mpsc};

use device::file::OpenOptions;
use device::timer::SystemTimer;
use device::{Device, FileDevice, IoBuffer, IoError, MemoryDevice, Outcome, Request};
use flashwright_block::export::{
    ByteExport, Context, DeviceExport, Export, Extent, Operation, Reply, Shape, Tasks, VolumeExport,
};
use flashwright_block::nbd::Options;
use flashwright_block::volume::{Volume, VolumeConfig};
use parking_lot::Mutex;

use crate::client::*;
use crate::clients::both_ways;

const SIZE_BYTES: u64 = 8 << 20;

fn memory() -> Arc<dyn Export> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_bytes(SIZE_BYTES, 4096));
    Arc::new(ByteExport::new(Arc::new(DeviceExport::new(device))))
}

fn served() -> Served {
    Served::new(memory(), Options::default())
}

#[test]
fn simple_and_structured_replies_have_the_same_data() {
    let served = served();
    for structured in [false, true] {
        let mut client = Client::connect(&served.socket(), structured, &[]);
        assert_eq!(client.size_bytes, SIZE_BYTES);
        assert_eq!(client.flags & 0x80 != 0, structured, "DF is for structured replies");
        let data: Vec<u8> = (0..5000).map(|i| i as u8).collect();
        assert_eq!(client.call(WRITE, FUA, 12_345, 5000, &data).error, 0);
        assert_eq!(client.call(FLUSH, 0, 0, 0, &[]).error, 0);
        assert_eq!(client.call(READ, 0, 12_345, 5000, &[]).data, data);
        assert_eq!(client.call(WRITE_ZEROES, 0, 12_346, 4000, &[]).error, 0);
        let read = client.call(READ, FUA, 12_345, 5000, &[]).data;
        assert_eq!((read[0], read[1..4001] == [0; 4000], read[4001]), (0, true, data[4001]));
        assert_eq!(client.call(TRIM, 0, 8192, 4096, &[]).error, 0);
        assert_eq!(client.call(CACHE, 0, 1, 10_000, &[]).error, 0);
        client.send(DISCONNECT, 0, 0, 0, 0, &[]);
        assert!(client.is_closed_by_server());
    }
}

#[test]
fn client_gets_the_export_that_it_names() {
    let small: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
    let small: Arc<dyn Export> = Arc::new(DeviceExport::new(small));
    let served = Served::offering([("disk", memory()), ("small", small)], Options::default());
    let to = |name, contexts: &[&str]| Client::connect_to(name, &served.socket(), true, contexts);
    let (mut default, mut disk, mut small) =
        (to("", &[]), to("disk", &[]), to("small", &["base:allocation"]));
    assert_eq!([default.size_bytes, disk.size_bytes, small.size_bytes], [SIZE_BYTES, SIZE_BYTES, 1 << 20]);
    assert_eq!(default.call(WRITE, 0, 0, 512, &[1; 512]).error, 0);
    assert_eq!(small.call(WRITE, 0, 0, 512, &[2; 512]).error, 0);
    assert_eq!(disk.call(READ, 0, 0, 512, &[]).data, [1; 512]);
    assert_eq!(small.call(READ, 0, 0, 512, &[]).data, [2; 512]);
    assert_eq!(small.call(READ, 0, 1 << 20, 512, &[]).error, 22, "past its own end");
    assert_eq!(small.call(BLOCK_STATUS, 0, 0, 4096, &[]).error, 0);
    let mut asking = Client::greeted(&served.socket());
    asking.socket.write_all(&3u32.to_be_bytes()).unwrap();
    let listed = [asking.ask(3, &[]), asking.result(), asking.result()];
    assert_eq!(listed.map(|(kind, _)| kind), [2, 2, 1]);
}

#[test]
fn uncached_export_shows_writes_of_others_and_caches_nothing() {
    let (volume, [usual, uncached]) = both_ways();
    let served = Served::offering([("disk", usual), ("uncached", uncached)], Options::default());
    let to = |name| Client::connect_to(name, &served.socket(), true, &[]);
    let (mut usual, mut backup) = (to("disk"), to("uncached"));
    assert_eq!(backup.call(WRITE, 0, 40_961, 5000, &[1; 5000]).error, 0);
    assert_eq!(backup.call(READ, 0, 0, 65_536, &[]).data[40_961..45_961], [1; 5000]);
    assert_eq!(volume.stats().held_blocks, 0);
    assert_eq!(usual.call(WRITE, 0, 40_962, 1, &[2]).error, 0);
    assert!(volume.stats().held_blocks > 0);
    assert_eq!(backup.call(READ, 0, 40_961, 3, &[]).data, [1, 2, 1]);
}

/// A device in memory that completes blocking requests one by one on demand, and counts them.
struct Held {
    memory: MemoryDevice,
    came: Mutex<mpsc::Sender<()>>,
    go: Mutex<mpsc::Receiver<()>>,
}

impl Device for Held {
    device::forward_device!(memory: geometry, submit, counters);

    fn execute(&self, request: Request) -> Outcome {
        self.came.lock().send(()).unwrap();
        self.go.lock().recv().unwrap();
        self.memory.execute(request)
    }
}

/// The connection's thread makes the transfer of a single request itself. A client with several requests in flight must not wait for
/// such blocking transfers.
#[test]
fn single_request_is_made_inline_and_concurrent_ones_are_not() {
    let (came, has_come) = mpsc::channel();
    let (let_go, go) = mpsc::channel();
    let held = Held { memory: MemoryDevice::new(16 << 20), came: Mutex::new(came), go: Mutex::new(go) };
    let flash = Tasks::with_inline_transfers(Arc::new(held));
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(8 << 20));
    let volume = pollster::block_on(async {
        let config = VolumeConfig { ways: 64, ..VolumeConfig::default() };
        Volume::create(&flash, &disk, &config, 1).await.unwrap();
        let volume = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap().0;
        volume.write(0, IoBuffer::copy_of(&[1; 4096]).into(), true).await.unwrap();
        volume
    });
    let served = Served::new(Arc::new(VolumeExport::new(volume).unwrap()), Options::default());
    let mut client = Client::connect(&served.socket(), false, &[]);
    for cookie in 0..3 {
        client.send(READ, 0, cookie, 0, 4096, &[]);
        has_come.recv().unwrap();
        if cookie == 2 {
            // While the thread waits for the device.
            client.send(READ, 0, 3, 0, 4096, &[]);
        }
        let_go.send(()).unwrap();
        assert_eq!(client.reply(4096).data, [1; 4096]);
    }
    assert_eq!(client.reply(4096).cookie, 3);
    for cookie in 4..60 {
        client.send(READ, 0, cookie, 0, 4096, &[]);
        assert_eq!(client.reply(4096).cookie, cookie);
    }
    assert!(has_come.try_recv().is_err(), "the others went their own way");
}

/// A file in memory completes many requests together; the replies are sent in small groups.
#[test]
fn burst_of_reads_followed_by_disconnect_is_answered_completely() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options =
        OpenOptions { buffered: true, size_bytes: Some(SIZE_BYTES), create: true, ..OpenOptions::default() };
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(file.path(), &options).unwrap());
    for block in 0..64 {
        let data = IoBuffer::copy_of(&[block; 4096]);
        device.write(u64::from(block) * 4096, data).wait().unwrap();
    }
    let export = ByteExport::new(Arc::new(DeviceExport::new(device)));
    let served = Served::new(Arc::new(export), Options::default());
    for round in 0..50 {
        let mut client = Client::connect(&served.socket(), round % 2 == 0, &[]);
        let mut requested: Vec<u8> = (0..64).flat_map(|it| request(READ, 0, it, it * 4096, 4096)).collect();
        requested.extend(request(DISCONNECT, 0, 64, 0, 0));
        client.socket.write_all(&requested).unwrap();
        let mut blocks: Vec<u64> = (0..64)
            .map(|_| {
                let reply = client.reply(4096);
                assert_eq!((reply.error, &reply.data[..]), (0, &[reply.cookie as u8; 4096][..]));
                reply.cookie
            })
            .collect();
        blocks.sort_unstable();
        assert_eq!(blocks, (0..64).collect::<Vec<_>>());
        assert!(client.is_closed_by_server());
    }
}

#[test]
fn invalid_request_is_refused_and_the_next_one_served() {
    let served = served();
    let (einval, enospc, eoverflow, enotsup) = (22, 28, 75, 95);
    for structured in [false, true] {
        let mut client = Client::connect(&served.socket(), structured, &[]);
        let mut refused = |command, flags, offset, length, payload: &[u8]| {
            let refused = client.call(command, flags, offset, length, payload).error;
            let read = client.call(READ, 0, 0, 1, &[]);
            assert_eq!((read.error, read.data), (0, vec![0]), "in step after {command} {flags}");
            refused
        };
        assert_eq!(refused(READ, 0, SIZE_BYTES - 1, 2, &[]), einval);
        assert_eq!(refused(READ, 0, u64::MAX, 2, &[]), einval);
        assert_eq!(refused(READ, 0, 0, 0, &[]), einval);
        assert_eq!(refused(READ, 0, 0, (32 << 20) + 1, &[]), eoverflow);
        assert_eq!(refused(READ, 1 << 9, 0, 1, &[]), einval);
        assert_eq!(refused(WRITE, 0, SIZE_BYTES - 1, 70_000, &[1; 70_000]), enospc);
        assert_eq!(refused(WRITE, 0, 0, (32 << 20) + 1, &vec![1; (32 << 20) + 1]), einval);
        assert_eq!(refused(WRITE, 1 << 5, 0, 3, &[1; 3]), einval);
        assert_eq!(refused(TRIM, 0, SIZE_BYTES, 1, &[]), einval, "nothing is to be stored");
        assert_eq!(refused(WRITE_ZEROES, 0, SIZE_BYTES, 1, &[]), enospc);
        assert_eq!(refused(WRITE_ZEROES, FAST_ZERO | NO_HOLE, 0, 4096, &[]), enotsup);
        assert_eq!(refused(WRITE_ZEROES, FAST_ZERO, 0, 4096, &[]), 0, "memory is quickly trimmed to zeros");
        assert_eq!(refused(FLUSH, 0, 1, 0, &[]), einval);
        assert_eq!(refused(BLOCK_STATUS, 0, 0, 10, &[]), einval, "no context was set");
        assert_eq!(refused(99, 0, 0, 0, &[]), einval);
        if !structured {
            assert_eq!(refused(READ, DF, 0, 1, &[]), einval);
        }
    }
}

#[test]
fn largest_requests_cover_a_large_export() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let served = Served::new(Arc::new(DeviceExport::new(device)), Options::default());
    let mut client = Client::connect(&served.socket(), true, &[]);
    let data: Vec<u8> = (0..32u32 << 20).map(|i| (i / 1000) as u8).collect();
    assert_eq!(client.call(WRITE, 0, 512, 32 << 20, &data).error, 0);
    assert!(client.call(READ, DF, 512, 32 << 20, &[]).data == data);
}

#[test]
fn unknown_options_are_refused_and_skipped() {
    const ACK: u32 = 1;
    const SERVER: u32 = 2;
    const UNSUPPORTED: u32 = 1 << 31 | 1;
    const INVALID: u32 = 1 << 31 | 3;
    const UNKNOWN: u32 = 1 << 31 | 6;
    let served = served();
    let mut client = Client::greeted(&served.socket());
    client.socket.write_all(&3u32.to_be_bytes()).unwrap();
    assert_eq!(client.ask(3, &[]), (SERVER, b"\0\0\0\x04disk".to_vec()));
    assert_eq!(client.result().0, ACK);
    assert_eq!(client.ask(5, &[]).0, UNSUPPORTED, "no TLS");
    assert_eq!(client.ask(77, &[1; 1000]).0, UNSUPPORTED);
    assert_eq!(client.ask(7, b"\0\0\0\x05other\0\0").0, UNKNOWN);
    assert_eq!(client.ask(7, b"\0\0\0\x05disk\0\0").0, INVALID);
    assert_eq!(
        client.ask(10, b"\0\0\0\0\0\0\0\x01\0\0\0\x05base:").0,
        INVALID,
        "simple replies have no contexts"
    );
    assert_eq!(client.ask(9, b"\0\0\0\0\0\0\0\0"), (4, b"\0\0\0\0base:allocation".to_vec()));
    assert_eq!(client.result().0, ACK);
    assert_eq!(client.ask(2, &[]).0, ACK);
    assert!(client.is_closed_by_server());
}

#[test]
fn export_name_option_starts_transmission() {
    let served = served();
    for no_zeroes in [false, true] {
        let mut client = Client::greeted(&served.socket());
        client.socket.write_all(&(1 | u32::from(no_zeroes) << 1).to_be_bytes()).unwrap();
        client.socket.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk").unwrap();
        let mut export = vec![0; if no_zeroes { 10 } else { 134 }];
        client.socket.read_exact(&mut export).unwrap();
        assert_eq!(export[..8], SIZE_BYTES.to_be_bytes());
        assert_eq!(client.call(READ, 0, 5, 5, &[]).data, [0; 5]);
    }
    let mut client = Client::greeted(&served.socket());
    client.socket.write_all(b"\0\0\0\x01IHAVEOPT\0\0\0\x01\0\0\0\x04dish").unwrap();
    assert!(client.is_closed_by_server(), "there is no other way to say that no export has this name");
}

/// Keeps operations until the test releases them; supports extents.
#[derive(Default)]
struct Keeper {
    kept: Mutex<Vec<(Operation, Reply)>>,
}

impl Export for Keeper {
    fn shape(&self) -> Shape {
        Shape {
            size_bytes: SIZE_BYTES,
            block_bytes: 512,
            sector_bytes: 512,
            preferred_bytes: 4096,
            read_only: false,
        }
    }

    fn submit(&self, operation: Operation, reply: Reply) {
        self.kept.lock().push((operation, reply));
    }

    fn contexts(&self) -> &[Context] {
        &Context::ALL
    }

    /// Every other block of 4 KiB has data; reports one extent past the range.
    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError> {
        let flags = |i: u64| (i as u32 + context as u32) % 2;
        let blocks = offset / 4096..(offset + len).div_ceil(4096);
        Ok(blocks.take(most).map(|i| Extent { len: 4096, flags: flags(i) }).collect())
    }
}

#[test]
fn replies_follow_the_order_of_completion() {
    let keeper = Arc::new(Keeper::default());
    let served = Served::new(keeper.clone(), Options::default());
    let mut client = Client::connect(&served.socket(), true, &[]);
    for cookie in 0..10 {
        client.send(READ, 0, cookie, cookie * 512, 512, &[]);
    }
    while keeper.kept.lock().len() < 10 {
        std::thread::yield_now();
    }
    for cookie in (0..10).rev() {
        let (Operation::Read { offset, len }, reply) = keeper.kept.lock().pop().unwrap() else {
            panic!("a read was requested for")
        };
        let bytes = vec![(offset / 512) as u8; len as usize];
        reply.send(Ok(Some(IoBuffer::copy_of(&bytes).into())));
        let reply = client.reply(512);
        assert_eq!((reply.cookie, reply.data), (cookie, vec![cookie as u8; 512]));
    }
}

#[test]
fn extents_of_each_context_are_reported() {
    let served = Served::new(Arc::new(Keeper::default()), Options::default());
    let names = ["base:allocation", "flashwright:cached", "nobody:knows"];
    let mut client = Client::connect(&served.socket(), true, &names);
    let reply = client.call(BLOCK_STATUS, 0, 4096, 8192, &[]);
    assert_eq!(reply.status, [(0, vec![(4096, 1), (4096, 0)]), (2, vec![(4096, 1), (4096, 0)])]);
    let reply = client.call(BLOCK_STATUS, REQ_ONE, 4096, 512, &[]);
    assert_eq!(reply.status, [(0, vec![(512, 1)]), (2, vec![(512, 1)])], "no more than was requested about");
}

#[test]
fn stopping_server_answers_requests_in_flight() {
    let keeper = Arc::new(Keeper::default());
    let Served { server, directory } = Served::new(keeper.clone(), Options::default());
    let socket = directory.path().join("nbd.sock");
    let mut client = Client::connect(&socket, true, &[]);
    let mut idle = Client::connect(&socket, true, &[]);
    client.send(WRITE, 0, 7, 0, 512, &[1; 512]);
    while keeper.kept.lock().is_empty() {
        std::thread::yield_now();
    }
    let stopping = std::thread::Builder::new().spawn(move || server.stop()).unwrap();
    assert!(idle.is_closed_by_server());
    assert!(!stopping.is_finished(), "a write is still in flight");
    let (_, reply) = keeper.kept.lock().pop().unwrap();
    reply.send(Ok(None));
    assert_eq!(client.reply(0), ClientReply { cookie: 7, ..ClientReply::default() });
    assert!(client.is_closed_by_server());
    stopping.join().unwrap();
    assert!(!socket.exists());
}
