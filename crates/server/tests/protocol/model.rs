//! Random requests of several clients, compared with a model of each key: no value is stale, and a CAS number matches
//! once.
//!
//! Each client changes its own keys and checks every reply against its model. All clients add to shared counters by
//! `gets` and `cas`, and by `incr`: the sums at the end show whether a change was lost. Between rounds, the server
//! restarts.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use device::Device;
use flashwright_server::Server;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::setup::{Client, flash, options, serve, text};

const CLIENTS: usize = 6;
const ROUNDS: usize = 3;
const REQUESTS: usize = 1500;
const KEYS: u32 = 300;

/// A client, and the expected contents of its keys. A key that is absent from the model has no value.
struct Player {
    number: usize,
    random: StdRng,
    model: HashMap<u32, String>,
    /// Changes that were made to the shared counters.
    compared: u64,
    incremented: u64,
}

impl Player {
    fn key(&self, key: u32) -> String {
        format!("client{}-{key}", self.number)
    }

    /// Reads a key. The cache may have evicted it, but must not return another value.
    fn check(&mut self, client: &mut Client, key: u32) {
        let reply = text(&client.replies(format!("get {}\r\n", self.key(key)).as_bytes()));
        if reply == "END\r\n" {
            self.model.remove(&key);
            return;
        }
        let value = self.model.get(&key).unwrap_or_else(|| panic!("{key} was removed and is there: {reply}"));
        assert_eq!(reply, format!("VALUE {} 0 {}\r\n{value}\r\nEND\r\n", self.key(key), value.len()));
    }

    fn change(&mut self, client: &mut Client, key: u32) {
        // Some values are large enough to be received into their items.
        let max_length = if self.random.random_ratio(1, 16) { 60_000 } else { 6000 };
        let length = self.random.random_range(1..max_length);
        let value = format!("{:0length$}", self.random.random::<u32>());
        let name = self.key(key);
        let present = self.model.get(&key).cloned();
        let (request, word) = match self.random.random_range(0..6) {
            0 => ("add", "STORED"),
            1 => ("replace", "STORED"),
            2 => ("append", "STORED"),
            3 => {
                client.line(&format!("delete {name}"));
                self.model.remove(&key);
                return;
            }
            _ => ("set", "STORED"),
        };
        let reply = client.line(&format!("{request} {name} 0 0 {}\r\n{value}", value.len()));
        if reply != word {
            assert_ne!(request, "set", "{reply}");
            // There is an item, or there is none, which may be because it was evicted.
            assert!(request != "add" || present.is_some(), "{reply}");
            return;
        }
        let value = match request {
            "append" => present.expect("it was stored") + &value,
            _ => value,
        };
        self.model.insert(key, value);
    }

    /// Adds 1 to shared numbers, by `cas` and by `incr`.
    fn count(&mut self, client: &mut Client) {
        let reply = text(&client.replies(b"gets compared\r\n"));
        let mut lines = reply.lines();
        let cas = lines.next().and_then(|line| line.split(' ').nth(4)).expect("it is there").to_owned();
        let next = lines.next().unwrap().parse::<u64>().unwrap() + 1;
        let next = next.to_string();
        match &*client.line(&format!("cas compared 0 0 {} {cas}\r\n{next}", next.len())) {
            "STORED" => self.compared += 1,
            "EXISTS" => {}
            other => panic!("{other}"),
        }
        client.line("incr incremented 1").parse::<u64>().expect("it is there");
        self.incremented += 1;
    }

    fn play(&mut self, server: &Server) {
        let mut client = Client::of(server);
        for _ in 0..REQUESTS {
            let key = self.random.random_range(0..KEYS);
            match self.random.random_range(0..10) {
                0 => self.count(&mut client),
                1..5 => self.change(&mut client, key),
                _ => self.check(&mut client, key),
            }
        }
    }
}

#[test]
fn random_clients_agree_with_the_model_over_restarts() {
    let seed = std::hash::RandomState::new().build_hasher().finish() >> 1;
    println!("seed {seed}");
    let flash: std::sync::Arc<dyn Device> = flash(64 << 20);
    let new = |number| Player {
        number,
        random: StdRng::seed_from_u64(seed + number as u64),
        model: HashMap::new(),
        compared: 0,
        incremented: 0,
    };
    let mut players: Vec<Player> = (0..CLIENTS).map(new).collect();
    for round in 0..ROUNDS {
        let server = serve(&flash, options());
        if round == 0 {
            let mut client = Client::of(&server);
            assert_eq!(client.line("set compared 0 0 1\r\n0"), "STORED");
            assert_eq!(client.line("set incremented 0 0 1\r\n0"), "STORED");
        }
        std::thread::scope(|scope| {
            for player in &mut players {
                scope.spawn(|| player.play(&server));
            }
        });
        server.close(Duration::from_secs(30)).unwrap();
    }
    let server = serve(&flash, options());
    let mut client = Client::of(&server);
    let sum = |count: fn(&Player) -> u64| players.iter().map(count).sum::<u64>();
    assert_eq!(client.line("incr compared 0"), sum(|player| player.compared).to_string());
    assert_eq!(client.line("incr incremented 0"), sum(|player| player.incremented).to_string());
    let mut found = 0;
    for player in &mut players {
        (0..KEYS).for_each(|key| player.check(&mut client, key));
        found += player.model.len();
    }
    assert!(found > 100, "{found} keys are left: the test checks hardly anything");
}
