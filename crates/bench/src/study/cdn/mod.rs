//! Figures of the photo CDN article: McDipper, BlockCache and RIPQ with one workload, drive and load.
//!
//! Zhou, Tang, Huang, Lloyd: "The Evolution of Advanced Caching in the Facebook CDN", 2016. All figures show the same runs of
//! [`PhotoCache`]; no parameter is tuned for a figure. The simulations without a drive are in [`sizes`].

mod demand;
mod photo_cache;
pub(super) mod sizes;
#[cfg(test)]
mod tests;

pub use demand::{Demand, photo_workload};
pub use photo_cache::{Measured as PhotoMeasured, PhotoCache};

use std::sync::Arc;

use photo_cache::PhotoRun;

use super::{Chart, Line, Outcome, Point, Runner, StudyError};

/// The workload of the runner's photo caches.
fn demand(runner: &Runner) -> Result<Arc<Demand>, StudyError> {
    runner.shared(|| Demand::of(runner))
}

/// Runs photo caches and returns their results in order.
fn photos<const N: usize>(
    runner: &Runner,
    caches: &[PhotoCache; N],
) -> Result<[PhotoMeasured; N], StudyError> {
    let demand = demand(runner)?;
    let runs = caches.each_ref().map(|cache| PhotoRun { cache: cache.clone(), demand: Arc::clone(&demand) });
    let measured = runner.run(&runs)?;
    Ok(measured.try_into().unwrap_or_else(|_| unreachable!("one for each")))
}

/// Figure 1: hit ratio against write amplification of the three policies.
pub(super) fn fig1(runner: &Runner) -> Result<Outcome, StudyError> {
    let [fifo, blocks, items] =
        photos(runner, &[PhotoCache::mcdipper(), PhotoCache::blockcache(), PhotoCache::ripq()])?;
    let gain = 100.0 * (blocks.hit_ratio - fifo.hit_ratio);
    let points = vec![
        Point::shown("hit ratio, McDipper", None, fifo.hit_ratio),
        Point::shown("hit ratio, BlockCache", None, blocks.hit_ratio),
        Point::shown("hit ratio, RIPQ", None, items.hit_ratio),
        Point::shown("BlockCache - McDipper", Some(10.0), gain).in_unit("points"),
        over_blocks(&blocks, &items),
        Point::shown("write amplification of the cache, RIPQ", None, items.alwa),
        Point::shown("write amplification of cache and drive, McDipper", Some(1.0), fifo.alwa * fifo.dlwa),
        Point::shown(
            "write amplification of cache and drive, BlockCache",
            Some(3.9),
            blocks.alwa * blocks.dlwa,
        ),
        Point::shown("write amplification of cache and drive, RIPQ", None, items.alwa * items.dlwa),
    ];
    let mark = |name, it: &PhotoMeasured| Line::marks(name, [(it.dlwa, 100.0 * it.hit_ratio)]);
    let chart = Chart {
        title: "Hit ratio against write amplification of the drive".to_owned(),
        x: "DLWA",
        y: "hit ratio, %",
        lines: vec![mark("McDipper", &fifo), mark("BlockCache", &blocks), mark("RIPQ", &items)],
    };
    Ok(Outcome { points, charts: vec![chart], notes: vec![demand(runner)?.note()] })
}

/// Figure 8: hit ratio and backend reads of BlockCache and RIPQ.
pub(super) fn fig8(runner: &Runner) -> Result<Outcome, StudyError> {
    let [blocks, items] = photos(runner, &[PhotoCache::blockcache(), PhotoCache::ripq()])?;
    let reads = |it: &PhotoMeasured| 1.0 - it.hit_ratio;
    let backend = 100.0 * (reads(&items) / reads(&blocks) - 1.0);
    let points = vec![
        Point::shown("hit ratio, BlockCache", None, blocks.hit_ratio),
        Point::shown("hit ratio, RIPQ", None, items.hit_ratio),
        over_blocks(&blocks, &items),
        Point::within("backend reads, RIPQ over BlockCache", -7.0, backend, (-25.0, -7.0)).in_unit("%"),
    ];
    Ok(Outcome { points, charts: Vec::new(), notes: vec![demand(runner)?.note()] })
}

/// The article gives 3 to 5 points.
fn over_blocks(blocks: &PhotoMeasured, items: &PhotoMeasured) -> Point {
    let gain = 100.0 * (items.hit_ratio - blocks.hit_ratio);
    Point::within("RIPQ - BlockCache", 4.0, gain, (3.0, 5.0)).in_unit("points")
}

/// Figure 9: write amplification of the drive. The article does not describe its drive, so a quarter of each published value either way is
/// accepted.
pub(super) fn fig9(runner: &Runner) -> Result<Outcome, StudyError> {
    let caches =
        [PhotoCache::mcdipper(), PhotoCache::blockcache(), PhotoCache::ripq_plain(), PhotoCache::ripq()];
    let [fifo, blocks, plain, items] = photos(runner, &caches)?;
    let points = vec![
        Point::within("dlwa, McDipper", 1.0, fifo.dlwa, (1.0, 1.02)),
        Point::within("dlwa, BlockCache", 3.9, blocks.dlwa, (2.92, 4.88)),
        Point::shown("dlwa, RIPQ without the refinements", Some(1.2), plain.dlwa),
        Point::within("dlwa, RIPQ", 1.2, items.dlwa, (1.1, 1.5)),
    ];
    let drive = "The article does not name the garbage collection of its drive. With cost-benefit, as here, BlockCache writes 3.14 and RIPQ \
                 1.46 bytes a byte; with FIFO it is 5.67 and 2.98."
        .to_owned();
    Ok(Outcome { points, charts: Vec::new(), notes: vec![demand(runner)?.note(), drive] })
}

/// Figure 10: 95th percentile latency of reading a photo from flash.
pub(super) fn fig10(runner: &Runner) -> Result<Outcome, StudyError> {
    let caches = [PhotoCache::blockcache(), PhotoCache::ripq_plain(), PhotoCache::ripq()];
    let [blocks, plain, items] = photos(runner, &caches)?;
    let us = |ns: u64| ns as f64 / 1000.0;
    let less = |it: &PhotoMeasured| 100.0 * (it.hit_p95_ns as f64 / blocks.hit_p95_ns as f64 - 1.0);
    let mut points = Vec::new();
    for (name, it) in [("BlockCache", &blocks), ("RIPQ without the refinements", &plain), ("RIPQ", &items)] {
        points.push(Point::shown(format!("p50 of hits, {name}"), None, us(it.hit_p50_ns)).in_unit("us"));
        points.push(Point::shown(format!("p95 of hits, {name}"), None, us(it.hit_p95_ns)).in_unit("us"));
        points.push(Point::shown(format!("p99 of hits, {name}"), None, us(it.hit_p99_ns)).in_unit("us"));
        points.push(Point::shown(format!("misses not filled, {name}"), None, it.unfilled));
    }
    let plain = Point::shown("p95 without the refinements, against BlockCache", None, less(&plain));
    points.push(plain.in_unit("%"));
    let all = Point::within("p95, RIPQ against BlockCache", -60.0, less(&items), (-92.0, -60.0));
    points.push(all.in_unit("%"));
    Ok(Outcome { points, charts: Vec::new(), notes: vec![demand(runner)?.note()] })
}

/// RIPQ's insertion points with placement handles, for which there is no published value.
pub(super) fn placement(runner: &Runner) -> Result<Outcome, StudyError> {
    let [mixed, placed] = photos(runner, &[PhotoCache::ripq(), PhotoCache::ripq_placed()])?;
    let us = |ns: u64| ns as f64 / 1000.0;
    let mut points = Vec::new();
    for (name, it) in [("without handles", &mixed), ("a handle a point", &placed)] {
        points.push(Point::shown(format!("dlwa, RIPQ, {name}"), None, it.dlwa));
        points.push(Point::shown(format!("hit ratio, RIPQ, {name}"), None, it.hit_ratio));
        points
            .push(Point::shown(format!("p95 of hits, RIPQ, {name}"), None, us(it.hit_p95_ns)).in_unit("us"));
    }
    Ok(Outcome { points, charts: Vec::new(), notes: vec![demand(runner)?.note()] })
}
