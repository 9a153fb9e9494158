//! What survives a restart of the server.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use cache::config::LogOptions;
use cache::{Cache, FlashConfig, RecoverAfter, SmallItems, block_on};
use device::{Device, VirtualClock};
use flashwright_server::protocol::{Exptime, StoreMode};
use flashwright_server::store::{Store, StoreOutcome, Value, Write};
use flashwright_server::{Address, Options};

use crate::setup::{Client, flash, options, serve, text};

const LIMIT: Duration = Duration::from_secs(20);

/// Keys of items of 1000 bytes: more than DRAM and the open regions of the log hold.
const KEYS: u32 = 16_000;

#[test]
fn closed_server_reopens_with_its_items() {
    let flash = flash(32 << 20);
    let server = serve(&flash, options());
    let mut client = Client::of(&server);
    assert_eq!(client.line("set flags 7 0 1\r\n1"), "STORED");
    assert_eq!(client.line("set brief 0 1000 1\r\n1"), "STORED");
    assert_eq!(client.line("ms stale 1\r\n1"), "HD");
    assert_eq!(client.line("md stale I"), "HD");
    assert_eq!(client.line("set gone 0 0 1\r\n1"), "STORED");
    assert_eq!(client.line("delete gone"), "DELETED");
    // More than DRAM holds, so that most of it is on flash before the end.
    for number in 0..2000 {
        let value = format!("{number:04000}");
        assert_eq!(client.line(&format!("set {number} 0 0 4000\r\n{value}")), "STORED");
    }
    let before = text(&client.replies(b"gets flags\r\n"));
    server.close(LIMIT).unwrap();

    let server = serve(&flash, options());
    let mut client = Client::of(&server);
    assert_eq!(text(&client.replies(b"gets flags\r\n")), before, "flags and CAS number are kept");
    let ttl: u32 = client.line("mg brief t").strip_prefix("HD t").unwrap().parse().unwrap();
    assert!((980..=1000).contains(&ttl), "{ttl}");
    assert!(client.line("mg stale v").starts_with("VA 1 X W"), "it is stale, and has no winner yet");
    assert_eq!(client.line("get gone"), "END");
    for number in 0..2000 {
        let found = text(&client.replies(format!("get {number}\r\n").as_bytes()));
        assert!(found.contains(&format!("{number:04000}")), "{number} is lost");
    }
    let old: u64 = before.lines().next().unwrap().split(' ').next_back().unwrap().parse().unwrap();
    assert_eq!(client.line("set flags 0 0 1\r\n2"), "STORED");
    let new: u64 = client.line("mg flags c").strip_prefix("HD c").unwrap().parse().unwrap();
    assert!(new > old, "{new} is not above {old}");
    server.close(LIMIT).unwrap();
}

#[test]
fn flushed_items_do_not_return_after_restart() {
    let flash = flash(32 << 20);
    let server = serve(&flash, options());
    let mut client = Client::of(&server);
    for number in 0..2000 {
        client.line(&format!("set {number} 0 0 4000\r\n{number:04000}"));
    }
    assert_eq!(client.line("flush_all"), "OK");
    server.close(LIMIT).unwrap();
    let server = serve(&flash, options());
    let mut client = Client::of(&server);
    for number in 0..2000 {
        assert_eq!(client.line(&format!("get {number}")), "END");
    }
}

/// A server in virtual time that recovers its items after a kill.
fn store(flash: &Arc<dyn Device>, clock: &Arc<VirtualClock>) -> Store {
    let mut config = FlashConfig::new(Arc::clone(flash));
    config.small_items = Some(SmallItems::Log(LogOptions::default()));
    config.recover_after = RecoverAfter::Kill;
    let builder = Cache::builder().dram_bytes(4 << 20).max_item_bytes(64 << 10);
    let cache = builder.flash_config(config).small_item_share(0.9).open().unwrap();
    block_on(Store::new(Arc::new(cache), Arc::clone(clock) as _))
}

fn set(store: &Store, number: u32) {
    let write = Write {
        mode: StoreMode::Set,
        key: &number.to_le_bytes(),
        flags: 0,
        exptime: Exptime(0),
        cas: 0,
        new_cas: None,
        invalidates: false,
        has_binary_key: false,
    };
    assert!(matches!(block_on(store.write(&write, Value::Bytes(&[7; 1000]))), StoreOutcome::Stored(_)));
}

/// How many of every eighth key are found.
fn found(store: &Store) -> usize {
    let keys = (0..KEYS).step_by(8);
    keys.filter(|number| block_on(store.get(&number.to_le_bytes())).is_some()).count()
}

#[test]
fn scheduled_flush_happens_once_after_a_close_or_a_kill() {
    for is_killed in [false, true] {
        let (flash, clock) = (flash(128 << 20), Arc::new(VirtualClock::default()));
        let first = store(&flash, &clock);
        (0..KEYS).for_each(|number| set(&first, number));
        block_on(first.flush_all(Exptime(100))).unwrap();
        let end = |store: Store| match is_killed {
            true => drop(store),
            false => store.cache().close_within(LIMIT).unwrap(),
        };
        end(first);
        let second = store(&flash, &clock);
        let warm = found(&second);
        assert!(warm > 200, "killed {is_killed}: {warm} items");
        end(second);
        let third = store(&flash, &clock);
        clock.advance_by(99_000_000_000);
        assert!(found(&third) > 100);
        clock.advance_by(1_000_000_000);
        assert_eq!(found(&third), 0, "killed {is_killed}");
        (0..KEYS).for_each(|number| set(&third, number));
        end(third);
        assert!(found(&store(&flash, &clock)) > 200, "killed {is_killed}: it is flushed once only");
    }
}

#[test]
fn recovered_items_are_those_of_clients_only() {
    let (flash, clock) = (flash(128 << 20), Arc::new(VirtualClock::default()));
    for clients_items in 0..3 {
        let store = store(&flash, &clock);
        assert_eq!(store.recovered_items(), clients_items as usize);
        set(&store, clients_items);
        // Stores an item of the server.
        block_on(store.persist());
        store.cache().close_within(LIMIT).unwrap();
    }
}

#[test]
fn close_answers_requests_that_have_arrived_and_ends_idle_connections() {
    let server = serve(&flash(32 << 20), options());
    let mut idle: Vec<Client> = (0..50).map(|_| Client::of(&server)).collect();
    let mut busy = Client::of(&server);
    assert_eq!(busy.line("set a 0 0 1\r\n1"), "STORED");
    idle.iter_mut().for_each(|client| assert_eq!(client.line("mn"), "MN"));
    server.close(LIMIT).unwrap();
    for client in &mut idle {
        assert!(client.receive_all().is_empty());
    }
    assert!(busy.receive_all().is_empty());
}

#[test]
fn unix_socket_is_served_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listen = vec![Address::Unix(path.clone())];
    // A socket that a killed server left.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = serve(&flash(32 << 20), Options { listen, ..options() });
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"version\r\nquit\r\n").unwrap();
    let reply = std::io::read_to_string(client).unwrap();
    assert!(reply.starts_with("VERSION "), "{reply}");
    server.close(LIMIT).unwrap();
    assert!(!path.exists());
}
