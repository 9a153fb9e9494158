//! Memory caches: CPU time, hit ratio, memory overhead.
//!
//! One million objects, Zipf, a cache of a tenth of their bytes. Two rules make sizes comparable, and both are reported: *same setting*
//! gives every constructor the same number (peers count key and value; ours also counts headers and rounding of chunks), and *same memory*
//! includes every peer's measured overhead, so that all use equal memory.

use std::process::Command;

use crate::dram_peers::{Dram, Peer};
use crate::measure::{Spent, Start, median, resident_bytes};
use crate::population::{Population, Requests};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Objects in the world.
    #[arg(long, default_value_t = 1_000_000)]
    objects: usize,
    /// Requests of a round.
    #[arg(long, default_value_t = 2_000_000)]
    requests: usize,
    /// Rounds; each runs every peer once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Exponent of the Zipf law.
    #[arg(long, default_value_t = 0.99)]
    zipf: f64,
    /// Only these peers.
    #[arg(long, value_enum)]
    peers: Vec<Peer>,
    /// Only comparisons whose title contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Measures one peer's memory and prints it; the main run starts this in separate processes.
    #[arg(long, hide = true)]
    memory_of: Option<Peer>,
    /// With `memory_of`: the cache has space for all objects, and all are inserted.
    #[arg(long, hide = true)]
    whole: bool,
}

impl Arguments {
    fn population(&self) -> Population {
        Population::new(self.objects, 100..=1000, 1)
    }

    fn peers(&self) -> Vec<Peer> {
        if self.peers.is_empty() { Peer::ALL.to_vec() } else { self.peers.clone() }
    }
}

pub fn run(arguments: &Arguments) {
    if let Some(peer) = arguments.memory_of {
        print_memory(arguments, peer);
        return;
    }
    let population = arguments.population();
    let total_bytes = population.total_bytes();
    let (tenth_bytes, tenth_entries) = (total_bytes / 10, arguments.objects / 10);
    println!(
        "dram: {} objects of 100 to 1000 B, Zipf {}, a cache of {tenth_bytes} bytes",
        arguments.objects, arguments.zipf
    );
    let peers = arguments.peers();
    let wanted = |what: &str| what.contains(&arguments.only);
    if wanted("memory") {
        for whole in [true, false] {
            let memory: Vec<_> =
                peers.iter().map(|&peer| (peer, measure_memory(arguments, peer, whole))).collect();
            print_overheads(&memory, whole);
        }
    }
    if wanted("get or insert, same setting") {
        for threads in [1, 2] {
            let open = |&peer: &Peer| (peer, peer.open(tenth_bytes, tenth_entries, 0));
            let caches: Vec<_> = peers.iter().map(open).collect();
            compare("get or insert, same setting", arguments, &population, &caches, threads);
        }
    }
    if wanted("get or insert, same memory") {
        let open = |&peer: &Peer| {
            let beyond = measure_memory(arguments, peer, false).beyond_setting(peer);
            (peer, peer.open(tenth_bytes, tenth_entries, beyond))
        };
        let caches: Vec<_> = peers.iter().map(open).collect();
        compare("get or insert, same memory", arguments, &population, &caches, 1);
    }
    if wanted("get, all of them hits") {
        let caches: Vec<_> =
            peers.iter().map(|&peer| (peer, peer.open(total_bytes * 2, arguments.objects, 0))).collect();
        caches.iter().for_each(|(_, cache)| insert_all(&**cache, &population));
        for threads in [1, 2] {
            compare("get, all of them hits", arguments, &population, &caches, threads);
        }
    }
}

fn insert_all(cache: &dyn Dram, population: &Population) {
    (0..population.len() as u64).for_each(|key| cache.insert(key, population.value(key)));
    cache.settle();
}

/// Memory of a filled cache.
#[derive(Debug, Clone, Copy)]
struct Memory {
    resident_bytes: u64,
    accounted_bytes: u64,
    setting_bytes: u64,
    payload_bytes: u64,
    entries: u64,
}

impl Memory {
    fn overhead_per_entry(&self) -> f64 {
        (self.resident_bytes as f64 - self.payload_bytes as f64) / self.entries as f64
    }

    fn accounted_overhead_per_entry(&self) -> f64 {
        (self.accounted_bytes as f64 - self.payload_bytes as f64) / self.entries as f64
    }

    /// Bytes per entry that the cache uses beyond its setting.
    fn beyond_setting(&self, peer: Peer) -> u64 {
        let counted_bytes = if peer.is_ours() { self.setting_bytes } else { self.payload_bytes };
        self.resident_bytes.saturating_sub(counted_bytes) / self.entries
    }
}

/// Fills the cache and prints its memory. The process must be new.
fn print_memory(arguments: &Arguments, peer: Peer) {
    let population = arguments.population();
    let (setting_bytes, expected_entries) = match arguments.whole {
        true => (population.total_bytes() * 5 / 4, arguments.objects),
        false => (population.total_bytes() / 10, arguments.objects / 10),
    };
    let requests = Requests::new(arguments.objects, arguments.zipf, 2).take(arguments.requests);
    let before = resident_bytes();
    let cache = peer.open(setting_bytes, expected_entries, 0);
    if arguments.whole {
        insert_all(&*cache, &population);
    } else {
        for &key in &requests {
            get_or_insert(&*cache, &population, u64::from(key));
        }
        cache.settle();
    }
    let resident_bytes = resident_bytes() - before;
    let accounted_bytes = cache.accounted_bytes().unwrap_or(0);
    let held = (0..population.len() as u64).filter(|&key| cache.get(key).is_some());
    let (entries, payload) =
        held.fold((0_u64, 0), |(entries, bytes), key| (entries + 1, bytes + population.weight(key)));
    println!("{resident_bytes} {accounted_bytes} {setting_bytes} {payload} {entries}");
}

fn measure_memory(arguments: &Arguments, peer: Peer, whole: bool) -> Memory {
    use clap::ValueEnum as _;
    let myself = std::env::current_exe().expect("a running program has a path");
    let name = peer.to_possible_value().expect("no peer is hidden");
    let (objects, requests) = (arguments.objects.to_string(), arguments.requests.to_string());
    let mut command = Command::new(myself);
    command.args(["dram", "--memory-of", name.get_name(), "--objects", &objects, "--requests", &requests]);
    command.args(whole.then_some("--whole"));
    let output = command.output().expect("this program can be run again");
    let text = String::from_utf8(output.stdout).expect("it prints numbers");
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [resident_bytes, accounted_bytes, setting_bytes, payload_bytes, entries] = numbers[..] else {
        panic!("{} printed {text:?}: {}", peer.name(), String::from_utf8_lossy(&output.stderr))
    };
    Memory { resident_bytes, accounted_bytes, setting_bytes, payload_bytes, entries }
}

fn print_overheads(memory: &[(Peer, Memory)], whole: bool) {
    let held = if whole { "all objects held" } else { "a tenth of them" };
    println!("\nmemory beyond key and value, bytes per entry, {held} (each in its own process)");
    println!("{:<16}{:>10}{:>12}{:>12}{:>14}", "", "entries", "resident", "accounted", "payload MB");
    for (peer, memory) in memory {
        let accounted = match memory.accounted_bytes {
            0 => "-".to_owned(),
            _ => format!("{:.1}", memory.accounted_overhead_per_entry()),
        };
        println!(
            "{:<16}{:>10}{:>12.1}{:>12}{:>14.1}",
            peer.name(),
            memory.entries,
            memory.overhead_per_entry(),
            accounted,
            memory.payload_bytes as f64 / 1e6
        );
    }
}

/// The rounds of one peer.
#[derive(Default)]
struct Rounds {
    cpu_ns: Vec<f64>,
    hits: usize,
    requests: usize,
}

fn compare(
    what: &str,
    arguments: &Arguments,
    population: &Population,
    caches: &[(Peer, Box<dyn Dram>)],
    threads: usize,
) {
    let mut rounds: Vec<Rounds> = caches.iter().map(|_| Rounds::default()).collect();
    let mut streams: Vec<_> = (0..threads as u64)
        .map(|thread| Requests::new(arguments.objects, arguments.zipf, 2 + thread))
        .collect();
    // The first round fills the caches and is not counted.
    for round in 0..=arguments.rounds {
        let traces: Vec<_> =
            streams.iter_mut().map(|stream| stream.take(arguments.requests / threads)).collect();
        for ((_, cache), rounds) in caches.iter().zip(&mut rounds) {
            let (spent, hits) = one_round(&**cache, population, &traces);
            if round > 0 {
                let requests = traces.iter().map(Vec::len).sum();
                rounds.cpu_ns.push(spent.cpu_ns_per(requests));
                rounds.hits += hits;
                rounds.requests += requests;
            }
        }
    }
    print_comparison(what, caches, &rounds, threads);
}

fn one_round(cache: &dyn Dram, population: &Population, traces: &[Vec<u32>]) -> (Spent, usize) {
    let start = Start::now();
    let hits = std::thread::scope(|scope| {
        let work = |trace: &'_ Vec<u32>| -> usize {
            trace.iter().filter(|&&key| get_or_insert(cache, population, u64::from(key))).count()
        };
        let threads: Vec<_> = traces.iter().map(|trace| scope.spawn(move || work(trace))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no peer panics")).sum()
    });
    (start.spent(), hits)
}

/// Returns whether it was a hit.
#[inline]
fn get_or_insert(cache: &dyn Dram, population: &Population, key: u64) -> bool {
    match cache.get(key) {
        Some(first) => {
            assert_eq!(first, population.value(key)[0], "another object's value");
            true
        }
        None => {
            cache.insert(key, population.value(key));
            false
        }
    }
}

fn print_comparison(what: &str, caches: &[(Peer, Box<dyn Dram>)], rounds: &[Rounds], threads: usize) {
    println!("\n{what}, {threads} thread(s): CPU ns per operation, median and minimum of the rounds; hit ratio");
    let ours = caches.iter().position(|(peer, _)| *peer == Peer::Ours);
    println!("{:<16}{:>10}{:>10}{:>14}{:>10}", "", "median", "least", "ours / it", "hits");
    for ((peer, _), of_peer) in caches.iter().zip(rounds) {
        // Compared round by round, so that load of the machine slows both.
        let ratios = ours.map(|ours| {
            rounds[ours].cpu_ns.iter().zip(&of_peer.cpu_ns).map(|(ours, its)| ours / its).collect::<Vec<_>>()
        });
        println!(
            "{:<16}{:>10.0}{:>10.0}{:>14.2}{:>10.4}",
            peer.name(),
            median(of_peer.cpu_ns.clone()),
            of_peer.cpu_ns.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.map_or(f64::NAN, median),
            of_peer.hits as f64 / of_peer.requests as f64
        );
    }
}
