//! How random offsets are distributed (`random_distribution`), with fio's formulas.

use super::values::{bytes, percentage};
use crate::generate::random::{self, Stream};
use rand::Rng;

/// A distribution of block numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// All blocks alike.
    Uniform,
    /// A Zipf distribution with this exponent; popular blocks are scattered.
    Zipf(f64),
    /// A Pareto distribution with this parameter; popular blocks are scattered.
    Pareto(f64),
    /// A bell curve with a deviation in percent; popular blocks are scattered.
    Normal(f64),
    /// Shares of requests and of the range, each zone behind the one before.
    Zones(Vec<(f64, f64)>),
    /// Shares of requests and bytes of the range.
    AbsoluteZones(Vec<(f64, u64)>),
}

impl Distribution {
    /// Parses one direction of `random_distribution`.
    pub(super) fn parse(text: &str, kb_base: u32) -> Result<Self, String> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let number = |least: f64, most: f64, default: f64| match parameters {
            "" => Ok(default),
            text => match text.parse::<f64>() {
                Ok(value) if value > least && value < most => Ok(value),
                _ if text.contains(':') => Err(format!("{name}: a centre ({text:?}) is not supported")),
                _ => Err(format!("{name}: {text:?} is not a number between {least} and {most}")),
            },
        };
        match name.trim() {
            "random" => Ok(Self::Uniform),
            "zipf" => match number(0.0, 100.0, 1.1)? {
                1.0 => {
                    Err("zipf: fio's formula has no value for an exponent of 1; write 0.99 or 1.01".into())
                }
                exponent => Ok(Self::Zipf(exponent)),
            },
            "pareto" => number(0.0, 1.0, 0.2).map(Self::Pareto),
            "normal" | "gauss" => number(-1e-9, 100.1, 0.0).map(Self::Normal),
            "zoned" => zones(parameters),
            "zoned_abs" => absolute_zones(parameters, kb_base),
            other => Err(format!(
                "{other:?} is not a distribution; valid ones are random, zipf, pareto, normal, zoned and zoned_abs"
            )),
        }
    }
}

/// `50/5:30/15:20/80`: percent of the requests and of the range. A missing second number is what is left of the range.
fn zones(text: &str) -> Result<Distribution, String> {
    let mut zones = Vec::new();
    let mut left = 1.0_f64;
    for zone in text.split(':') {
        let (requests, space) =
            zone.split_once('/').ok_or_else(|| format!("zoned: {zone:?} is not like 50/5"))?;
        let space = if space.trim().is_empty() { left.max(0.0) } else { percentage(space)? };
        left -= space;
        zones.push((percentage(requests)?, space));
    }
    for (what, sum) in [
        ("requests", zones.iter().map(|zone| zone.0).sum::<f64>()),
        ("range", zones.iter().map(|zone| zone.1).sum::<f64>()),
    ] {
        if (sum - 1.0).abs() > 1e-6 {
            return Err(format!("zoned: the shares of the {what} add up to {:.0} %, not 100 %", sum * 100.0));
        }
    }
    zones.retain(|zone| zone.0 > 0.0 && zone.1 > 0.0);
    Ok(Distribution::Zones(zones))
}

fn absolute_zones(text: &str, kb_base: u32) -> Result<Distribution, String> {
    let mut zones = Vec::new();
    for zone in text.split(':') {
        let (requests, space) =
            zone.split_once('/').ok_or_else(|| format!("zoned_abs: {zone:?} is not like 60/20g"))?;
        zones.push((percentage(requests)?, bytes(space, kb_base)?));
    }
    let sum: f64 = zones.iter().map(|zone| zone.0).sum();
    if (sum - 1.0).abs() > 1e-6 {
        return Err(format!(
            "zoned_abs: the shares of the requests add up to {:.0} %, not 100 %",
            sum * 100.0
        ));
    }
    Ok(Distribution::AbsoluteZones(zones))
}

/// Draws block numbers from 0 to `blocks - 1`.
pub(super) struct Sampler {
    blocks: u64,
    scale: u64,
    shape: Shape,
    /// Added to each hashed number, so that the popular blocks of two jobs differ.
    shift: u64,
}

enum Shape {
    Uniform,
    Zipf(Zipf),
    Pareto {
        power: f64,
    },
    Normal {
        deviation: f64,
    },
    /// Each zone's share of requests up to its end, first block, and number of blocks.
    Zones(Vec<(f64, u64, u64)>),
}

/// Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD '94, §3.2.
struct Zipf {
    zeta_n: f64,
    second: f64,
    eta: f64,
    alpha: f64,
}

/// fio sums at most this many terms of zeta, so that large drives start quickly.
const MOST_ZETA_TERMS: u64 = 10_000_000;

impl Zipf {
    fn new(blocks: u64, exponent: f64) -> Self {
        let term = |rank: u64| (1.0 / rank as f64).powf(exponent);
        let zeta_n: f64 = (1..=blocks.min(MOST_ZETA_TERMS)).map(term).sum();
        let second = 1.0 + 0.5_f64.powf(exponent);
        let eta = (1.0 - (2.0 / blocks as f64).powf(1.0 - exponent)) / (1.0 - second / zeta_n);
        Self { zeta_n, second, eta, alpha: 1.0 / (1.0 - exponent) }
    }

    /// The rank, from 0, for a uniform draw in 0..1.
    fn rank(&self, draw: f64, blocks: u64) -> u64 {
        let scaled = draw * self.zeta_n;
        if scaled < 1.0 {
            0
        } else if scaled < self.second {
            1
        } else {
            (blocks as f64 * (self.eta * draw - self.eta + 1.0).powf(self.alpha)) as u64
        }
    }
}

impl Sampler {
    /// Draws from `distribution` over `blocks` blocks of `block_bytes`. Each stands for `scale` blocks: the share of requests to the
    /// most popular percent of a Zipf distribution depends on the number of blocks, so that ranks are drawn from all of them.
    pub(super) fn new(
        distribution: &Distribution,
        (blocks, scale): (u64, u64),
        block_bytes: u64,
        random: &mut Stream,
    ) -> Self {
        let shape = match distribution {
            Distribution::Uniform => Shape::Uniform,
            // With two blocks or fewer the formula divides by zero.
            Distribution::Zipf(exponent) if blocks > 2 => Shape::Zipf(Zipf::new(blocks * scale, *exponent)),
            Distribution::Zipf(_) => Shape::Uniform,
            Distribution::Pareto(h) => Shape::Pareto { power: h.ln() / (1.0 - h).ln() },
            Distribution::Normal(percent) => {
                let deviation = (blocks as f64 * percent / 100.0).ceil().min(blocks as f64 / 2.0);
                Shape::Normal { deviation }
            }
            Distribution::Zones(zones) => {
                let ends = zones.iter().scan(0.0, |end, zone| {
                    *end += zone.1;
                    Some((zone.0, ((blocks as f64 * *end).round() as u64).min(blocks)))
                });
                zone_table(ends, blocks)
            }
            Distribution::AbsoluteZones(zones) => {
                let ends = zones.iter().scan(0, |end, zone| {
                    *end += zone.1;
                    Some((zone.0, (*end / block_bytes).min(blocks)))
                });
                zone_table(ends, blocks)
            }
        };
        Self { blocks, scale, shape, shift: random.next_u64() }
    }

    /// The next block number.
    pub(super) fn next(&self, random: &mut Stream) -> u64 {
        let blocks = self.blocks;
        match &self.shape {
            Shape::Uniform => random::below(random.next_u64(), blocks),
            Shape::Zipf(zipf) => self.scatter(zipf.rank(unit(random), blocks * self.scale) / self.scale),
            Shape::Pareto { power } => self.scatter(((blocks - 1) as f64 * unit(random).powf(*power)) as u64),
            Shape::Normal { deviation } => {
                // The mean of twelve uniform draws, and a uniform deviation around it.
                let sum: f64 = (0..12).map(|_| unit(random)).sum();
                let around = (unit(random) - 0.5) * deviation;
                let at = (sum / 12.0 * blocks as f64 + around).clamp(0.0, (blocks - 1) as f64);
                self.scatter(at as u64)
            }
            Shape::Zones(zones) => {
                let draw = unit(random);
                let found = zones.iter().find(|zone| draw < zone.0).or(zones.last());
                found.map_or(0, |&(_, first, count)| first + random::below(random.next_u64(), count))
            }
        }
    }

    /// fio hashes ranks by a multiplication, which lets some ranks meet on one block.
    fn scatter(&self, rank: u64) -> u64 {
        const GOLDEN_RATIO: u64 = 0x61c8_8646_80b5_83eb;
        rank.wrapping_mul(GOLDEN_RATIO).wrapping_add(self.shift) % self.blocks
    }
}

fn zone_table(ends: impl Iterator<Item = (f64, u64)>, blocks: u64) -> Shape {
    let (mut share, mut first, mut table) = (0.0, 0, Vec::new());
    for (requests, end) in ends {
        share += requests;
        if end > first {
            table.push((share, first, end - first));
            first = end;
        }
    }
    if table.is_empty() {
        table.push((1.0, 0, blocks));
    }
    Shape::Zones(table)
}

/// Uniform in 0..1.
pub(super) fn unit(random: &mut Stream) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
