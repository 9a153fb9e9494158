//! Three servers behind twemproxy (`nutcracker`) and behind pymemcache's `HashClient`: one stops and starts again under load.
#![allow(clippy::disallowed_methods, reason = "the test waits for processes")]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{serve_with, stop};

const SERVERS: usize = 3;
const KEYS: usize = 3000;

/// A process that is killed at the end of the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Servers with a directory and a port each.
struct Fleet {
    directory: tempfile::TempDir,
    ports: [u16; SERVERS],
    servers: [Option<Child>; SERVERS],
}

impl Fleet {
    fn start() -> Self {
        let mut fleet = Self {
            directory: tempfile::tempdir().unwrap(),
            ports: std::array::from_fn(|_| free_port()),
            servers: [const { None }; SERVERS],
        };
        (0..SERVERS).for_each(|number| fleet.start_one(number));
        fleet
    }

    fn start_one(&mut self, number: usize) {
        let directory = self.directory.path().join(number.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let address = format!("127.0.0.1:{}", self.ports[number]);
        self.servers[number] = Some(serve_with(&directory, &address, &[]));
    }

    fn stop_one(&mut self, number: usize) {
        stop(self.servers[number].take().unwrap());
    }

    fn items(&self, number: usize) -> usize {
        let mut client = TcpStream::connect(("127.0.0.1", self.ports[number])).unwrap();
        client.write_all(b"stats\r\nquit\r\n").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("STAT curr_items ")).unwrap();
        line.parse().unwrap()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for server in self.servers.iter_mut().flatten() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts twemproxy in front of the fleet. It does not redirect keys of a stopped server to another one.
fn twemproxy(fleet: &Fleet) -> Option<(Ending, u16)> {
    let (port, statistics) = (free_port(), free_port());
    let mut text = format!(
        "cache:\n  listen: 127.0.0.1:{port}\n  hash: murmur\n  distribution: ketama\n  auto_eject_hosts: false\n  \
         timeout: 2000\n  server_retry_timeout: 100\n  servers:\n"
    );
    for (server, name) in fleet.ports.iter().zip(["a", "b", "c"]) {
        let _ = writeln!(text, "    - 127.0.0.1:{server}:1 {name}");
    }
    let file = fleet.directory.path().join("nutcracker.yml");
    std::fs::write(&file, text).unwrap();
    let started = Command::new("nutcracker")
        .arg("-c")
        .arg(&file)
        .args(["-s", &statistics.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let proxy = match started {
        Ok(child) => Ending(child),
        Err(error) => {
            println!("SKIPPED: nutcracker: {error}");
            return None;
        }
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "nutcracker does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some((proxy, port))
}

/// A client of the proxy, with the valid versions of each key: the last acknowledged one, and those of sets without a
/// reply.
struct Load {
    client: BufReader<TcpStream>,
    versions: Vec<Vec<u32>>,
    random: StdRng,
}

impl Load {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.client.read_line(&mut line).unwrap();
        line
    }

    /// Stores a new version of a key.
    fn set(&mut self, key: usize) {
        let version = self.random.random();
        let value = value(key, version);
        let request = format!("set key{key} 0 0 {}\r\n{value}\r\n", value.len());
        self.client.get_mut().write_all(request.as_bytes()).unwrap();
        let reply = self.line();
        if reply == "STORED\r\n" {
            self.versions[key].clear();
        }
        assert!(reply == "STORED\r\n" || reply.starts_with("SERVER_ERROR"), "{reply}");
        self.versions[key].push(version);
    }

    /// Whether the key is found.
    fn get(&mut self, key: usize) -> bool {
        self.client.get_mut().write_all(format!("get key{key}\r\n").as_bytes()).unwrap();
        let head = self.line();
        if !head.starts_with("VALUE") {
            assert!(head == "END\r\n" || head.starts_with("SERVER_ERROR"), "{head}");
            return false;
        }
        let (found, end) = (self.line(), self.line());
        assert_eq!(end, "END\r\n");
        let valid = self.versions[key].iter().any(|version| found.trim_end() == value(key, *version));
        assert!(valid, "key{key} has a stale or wrong value: {found}");
        true
    }

    /// The share of `requests` random gets that are found. One in ten requests stores a new version instead.
    fn hit_ratio(&mut self, requests: usize) -> f64 {
        let (mut gets, mut hits) = (0, 0);
        for _ in 0..requests {
            let key = self.random.random_range(0..KEYS);
            if self.random.random_range(0..10) == 0 {
                self.set(key);
                continue;
            }
            gets += 1;
            hits += usize::from(self.get(key));
        }
        hits as f64 / f64::from(gets)
    }
}

fn value(key: usize, version: u32) -> String {
    format!("{key}-{version}-{}", "x".repeat(key % 3000))
}

#[test]
fn stopped_server_behind_twemproxy_loses_its_share_of_hits_and_is_warm_again() {
    let mut fleet = Fleet::start();
    let Some((_proxy, port)) = twemproxy(&fleet) else { return };
    let mut load = Load {
        client: BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap()),
        versions: vec![Vec::new(); KEYS],
        random: StdRng::seed_from_u64(1),
    };
    (0..KEYS).for_each(|key| load.set(key));
    assert_eq!(load.hit_ratio(3000), 1.0);
    let items: Vec<usize> = (0..SERVERS).map(|number| fleet.items(number)).collect();
    let stopped = (0..SERVERS).min_by_key(|number| items[*number]).unwrap();
    let share = items[stopped] as f64 / KEYS as f64;
    fleet.stop_one(stopped);
    let ratio = load.hit_ratio(6000);
    println!("items {items:?}; hits with a server stopped: {ratio:.4}");
    assert!(1.0 - ratio <= share + 0.02, "{ratio}: the server had {share} of the items");
    assert!(1.0 - ratio <= 1.0 / 3.0 + 0.01, "{ratio}");
    fleet.start_one(stopped);
    std::thread::sleep(Duration::from_millis(300));
    let ratio = load.hit_ratio(3000);
    println!("hits after the restart: {ratio:.4}");
    assert!(ratio >= 0.99, "{ratio}: the server is not warm");
}

const PYMEMCACHE: &str = include_str!("fleet.py");

#[test]
fn stopped_server_behind_pymemcache_loses_its_share_of_hits_and_is_warm_again() {
    let mut fleet = Fleet::start();
    let imported = Command::new("python3").args(["-c", "import pymemcache"]).stderr(Stdio::null()).status();
    if !imported.is_ok_and(|status| status.success()) {
        println!("SKIPPED: python3 has no pymemcache");
        return;
    }
    let mut client = Command::new("python3");
    client.args(["-c", PYMEMCACHE]).args(fleet.ports.map(|port| port.to_string()));
    let mut client = Ending(client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut steps = BufReader::new(client.0.stdout.take().unwrap()).lines();
    let mut expect = |step: &str| assert_eq!(steps.next().unwrap().unwrap(), step);
    expect("filled");
    fleet.stop_one(0);
    let mut proceed = client.0.stdin.take().unwrap();
    writeln!(proceed).unwrap();
    expect("lost at most a third");
    fleet.start_one(0);
    writeln!(proceed).unwrap();
    expect("warm");
    assert!(client.0.wait().unwrap().success());
}
