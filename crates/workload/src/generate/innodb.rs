//! Several MySQL servers on one volume, as seen by a block cache below them.
//!
//! Each instance has a region of the volume and fills its first part, as files do in the allocation groups of a filesystem. The region
//! contains tables, skewed in size and, independently, in popularity. Transactions read and change pages by a Zipf law; pages of similar
//! popularity are adjacent, in extents. An InnoDB buffer pool per instance, in LRU order, filters the accesses: the volume sees its misses,
//! its evicted dirty pages, and the writes of the page cleaner, which cleans the pages that have been dirty for longest. A backup reads all
//! tables sequentially beside it.
//!
//! Not modelled: redo log, doublewrite buffer, growth, and the pool's midpoint insertion.
//!
//! The configuration and the seed determine every request.

use std::collections::VecDeque;

use rand::seq::SliceRandom as _;
use rand::{Rng, RngExt as _};
use rand_distr::{Distribution as _, Zipf};

use super::buffer_pool::{Access, BufferPool};
use super::random::{Stream, stream};
use crate::block::{BlockKind, BlockRequest};

/// The parameters. The default is the workload called `mysql8`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InnodbConfig {
    /// Number of servers, each with an equal region of the volume.
    pub instances: u32,
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Share of a region filled by tables, from its start.
    pub fill: f64,
    /// Tables per instance.
    pub tables: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Adjacent pages of about equal popularity.
    pub extent_pages: u32,
    /// Zipf exponent of the pages of a table: the `k`-th most popular has weight `k^-page_skew`.
    pub page_skew: f64,
    /// Zipf exponent of the instances' popularity.
    pub instance_skew: f64,
    /// Zipf exponent of both the popularity and the size of an instance's tables.
    pub table_skew: f64,
    /// Size of all buffer pools together.
    pub buffer_pool_bytes: u64,
    /// Share of page accesses that change the page.
    pub update_share: f64,
    /// Pages read by the backup per operation.
    pub backup_pages_per_operation: f64,
    /// Pages per read request of the backup.
    pub backup_request_pages: u32,
    /// One in this many operations swaps the popularity of two extents of a table, so that the hot data moves. 0 disables it.
    pub operations_per_drift: u32,
    /// One in this many operations is a page write by the page cleaner.
    pub operations_per_flush: u32,
    /// Operations per second.
    pub operations_per_second: u32,
}

impl Default for InnodbConfig {
    fn default() -> Self {
        Self {
            instances: 8,
            volume_bytes: 12 << 30,
            fill: 0.4,
            tables: 12,
            page_bytes: 16 << 10,
            extent_pages: 16,
            page_skew: 1.12,
            instance_skew: 0.9,
            table_skew: 1.0,
            buffer_pool_bytes: 64 << 20,
            update_share: 0.4,
            backup_pages_per_operation: 0.08,
            backup_request_pages: 16,
            operations_per_drift: 1000,
            operations_per_flush: 8,
            operations_per_second: 20_000,
        }
    }
}

/// An endless sequence of requests.
pub struct Innodb {
    config: InnodbConfig,
    random: Stream,
    instances: Vec<Instance>,
    /// Cumulative popularity of the instances.
    cumulative_popularity: Vec<f64>,
    scan: Scan,
    /// Pages that the backup is due to read.
    scan_due: f64,
    operations: u64,
    /// Requests of the last operation that are not yet returned.
    pending: VecDeque<BlockRequest>,
}

struct Instance {
    first_page: u64,
    tables: Vec<Table>,
    /// Cumulative popularity of the tables.
    cumulative_popularity: Vec<f64>,
    pool: BufferPool,
}

struct Table {
    /// Relative to the instance.
    first_page: u32,
    ranks: Zipf<f64>,
    /// Positions of the extents, the most popular first.
    extents: Vec<u32>,
}

/// Position of the backup.
#[derive(Default)]
struct Scan {
    instance: usize,
    page: u32,
}

impl Innodb {
    /// The workload for this seed.
    ///
    /// # Panics
    /// If a table would have no extent, or a share is not between 0 and 1.
    #[must_use]
    pub fn new(config: InnodbConfig, seed: u64) -> Self {
        let mut random = stream(seed, 0);
        let mut cumulative_popularity = running_sums(config.instances, config.instance_skew);
        shuffle_steps(&mut cumulative_popularity, &mut random);
        let instances =
            (0..config.instances).map(|number| Instance::new(&config, number, &mut random)).collect();
        let (scan, pending) = (Scan::default(), VecDeque::new());
        Self { config, random, instances, cumulative_popularity, scan, scan_due: 0.0, operations: 0, pending }
    }

    /// Number of operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Swaps the popularity of the most and the least popular instance.
    pub fn swap_extremes(&mut self) {
        let mut steps = steps(&self.cumulative_popularity);
        let by_heat = |&a: &usize, &b: &usize| steps[a].total_cmp(&steps[b]);
        let busiest = (0..steps.len()).max_by(by_heat).expect("there are instances");
        let idlest = (0..steps.len()).min_by(by_heat).expect("there are instances");
        steps.swap(busiest, idlest);
        set_steps(&mut self.cumulative_popularity, &steps);
    }

    fn operate(&mut self) {
        self.operations += 1;
        if self.operations.is_multiple_of(self.config.operations_per_flush.into()) {
            self.clean_page();
        }
        if self.config.operations_per_drift > 0
            && self.operations.is_multiple_of(self.config.operations_per_drift.into())
        {
            self.swap_extents();
        }
        self.scan_due += self.config.backup_pages_per_operation;
        if self.scan_due >= f64::from(self.config.backup_request_pages) {
            self.scan_due -= f64::from(self.config.backup_request_pages);
            self.scan();
        } else {
            self.access_page();
        }
    }

    fn access_page(&mut self) {
        let number = draw(&self.cumulative_popularity, &mut self.random);
        let instance = &mut self.instances[number];
        let table = &instance.tables[draw(&instance.cumulative_popularity, &mut self.random)];
        let page = table.page(&mut self.random, self.config.extent_pages);
        let update = self.random.random_bool(self.config.update_share);
        match instance.pool.access(page, update) {
            Access::Hit => {}
            Access::Miss { dirty_victim } => {
                if let Some(victim) = dirty_victim {
                    self.push_request(BlockKind::Write, number, victim, 1);
                }
                self.push_request(BlockKind::Read, number, page, 1);
            }
        }
    }

    /// Writes a page of an instance drawn by popularity: an instance with more changes cleans more pages.
    fn clean_page(&mut self) {
        let number = draw(&self.cumulative_popularity, &mut self.random);
        if let Some(page) = self.instances[number].pool.clean_oldest() {
            self.push_request(BlockKind::Write, number, page, 1);
        }
    }

    fn scan(&mut self) {
        let Scan { instance, page } = self.scan;
        let rest = self.instances[instance].pool.pages() - page;
        let pages = self.config.backup_request_pages.min(rest);
        self.push_request(BlockKind::Read, instance, page, pages);
        self.scan.page += pages;
        if pages == rest {
            self.scan = Scan { instance: (instance + 1) % self.instances.len(), page: 0 };
        }
    }

    /// Swaps the popularity of two extents of a table, each drawn uniformly.
    fn swap_extents(&mut self) {
        let instance = self.random.random_range(0..self.instances.len());
        let tables = &mut self.instances[instance].tables;
        let extents: usize = tables.iter().map(|table| table.extents.len()).sum();
        let mut at = self.random.random_range(0..extents);
        for table in tables {
            if at < table.extents.len() {
                let other = self.random.random_range(0..table.extents.len());
                table.extents.swap(at, other);
                return;
            }
            at -= table.extents.len();
        }
    }

    fn push_request(&mut self, kind: BlockKind, instance: usize, page: u32, pages: u32) {
        let page_bytes = u64::from(self.config.page_bytes);
        let first_byte = (self.instances[instance].first_page + u64::from(page)) * page_bytes;
        let bytes = u64::from(pages) * page_bytes;
        let time_ns = self.operations * 1_000_000_000 / u64::from(self.config.operations_per_second);
        self.pending.push_back(BlockRequest { time_ns, kind, first_byte, bytes });
    }
}

impl Iterator for Innodb {
    type Item = BlockRequest;

    fn next(&mut self) -> Option<BlockRequest> {
        while self.pending.is_empty() {
            self.operate();
        }
        self.pending.pop_front()
    }
}

impl Instance {
    fn new(config: &InnodbConfig, number: u32, random: &mut Stream) -> Self {
        let region_pages = config.volume_bytes / u64::from(config.instances) / u64::from(config.page_bytes);
        let extents = (region_pages as f64 * config.fill) as u32 / config.extent_pages;
        let mut edges = running_sums(config.tables, config.table_skew);
        shuffle_steps(&mut edges, random);
        let mut from = 0;
        let mut tables = Vec::new();
        for edge in &edges {
            let to = ((f64::from(extents) * edge) as u32).max(from + 1);
            tables.push(Table::new(config, from, to, random));
            from = to;
        }
        let mut cumulative_popularity = running_sums(config.tables, config.table_skew);
        shuffle_steps(&mut cumulative_popularity, random);
        let frames = config.buffer_pool_bytes / u64::from(config.instances) / u64::from(config.page_bytes);
        let pages = from * config.extent_pages;
        Self {
            first_page: u64::from(number) * region_pages,
            tables,
            cumulative_popularity,
            pool: BufferPool::new(pages, frames as u32),
        }
    }
}

impl Table {
    fn new(config: &InnodbConfig, from: u32, to: u32, random: &mut Stream) -> Self {
        let mut extents: Vec<u32> = (0..to - from).collect();
        extents.shuffle(random);
        let pages = f64::from((to - from) * config.extent_pages);
        let ranks =
            Zipf::new(pages, config.page_skew).expect("at least one page, and a skew that is a number");
        Self { first_page: from * config.extent_pages, ranks, extents }
    }

    fn page(&self, random: &mut Stream, extent_pages: u32) -> u32 {
        let rank = self.ranks.sample(random) as u32 - 1;
        let extent = self.extents[(rank / extent_pages) as usize];
        self.first_page + extent * extent_pages + rank % extent_pages
    }
}

/// The cumulative sums of `1^-skew, 2^-skew …`, scaled so that the last is 1.
fn running_sums(count: u32, skew: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=count)
        .map(|rank| {
            sum += f64::from(rank).powf(-skew);
            sum
        })
        .collect();
    sums.iter().map(|running| running / sum).collect()
}

/// Shuffles the steps between the cumulative sums.
fn shuffle_steps(sums: &mut [f64], random: &mut Stream) {
    let mut steps = steps(sums);
    steps.shuffle(random);
    set_steps(sums, &steps);
}

fn steps(sums: &[f64]) -> Vec<f64> {
    sums.iter().scan(0.0, |before, &sum| Some(sum - std::mem::replace(before, sum))).collect()
}

fn set_steps(sums: &mut [f64], steps: &[f64]) {
    let mut running = 0.0;
    for (sum, step) in sums.iter_mut().zip(steps) {
        running += step;
        *sum = running;
    }
}

/// Draws an index by the cumulative sums of its weights.
fn draw(sums: &[f64], random: &mut impl Rng) -> usize {
    let point: f64 = random.random();
    sums.iter().position(|&sum| point < sum).unwrap_or(sums.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> InnodbConfig {
        InnodbConfig { volume_bytes: 256 << 20, buffer_pool_bytes: 4 << 20, ..InnodbConfig::default() }
    }

    #[test]
    fn same_seed_gives_the_same_requests() {
        let of = |seed| Innodb::new(small(), seed).take(5000).collect::<Vec<_>>();
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }

    #[test]
    fn requests_are_whole_pages_in_the_filled_parts() {
        let config = small();
        let region = config.volume_bytes / u64::from(config.instances);
        for request in Innodb::new(config, 1).take(50_000) {
            assert_eq!((request.first_byte % 16384, request.bytes % 16384), (0, 0));
            let within = request.end_byte() - request.first_byte / region * region;
            assert!(within as f64 <= region as f64 * 0.41, "{request:?}");
        }
    }

    #[test]
    fn swap_makes_the_most_popular_instance_the_least_popular() {
        let config = InnodbConfig { backup_pages_per_operation: 0.0, ..small() };
        let region_bytes = config.volume_bytes / u64::from(config.instances);
        let mut innodb = Innodb::new(config, 1);
        let counted = |innodb: &mut Innodb| {
            let mut by_instance = [0; 8];
            innodb
                .by_ref()
                .take(20_000)
                .for_each(|it| by_instance[(it.first_byte / region_bytes) as usize] += 1);
            let at = |most: bool| {
                let key = |&at: &usize| if most { by_instance[at] } else { -by_instance[at] };
                (0..8).max_by_key(key).expect("eight")
            };
            (at(true), at(false))
        };
        let (busiest, idlest) = counted(&mut innodb);
        innodb.swap_extremes();
        counted(&mut innodb);
        assert_eq!(counted(&mut innodb), (idlest, busiest));
    }

    #[test]
    fn buffer_pool_absorbs_the_most_popular_pages() {
        let requests_of = |buffer_pool_bytes| {
            let mut innodb = Innodb::new(InnodbConfig { buffer_pool_bytes, ..small() }, 1);
            innodb.nth(20_000);
            innodb.operations()
        };
        assert!(requests_of(16 << 20) > requests_of(1 << 20) * 3 / 2, "fewer operations reach the disk");
    }

    #[test]
    fn backup_reads_all_pages_in_order() {
        let backup = Innodb::new(small(), 1).filter(|request| request.bytes > 16384).take(1000);
        let reads: Vec<u64> = backup.map(|request| request.first_byte).collect();
        let in_order = reads.windows(2).filter(|pair| pair[1] == pair[0] + 16 * 16384).count();
        assert!(
            in_order > 970,
            "{in_order} of 999 start where the previous one ended; the rest start a region"
        );
    }

    #[test]
    fn popular_pages_are_requested_far_more_often_than_the_average() {
        let config = InnodbConfig { buffer_pool_bytes: 0, backup_pages_per_operation: 0.0, ..small() };
        let mut requested = std::collections::HashMap::<u64, u32>::new();
        for request in Innodb::new(config, 1).take(100_000) {
            *requested.entry(request.first_byte).or_default() += 1;
        }
        let mut counts: Vec<u32> = requested.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u32 = counts[..counts.len() / 10].iter().sum();
        assert!(hot > 60_000, "the hottest tenth of the pages gets {hot} of 100,000");
    }
}
