//! `LinkBench`: a social graph in one MySQL server, as seen by a block cache below the server.
//!
//! Armstrong, Ponnekanti, Borthakur, Callaghan: "`LinkBench`: a Database Benchmark Based on the Facebook Social Graph", SIGMOD 2013.
//! Nodes, links (a table and an index that covers the queries) and link counts are all stored in order of ids. The mix of operations and
//! the exponents of Zipf's law are those of the benchmark (`FBWorkload.properties`). Ids are scattered, so hot entries are not adjacent. An
//! InnoDB buffer pool filters the accesses to the volume.
//!
//! Assumptions: the tables' shares of the volume; a node's links fit into one page of each index; upper index pages are in memory. Not
//! modelled: redo log, doublewrite buffer, change buffer.

use std::collections::VecDeque;

use rand::RngExt as _;
use rand_distr::{Distribution as _, Zipf};

use super::buffer_pool::{Access, BufferPool};
use super::random::{Stream, stream};
use crate::block::{BlockKind, BlockRequest};

/// The parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkBenchConfig {
    /// Size of the volume, which the tables fill.
    pub volume_bytes: u64,
    /// Initial nodes: the benchmark has a million per gigabyte.
    pub nodes: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Size of the buffer pool.
    pub buffer_pool_bytes: u64,
    /// One in this many operations is a page write by the page cleaner.
    pub operations_per_flush: u32,
    /// Operations per second.
    pub operations_per_second: u32,
}

/// The volume and buffer pool of the workload `mysql8` ([`InnodbConfig`](super::innodb::InnodbConfig)).
impl Default for LinkBenchConfig {
    fn default() -> Self {
        Self {
            volume_bytes: 12 << 30,
            nodes: 12_000_000,
            page_bytes: 16 << 10,
            buffer_pool_bytes: 64 << 20,
            operations_per_flush: 8,
            operations_per_second: 20_000,
        }
    }
}

/// The tables' shares of the volume, in their order on it: nodes, space for new nodes, links, the links' index, counts.
const SHARES: [f64; 5] = [0.27, 0.03, 0.33, 0.33, 0.04];
const NODES: usize = 0;
const NEW_NODES: usize = 1;
const LINKS: usize = 2;
const LINK_INDEX: usize = 3;
const COUNTS: usize = 4;

/// The operations, with their frequencies per ten million.
const MIX: [(Operation, u32); 10] = [
    (Operation::AddLink, 898_866),
    (Operation::DeleteLink, 299_077),
    (Operation::UpdateLink, 801_221),
    (Operation::CountLinks, 488_636),
    (Operation::GetLinks, 52_611),
    (Operation::ListLinks, 5_071_191),
    (Operation::GetNode, 1_293_267),
    (Operation::AddNode, 257_328),
    (Operation::UpdateNode, 736_644),
    (Operation::DeleteNode, 101_159),
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operation {
    AddLink,
    DeleteLink,
    UpdateLink,
    CountLinks,
    GetLinks,
    ListLinks,
    GetNode,
    AddNode,
    UpdateNode,
    DeleteNode,
}

/// An endless sequence of requests.
pub struct LinkBench {
    config: LinkBenchConfig,
    random: Stream,
    /// First page of each table, then the end of the volume.
    first_pages: [u32; 6],
    read_links: Popularity,
    write_links: Popularity,
    read_nodes: Popularity,
    update_nodes: Popularity,
    pool: BufferPool,
    added_nodes: u64,
    operations: u64,
    /// Requests of the last operation that are not yet returned.
    pending: VecDeque<BlockRequest>,
}

/// Popularity of ids.
struct Popularity {
    ranks: Zipf<f64>,
    nodes: u64,
    /// Rank `r` is the id `first + r * step`, modulo the number of nodes.
    first: u64,
    step: u64,
}

impl Popularity {
    fn new(nodes: u64, exponent: f64, random: &mut Stream) -> Self {
        let ranks =
            Zipf::new(nodes as f64, exponent).expect("at least one node, and an exponent that is a number");
        let mut step = random.random_range(nodes / 3..=nodes / 2) | 1;
        while common_divisor(step, nodes) != 1 {
            step += 2;
        }
        Self { ranks, nodes, first: random.random_range(0..nodes), step }
    }

    fn id(&self, random: &mut Stream) -> u64 {
        let rank = (self.ranks.sample(random) as u64).clamp(1, self.nodes) - 1;
        (u128::from(rank) * u128::from(self.step) + u128::from(self.first)).rem_euclid(self.nodes.into())
            as u64
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

impl LinkBench {
    /// The workload for this seed.
    ///
    /// # Panics
    /// If the volume has only some dozen pages or fewer, or there are fewer than ten nodes.
    #[must_use]
    pub fn new(config: LinkBenchConfig, seed: u64) -> Self {
        assert!(config.nodes >= 10, "at least ten nodes are needed");
        let mut random = stream(seed, 0);
        let pages = (config.volume_bytes / u64::from(config.page_bytes)) as u32;
        let mut first_pages = [0; 6];
        let mut running = 0.0;
        for (table, share) in SHARES.iter().enumerate() {
            running += share;
            first_pages[table + 1] = ((f64::from(pages) * running) as u32).max(first_pages[table] + 1);
        }
        let frames = config.buffer_pool_bytes / u64::from(config.page_bytes);
        let mut popularity = |exponent| Popularity::new(config.nodes, exponent, &mut random);
        let (read_links, write_links) = (popularity(0.8), popularity(0.741));
        let (read_nodes, update_nodes) = (popularity(0.625), popularity(0.606));
        Self {
            config,
            first_pages,
            read_links,
            write_links,
            // The same nodes are popular for reads and updates.
            update_nodes: Popularity { ranks: update_nodes.ranks, ..read_nodes },
            read_nodes,
            random,
            pool: BufferPool::new(first_pages[5], frames as u32),
            added_nodes: 0,
            operations: 0,
            pending: VecDeque::new(),
        }
    }

    /// Number of operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    fn operate(&mut self) {
        self.operations += 1;
        if self.operations.is_multiple_of(self.config.operations_per_flush.into())
            && let Some(page) = self.pool.clean_oldest()
        {
            self.push_request(BlockKind::Write, page);
        }
        match self.draw() {
            Operation::AddLink | Operation::DeleteLink => self.write_link(&[LINKS, LINK_INDEX, COUNTS]),
            Operation::UpdateLink => self.write_link(&[LINKS, LINK_INDEX]),
            Operation::CountLinks => self.read_link(COUNTS),
            Operation::GetLinks => self.read_link(LINKS),
            Operation::ListLinks => self.read_link(LINK_INDEX),
            Operation::GetNode => {
                let id = self.read_nodes.id(&mut self.random);
                self.access_row(NODES, id, false);
            }
            Operation::AddNode => self.add_node(),
            Operation::UpdateNode => {
                let id = self.update_nodes.id(&mut self.random);
                self.access_row(NODES, id, true);
            }
            Operation::DeleteNode => {
                let id = self.random.random_range(0..self.config.nodes);
                self.access_row(NODES, id, true);
            }
        }
    }

    fn draw(&mut self) -> Operation {
        let all = MIX.iter().map(|(_, share)| share).sum();
        let mut point = self.random.random_range(0..all);
        for (operation, share) in MIX {
            if point < share {
                return operation;
            }
            point -= share;
        }
        unreachable!("the point lies within the shares")
    }

    fn read_link(&mut self, table: usize) {
        let id = self.read_links.id(&mut self.random);
        self.access_row(table, id, false);
    }

    fn write_link(&mut self, tables: &[usize]) {
        let id = self.write_links.id(&mut self.random);
        tables.iter().for_each(|&table| self.access_row(table, id, true));
    }

    /// Appends a node. New nodes are as dense as the initial ones; when their space is full it is reused from the start.
    fn add_node(&mut self) {
        let density = self.config.nodes / u64::from(self.pages_of(NODES));
        let room = u64::from(self.pages_of(NEW_NODES));
        let page = (self.added_nodes / density.max(1) % room) as u32;
        self.added_nodes += 1;
        self.access_page(self.first_pages[NEW_NODES] + page, true);
    }

    fn pages_of(&self, table: usize) -> u32 {
        self.first_pages[table + 1] - self.first_pages[table]
    }

    fn access_row(&mut self, table: usize, id: u64, update: bool) {
        let page = u128::from(id) * u128::from(self.pages_of(table)) / u128::from(self.config.nodes);
        self.access_page(self.first_pages[table] + page as u32, update);
    }

    fn access_page(&mut self, page: u32, update: bool) {
        if let Access::Miss { dirty_victim } = self.pool.access(page, update) {
            if let Some(victim) = dirty_victim {
                self.push_request(BlockKind::Write, victim);
            }
            self.push_request(BlockKind::Read, page);
        }
    }

    fn push_request(&mut self, kind: BlockKind, page: u32) {
        let bytes = u64::from(self.config.page_bytes);
        let time_ns = self.operations * 1_000_000_000 / u64::from(self.config.operations_per_second);
        self.pending.push_back(BlockRequest { time_ns, kind, first_byte: u64::from(page) * bytes, bytes });
    }
}

impl Iterator for LinkBench {
    type Item = BlockRequest;

    fn next(&mut self) -> Option<BlockRequest> {
        while self.pending.is_empty() {
            self.operate();
        }
        self.pending.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> LinkBenchConfig {
        LinkBenchConfig {
            volume_bytes: 256 << 20,
            nodes: 256_000,
            buffer_pool_bytes: 2 << 20,
            ..LinkBenchConfig::default()
        }
    }

    #[test]
    fn same_seed_gives_the_same_requests() {
        let of = |seed| LinkBench::new(small(), seed).take(5000).collect::<Vec<_>>();
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }

    #[test]
    fn seven_in_ten_operations_are_reads() {
        let share = |operations: &[Operation]| -> f64 {
            let counted = MIX.iter().filter(|(operation, _)| operations.contains(operation));
            f64::from(counted.map(|(_, share)| share).sum::<u32>()) / 1e7
        };
        use Operation::{CountLinks, GetLinks, GetNode, ListLinks};
        assert!((share(&[CountLinks, GetLinks, GetNode, ListLinks]) - 0.69).abs() < 0.001);
        assert!((share(&MIX.map(|(operation, _)| operation)) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn ranks_map_to_every_id_once() {
        let mut popularity = Popularity::new(1000, 0.8, &mut stream(1, 0));
        popularity.ranks = Zipf::new(1000.0, 0.0).expect("a valid exponent");
        let mut random = stream(2, 0);
        let ids: std::collections::HashSet<u64> = (0..20_000).map(|_| popularity.id(&mut random)).collect();
        assert_eq!((ids.len(), ids.iter().max()), (1000, Some(&999)));
    }

    #[test]
    fn requests_are_single_pages_and_cover_every_table() {
        let config = small();
        let linkbench = LinkBench::new(config, 1);
        let edges = linkbench.first_pages.map(|page| u64::from(page) * u64::from(config.page_bytes));
        let mut requested = [0; 5];
        for request in linkbench.take(50_000) {
            assert_eq!((request.first_byte % 16384, request.bytes), (0, 16384));
            assert!(request.end_byte() <= config.volume_bytes, "{request:?}");
            requested[edges.partition_point(|&edge| edge <= request.first_byte) - 1] += 1;
        }
        assert!(requested.iter().all(|&count| count > 50), "{requested:?}");
        assert!(requested[LINK_INDEX] == *requested.iter().max().expect("tables"), "{requested:?}");
    }
}
