//! Random clients compared with a model, while the server is killed and restarted: no value is stale, and CAS numbers
//! are exact.
#![allow(clippy::disallowed_methods, reason = "a server lives for a random time")]

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{serve_with, stop};

const CLIENTS: u64 = 4;
/// More bytes than DRAM has, so that some items are on flash.
const KEYS: u32 = 2000;
/// Time within which the clients of a server find an item.
const HIT_LIMIT: Duration = Duration::from_secs(60);
/// Small items survive a kill.
const RECOVERED: &[&str] = &["--recover-after", "kill"];

/// A connection that exchanges lines of text.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(directory: &Path) -> io::Result<Self> {
        UnixStream::connect(directory.join("socket")).map(|stream| Self(BufReader::new(stream)))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn request(&mut self, request: &str) -> io::Result<String> {
        self.0.get_mut().write_all(request.as_bytes())?;
        self.line()
    }

    /// Value and CAS number of a key.
    fn gets(&mut self, key: &str) -> io::Result<Option<(String, u64)>> {
        let head = self.request(&format!("gets {key}\r\n"))?;
        if head == "END" {
            return Ok(None);
        }
        let words: Vec<&str> = head.split(' ').collect();
        assert_eq!((words[0], words[1]), ("VALUE", key), "{head}");
        let mut value = vec![0; words[3].parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut value)?;
        let end = self.line()?;
        assert_eq!(end, "END");
        value.truncate(value.len() - 2);
        Ok(Some((String::from_utf8(value).unwrap(), words[4].parse().unwrap())))
    }
}

/// The possible contents of a key. After a reply, that is one value; after a request without a reply, the old or the
/// new one.
#[derive(Clone, Default)]
struct Known {
    values: Vec<Option<String>>,
    /// The CAS number of the value, if it was read.
    cas: Option<u64>,
}

impl Known {
    fn set(&mut self, value: Option<String>) {
        *self = Self { values: vec![value], cas: None };
    }
}

struct Player {
    number: u64,
    random: StdRng,
    keys: HashMap<u32, Known>,
    /// The largest CAS number that was read before the last restart.
    cas_before: u64,
    cas_seen: u64,
    /// Hits of all players.
    hits: Arc<AtomicUsize>,
}

impl Player {
    /// Sends requests until the connection breaks.
    fn play(&mut self, mut client: Client) {
        self.cas_before = self.cas_seen;
        while self.step(&mut client).is_ok() {}
    }

    fn step(&mut self, client: &mut Client) -> io::Result<()> {
        let key = self.random.random_range(0..KEYS);
        match self.random.random_range(0..10) {
            0 => self.delete(client, key),
            1 => self.compare_and_swap(client, key),
            2 => self.append(client, key),
            3..6 => self.set(client, key),
            _ => self.check(client, key).map(drop),
        }
    }

    fn name(&self, key: u32) -> String {
        format!("client{}-{key}", self.number)
    }

    fn known(&mut self, key: u32) -> &mut Known {
        self.keys.entry(key).or_insert_with(|| Known { values: vec![None], cas: None })
    }

    fn new_value(&mut self) -> String {
        let length = self.random.random_range(8..8000);
        format!("{:0length$}", self.random.random::<u32>())
    }

    /// Reads a key. The cache may have evicted it, but must not return another value.
    fn check(&mut self, client: &mut Client, key: u32) -> io::Result<Option<(String, u64)>> {
        let name = self.name(key);
        let found = client.gets(&name)?;
        let known = self.known(key);
        let Some((value, cas)) = &found else {
            known.set(None);
            return Ok(None);
        };
        assert!(known.values.contains(&Some(value.clone())), "{name} has a stale value: {value}");
        if let Some(number) = known.cas {
            assert_eq!(number, *cas, "{name}: the value is the same, its CAS number is not");
        }
        *known = Known { values: vec![Some(value.clone())], cas: Some(*cas) };
        self.cas_seen = self.cas_seen.max(*cas);
        self.hits.fetch_add(1, Ordering::Relaxed);
        Ok(found)
    }

    fn set(&mut self, client: &mut Client, key: u32) -> io::Result<()> {
        let (name, value) = (self.name(key), self.new_value());
        self.known(key).values.push(Some(value.clone()));
        self.known(key).cas = None;
        let reply = client.request(&format!("set {name} 0 0 {}\r\n{value}\r\n", value.len()))?;
        assert_eq!(reply, "STORED");
        self.known(key).set(Some(value));
        Ok(())
    }

    fn delete(&mut self, client: &mut Client, key: u32) -> io::Result<()> {
        let name = self.name(key);
        self.known(key).values.push(None);
        let reply = client.request(&format!("delete {name}\r\n"))?;
        assert!(["DELETED", "NOT_FOUND"].contains(&&*reply), "{reply}");
        self.known(key).set(None);
        Ok(())
    }

    fn append(&mut self, client: &mut Client, key: u32) -> io::Result<()> {
        let Some((value, _)) = self.check(client, key)? else { return Ok(()) };
        let longer = value + "more";
        self.known(key).values.push(Some(longer.clone()));
        self.known(key).cas = None;
        match &*client.request(&format!("append {} 0 0 4\r\nmore\r\n", self.name(key)))? {
            "STORED" => self.known(key).set(Some(longer)),
            // The item was evicted after the `gets`.
            "NOT_STORED" => self.known(key).set(None),
            other => panic!("append: {other}"),
        }
        Ok(())
    }

    /// A wrong number is refused, the right one is accepted once.
    fn compare_and_swap(&mut self, client: &mut Client, key: u32) -> io::Result<()> {
        let Some((_, cas)) = self.check(client, key)? else { return Ok(()) };
        let (name, value) = (self.name(key), self.new_value());
        let request = |cas: u64| format!("cas {name} 0 0 {} {cas}\r\n{value}\r\n", value.len());
        let reply = client.request(&request(cas - 1))?;
        assert!(["EXISTS", "NOT_FOUND"].contains(&&*reply), "{reply}");
        self.known(key).values.push(Some(value.clone()));
        self.known(key).cas = None;
        match &*client.request(&request(cas))? {
            "STORED" => self.known(key).set(Some(value.clone())),
            "NOT_FOUND" => self.known(key).set(None),
            other => panic!("cas with the number just read: {other}"),
        }
        let reply = client.request(&request(cas))?;
        assert!(["EXISTS", "NOT_FOUND"].contains(&&*reply), "the number was accepted twice: {reply}");
        let stored = self.check(client, key)?;
        assert!(stored.is_none_or(|(_, number)| number > cas && number > self.cas_before), "{name}");
        Ok(())
    }
}

/// Clients send requests while the server ends `ends` times, after `life` on average: by SIGKILL, and every third time
/// by SIGTERM.
fn kill_under_load(ends: usize, life: Duration, settings: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let seed = RandomState::new().build_hasher().finish() >> 1;
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let hits = Arc::new(AtomicUsize::new(0));
    let player = |number| Player {
        number,
        random: StdRng::seed_from_u64(seed + 1 + number),
        keys: HashMap::new(),
        cas_before: 0,
        cas_seen: 0,
        hits: Arc::clone(&hits),
    };
    let mut players: Vec<Player> = (0..CLIENTS).map(player).collect();
    let mut warm_hits = 0;
    for end in 0..ends {
        let mut server = serve_with(directory.path(), "unix:socket", settings);
        if end > 0 {
            warm_hits += hits_of_first_reads(&mut players, directory.path());
        }
        let before = hits.load(Ordering::Relaxed);
        let life = life.mul_f64(random.random_range(0.5..1.5));
        std::thread::scope(|scope| {
            for player in &mut players {
                let client = Client::connect(directory.path()).unwrap();
                scope.spawn(|| player.play(client));
            }
            std::thread::sleep(life);
            // On a busy machine, the clients may have found nothing yet.
            let deadline = Instant::now() + HIT_LIMIT;
            while hits.load(Ordering::Relaxed) == before && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            match end % 3 {
                2 => stop(server),
                _ => {
                    server.kill().unwrap();
                    server.wait().unwrap();
                }
            }
        });
        let hits = hits.load(Ordering::Relaxed) - before;
        assert!(hits > 0, "no hits before end {end}: the test checks nothing");
    }
    let server = serve_with(directory.path(), "unix:socket", settings);
    warm_hits += hits_of_first_reads(&mut players, directory.path());
    stop(server);
    assert!(
        warm_hits > 50,
        "{warm_hits} items were found after all restarts: the test checks hardly anything"
    );
    println!("{warm_hits} items were found after restarts");
}

/// Checks a part of the keys after a restart; returns the number that is there.
fn hits_of_first_reads(players: &mut [Player], directory: &Path) -> usize {
    let mut client = Client::connect(directory).unwrap();
    let mut hits = 0;
    for player in players {
        for key in (0..KEYS).step_by(2) {
            hits += usize::from(player.check(&mut client, key).unwrap().is_some());
        }
    }
    hits
}

#[test]
fn kills_under_load_leave_no_stale_value() {
    kill_under_load(6, Duration::from_millis(700), &[]);
}

#[test]
fn kills_under_load_leave_no_stale_value_among_recovered_items() {
    kill_under_load(6, Duration::from_millis(700), RECOVERED);
}

#[test]
#[ignore = "takes ten minutes"]
fn twenty_kills_in_ten_minutes_leave_no_stale_value() {
    kill_under_load(20, Duration::from_secs(30), &[]);
}

#[test]
#[ignore = "takes ten minutes"]
fn twenty_kills_in_ten_minutes_leave_no_stale_value_among_recovered_items() {
    kill_under_load(20, Duration::from_secs(30), RECOVERED);
}
