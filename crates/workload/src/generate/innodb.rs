//! Several MySQL servers on one volume, as a block cache beneath them sees them.
//!
//! Each instance has a region of the volume and fills the first part of it, as files do in the allocation groups of a
//! filesystem. In it lie tables, skewed in size and, independently, in heat. Transactions look up and change pages by a Zipf
//! law; pages that are hot together lie together, in extents. Before the volume stands InnoDB's buffer pool, one an
//! instance, in order of last use: the volume sees what misses it, the dirty pages that leave it, and those that the page
//! cleaner writes because they have been dirty for longest. A backup reads all tables from end to end beside it.
//!
//! Not modelled: redo log, doublewrite buffer, growth, and the pool's own mid-point.
//!
//! Everything follows from the configuration and the seed.

use std::collections::VecDeque;

use rand::seq::SliceRandom as _;
use rand::{Rng, RngExt as _};
use rand_distr::{Distribution as _, Zipf};

use super::buffer_pool::{Access, BufferPool};
use super::random::{Stream, stream};
use crate::block::{BlockKind, BlockRequest};

/// The parameters, with those of the workload called `mysql8` as their default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InnodbConfig {
    /// Servers, each with an equal region of the volume.
    pub instances: u32,
    /// The volume.
    pub volume_bytes: u64,
    /// Share of a region that its tables fill, from its beginning.
    pub fill: f64,
    /// Tables of an instance.
    pub tables: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages that lie together and are about equally hot.
    pub extent_pages: u32,
    /// Heat of the `k`-th hottest page of a table: `k^-this`.
    pub page_skew: f64,
    /// Heat of the `k`-th hottest instance: `k^-this`.
    pub instance_skew: f64,
    /// Heat of an instance's `k`-th hottest table, and size of its `k`-th largest: `k^-this`.
    pub table_skew: f64,
    /// All buffer pools together.
    pub buffer_pool_bytes: u64,
    /// Share of the page accesses that change the page.
    pub update_share: f64,
    /// Pages that the backup reads for each operation.
    pub backup_pages_per_operation: f64,
    /// Pages that the backup reads with one request.
    pub backup_request_pages: u32,
    /// One in this many operations exchanges the heat of two extents of a table, so that hot data moves. 0 disables it.
    pub operations_per_drift: u32,
    /// One in this many operations is a page write of the page cleaner.
    pub operations_per_flush: u32,
    /// Operations a second.
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

/// An endless run of requests.
pub struct Innodb {
    config: InnodbConfig,
    random: Stream,
    instances: Vec<Instance>,
    /// Heats of the instances, each with those before it.
    heat: Vec<f64>,
    scan: Scan,
    /// Pages that the backup may read and has not.
    scan_due: f64,
    operations: u64,
    /// Requests of the last operation, not yet handed out.
    pending: VecDeque<BlockRequest>,
}

struct Instance {
    first_page: u64,
    tables: Vec<Table>,
    /// Heats of the tables, each with those before it.
    heat: Vec<f64>,
    pool: BufferPool,
}

struct Table {
    /// Within the instance.
    first_page: u32,
    ranks: Zipf<f64>,
    /// Where the extents lie, the hottest first.
    extents: Vec<u32>,
}

/// Where the backup is.
#[derive(Default)]
struct Scan {
    instance: usize,
    page: u32,
}

impl Innodb {
    /// The workload of this seed.
    ///
    /// # Panics
    /// If a table would have no extent, or if a share is not between 0 and 1.
    #[must_use]
    pub fn new(config: InnodbConfig, seed: u64) -> Self {
        let mut random = stream(seed, 0);
        let mut heat = running_sums(config.instances, config.instance_skew);
        shuffle_steps(&mut heat, &mut random);
        let instances =
            (0..config.instances).map(|number| Instance::new(&config, number, &mut random)).collect();
        let (scan, pending) = (Scan::default(), VecDeque::new());
        Self { config, random, instances, heat, scan, scan_due: 0.0, operations: 0, pending }
    }

    /// Operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The busiest and the idlest instance change places in heat.
    pub fn turn(&mut self) {
        let mut steps = steps(&self.heat);
        let by_heat = |&a: &usize, &b: &usize| steps[a].total_cmp(&steps[b]);
        let busiest = (0..steps.len()).max_by(by_heat).expect("there are instances");
        let idlest = (0..steps.len()).min_by(by_heat).expect("there are instances");
        steps.swap(busiest, idlest);
        put_steps(&mut self.heat, &steps);
    }

    fn operate(&mut self) {
        self.operations += 1;
        if self.operations.is_multiple_of(self.config.operations_per_flush.into()) {
            self.clean_a_page();
        }
        if self.config.operations_per_drift > 0
            && self.operations.is_multiple_of(self.config.operations_per_drift.into())
        {
            self.drift();
        }
        self.scan_due += self.config.backup_pages_per_operation;
        if self.scan_due >= f64::from(self.config.backup_request_pages) {
            self.scan_due -= f64::from(self.config.backup_request_pages);
            self.scan();
        } else {
            self.use_a_page();
        }
    }

    fn use_a_page(&mut self) {
        let number = draw(&self.heat, &mut self.random);
        let instance = &mut self.instances[number];
        let table = &instance.tables[draw(&instance.heat, &mut self.random)];
        let page = table.page(&mut self.random, self.config.extent_pages);
        let update = self.random.random_bool(self.config.update_share);
        match instance.pool.access(page, update) {
            Access::Hit => {}
            Access::Miss { dirty_victim } => {
                if let Some(victim) = dirty_victim {
                    self.ask(BlockKind::Write, number, victim, 1);
                }
                self.ask(BlockKind::Read, number, page, 1);
            }
        }
    }

    /// The page cleaner writes a page of an instance drawn by heat: an instance with more changes cleans more.
    fn clean_a_page(&mut self) {
        let number = draw(&self.heat, &mut self.random);
        if let Some(page) = self.instances[number].pool.clean_oldest() {
            self.ask(BlockKind::Write, number, page, 1);
        }
    }

    fn scan(&mut self) {
        let Scan { instance, page } = self.scan;
        let rest = self.instances[instance].pool.pages() - page;
        let pages = self.config.backup_request_pages.min(rest);
        self.ask(BlockKind::Read, instance, page, pages);
        self.scan.page += pages;
        if pages == rest {
            self.scan = Scan { instance: (instance + 1) % self.instances.len(), page: 0 };
        }
    }

    /// Two extents of a table, each drawn by its size, change places in heat.
    fn drift(&mut self) {
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

    fn ask(&mut self, kind: BlockKind, instance: usize, page: u32, pages: u32) {
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
        let mut heat = running_sums(config.tables, config.table_skew);
        shuffle_steps(&mut heat, random);
        let frames = config.buffer_pool_bytes / u64::from(config.instances) / u64::from(config.page_bytes);
        let pages = from * config.extent_pages;
        Self {
            first_page: u64::from(number) * region_pages,
            tables,
            heat,
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

/// `1^-skew, 2^-skew …`, each with those before it, the last being 1.
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

/// The same steps in another order.
fn shuffle_steps(sums: &mut [f64], random: &mut Stream) {
    let mut steps = steps(sums);
    steps.shuffle(random);
    put_steps(sums, &steps);
}

fn steps(sums: &[f64]) -> Vec<f64> {
    sums.iter().scan(0.0, |before, &sum| Some(sum - std::mem::replace(before, sum))).collect()
}

fn put_steps(sums: &mut [f64], steps: &[f64]) {
    let mut running = 0.0;
    for (sum, step) in sums.iter_mut().zip(steps) {
        running += step;
        *sum = running;
    }
}

/// An index by the running sums of its weights.
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
    fn a_seed_is_one_workload() {
        let of = |seed| Innodb::new(small(), seed).take(5000).collect::<Vec<_>>();
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }

    #[test]
    fn requests_are_whole_pages_in_the_filled_part_of_the_regions() {
        let config = small();
        let region = config.volume_bytes / u64::from(config.instances);
        for request in Innodb::new(config, 1).take(50_000) {
            assert_eq!((request.first_byte % 16384, request.bytes % 16384), (0, 0));
            let within = request.end_byte() - request.first_byte / region * region;
            assert!(within as f64 <= region as f64 * 0.41, "{request:?}");
        }
    }

    #[test]
    fn after_a_turn_the_busiest_is_the_idlest() {
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
        innodb.turn();
        counted(&mut innodb);
        assert_eq!(counted(&mut innodb), (idlest, busiest));
    }

    #[test]
    fn the_buffer_pool_swallows_the_hottest() {
        let requests_of = |buffer_pool_bytes| {
            let mut innodb = Innodb::new(InnodbConfig { buffer_pool_bytes, ..small() }, 1);
            innodb.nth(20_000);
            innodb.operations()
        };
        assert!(
            requests_of(16 << 20) > requests_of(1 << 20) * 3 / 2,
            "fewer of the operations reach the disk"
        );
    }

    #[test]
    fn the_backup_reads_everything_in_order() {
        let backup = Innodb::new(small(), 1).filter(|request| request.bytes > 16384).take(1000);
        let reads: Vec<u64> = backup.map(|request| request.first_byte).collect();
        let in_order = reads.windows(2).filter(|pair| pair[1] == pair[0] + 16 * 16384).count();
        assert!(
            in_order > 970,
            "{in_order} of 999 begin where the one before ended; the rest begin a region"
        );
    }

    #[test]
    fn hot_pages_are_asked_for_far_more_often_than_the_average() {
        let config = InnodbConfig { buffer_pool_bytes: 0, backup_pages_per_operation: 0.0, ..small() };
        let mut asked = std::collections::HashMap::<u64, u32>::new();
        for request in Innodb::new(config, 1).take(100_000) {
            *asked.entry(request.first_byte).or_default() += 1;
        }
        let mut counts: Vec<u32> = asked.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u32 = counts[..counts.len() / 10].iter().sum();
        assert!(hot > 60_000, "the hottest tenth of the pages gets {hot} of 100,000");
    }
}
