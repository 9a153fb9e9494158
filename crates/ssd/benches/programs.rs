//! Simulated page programs per second of CPU time, and the memory of the mapping tables.
//!
//! `cargo bench -p flashwright-ssd`. Under `cargo test` the same code runs with small sizes.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use flashwright_ssd::run::{self, Order, Pattern, Writer};
use flashwright_ssd::{
    Card, Drive, Ftl, Isolation, LogicalPage, Placement, Shape, Untimed, Upkeep, VictimPolicy,
};
use rustix::time::{ClockId, clock_gettime};

fn main() {
    let is_full = std::env::args().any(|argument| argument == "--bench");
    let capacities = if is_full { 100 } else { 1 };
    for victims in
        [VictimPolicy::Greedy, VictimPolicy::Fifo, VictimPolicy::DChoices(10), VictimPolicy::CostBenefit]
    {
        random_pages(victims, capacities);
    }
    two_streams(capacities);
    extents(capacities);
    timed(capacities);
    tables();
}

/// 128 MiB in 512 units of 64 pages at 7 %: tables of 300 KB, which stay in a second-level cache.
fn small(isolation: Isolation) -> Shape {
    let (units, unit_pages) = (512, 64);
    Shape {
        block_bytes: 4096,
        page_bytes: 4096,
        unit_pages,
        units,
        reserve_units: 0,
        logical_pages: (f64::from(units * unit_pages) / 1.07) as u32,
        groups: 1,
        isolation,
    }
}

fn ftl(isolation: Isolation, victims: VictimPolicy) -> Ftl {
    let layout = small(isolation).layout().expect("a sound shape");
    Ftl::new(layout, Upkeep { victims, ..Upkeep::default() })
}

fn random_pages(victims: VictimPolicy, capacities: u64) {
    let mut ftl = ftl(Isolation::CONVENTIONAL, victims);
    let what = format!("random pages, {victims}");
    steady(&what, &mut ftl, &Pattern::one(Order::Uniform), capacities);
}

fn two_streams(capacities: u64) {
    let mut ftl = ftl(Isolation::initially_isolated(8), VictimPolicy::Greedy);
    steady("random and ring on two handles, greedy", &mut ftl, &Pattern::mixed(0.64, 0.5), capacities);
}

fn steady(what: &str, ftl: &mut Ftl, pattern: &Pattern, capacities: u64) {
    let pages = u64::from(ftl.layout().shape().logical_pages);
    let mut writer = Writer::new(pattern, ftl.layout().shape().logical_pages, 1);
    run::fill(ftl, pattern, &mut Untimed);
    run::drive(ftl, &mut writer, 6 * pages, &mut Untimed);
    ftl.reset_stats();
    let cpu_ns = processor_ns(|| run::drive(ftl, &mut writer, capacities * pages, &mut Untimed));
    report(what, ftl.stats().media_pages(), cpu_ns);
}

/// Cyclic writes of 256 consecutive pages.
fn extents(capacities: u64) {
    let mut ftl = ftl(Isolation::CONVENTIONAL, VictimPolicy::Greedy);
    let pages = ftl.layout().shape().logical_pages;
    let cpu_ns = processor_ns(|| {
        for _ in 0..10 * capacities {
            for first in (0..pages).step_by(256) {
                ftl.write(LogicalPage(first), 256.min(pages - first), Placement::DEFAULT, &mut Untimed);
            }
        }
    });
    report("extents of 256 pages, a ring", ftl.stats().media_pages(), cpu_ns);
}

fn timed(capacities: u64) {
    let card = Card::load("test").expect("a built-in card");
    let shape = small(Isolation::CONVENTIONAL);
    let mut drive = Drive::new(&card, &shape, Upkeep::default()).expect("a sound shape");
    let mut writer = Writer::new(&Pattern::one(Order::Uniform), shape.logical_pages, 1);
    let mut now_ns = 0;
    let mut write = |drive: &mut Drive, count: u64| {
        for _ in 0..count {
            let (page, _) = writer.next_write();
            now_ns = drive.write(now_ns, page, 1, Placement::DEFAULT);
        }
    };
    let pages = u64::from(shape.logical_pages);
    write(&mut drive, 10 * pages);
    drive.reset_stats();
    let cpu_ns = processor_ns(|| write(&mut drive, capacities * pages));
    report("random pages with timing, greedy", drive.ftl().stats().media_pages(), cpu_ns);
}

/// Computed size of the tables for the paper's drive, whose allocation takes long.
fn tables() {
    let layout = Card::load("pm9d3").expect("a built-in card").shape(true).layout().expect("a sound card");
    let physical = u64::from(layout.total_units()) * u64::from(layout.shape().unit_pages);
    let bytes = 4 * (physical + u64::from(layout.shape().logical_pages)) + (64 << 20);
    println!("{:45} {:12.3} GiB", "tables of 1.88 TB in pages of 4 KiB", bytes as f64 / f64::from(1 << 30));
}

fn processor_ns(work: impl FnOnce()) -> u64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
    };
    let before = now();
    work();
    now() - before
}

fn report(what: &str, programs: u64, cpu_ns: u64) {
    println!("{what:45} {:12.3} M page programs a second", programs as f64 / cpu_ns as f64 * 1e3);
}
