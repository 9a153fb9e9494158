//! A layout on the drive, with its predicted figures.

use super::candidate::Traffic;
use super::wear::Reads;
use super::{Figure, Layout, OverTime, Plan};

/// The layout of a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inputs {
    /// The cache.
    pub layout: Layout,
    /// Whether small and large objects have a handle each.
    pub placement: bool,
}

/// Predicted figures. `None` is unknown: write amplification without writes, and everything per time without a request rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The layout.
    pub inputs: Inputs,
    /// Share of gets that hit.
    pub hit_ratio: Option<Figure>,
    /// Share of gets that hit in DRAM.
    pub hit_ratio_dram: Option<Figure>,
    /// Bytes that the host writes over bytes of the keys and values admitted.
    pub alwa: Option<Figure>,
    /// Variation of `hit_ratio`, `hit_ratio_dram` and `alwa` over time.
    pub over_time: OverTime,
    /// Bytes that the medium writes over bytes that the host writes.
    pub dlwa: Option<Figure>,
    /// Megabytes (10^6) per second that the medium writes, at full size.
    pub nand_mb_per_second: Option<Figure>,
    /// Years until the rated endurance is used up.
    pub life_years: Option<Figure>,
    /// Embodied carbon of the DRAM and of the drives that wear out in the system's lifetime, at least one.
    pub kgco2e: Option<Figure>,
    /// Price of the DRAM and these drives in US dollars.
    pub price: Option<Figure>,
    /// Latency of a page read from flash.
    pub reads: Reads,
    /// Share of the objects that left DRAM and were too large for flash.
    pub too_large: f64,
    /// Whether flash was full when counting began. If not, a longer trace has another hit ratio.
    pub is_filled: bool,
    /// Whether no other point has as many hits for as little carbon and money.
    pub is_best: bool,
}

impl Point {
    pub(super) fn new(
        inputs: Inputs,
        traffic: &Traffic,
        (dlwa, reads): (Option<Figure>, Reads),
        rate: Option<f64>,
        plan: &Plan,
    ) -> Self {
        // A drive that is not full yet relocates less than the model, which is run until it is steady, or relocates nothing.
        let dlwa = dlwa.map(|dlwa| match traffic.is_filled {
            true => dlwa,
            false => Figure { low: dlwa.low.min(1.0), ..dlwa },
        });
        let written = rate.map(|rate| traffic.host_bytes.map(|bytes| bytes * rate));
        // Without writes there is no write amplification.
        let nand = written.map(|written| written.times(dlwa.unwrap_or(Figure::exact(1.0))));
        let years = nand.map(|nand| nand.map_down(|bytes| plan.endurance().years(bytes, 1.0)));
        let drives = years.map(|years| years.map_down(|years| (plan.prices.system_years / years).max(1.0)));
        let layout = &inputs.layout;
        let dram_gb = (layout.dram_bytes + layout.small_dram_bytes()) as f64 / 1e9;
        let (space, cost) = (&plan.card.space, &plan.card.cost);
        let kg_of_drive = space.raw_bytes as f64 / 1e9 * cost.kgco2e_per_gb;
        let usd_of_drive = space.usable_bytes as f64 / 1e9 * cost.usd_per_gb;
        let with_dram = |of_drive: f64, of_dram: f64| {
            drives.map(|drives| drives.map(|drives| drives * of_drive + dram_gb * of_dram))
        };
        Self {
            inputs,
            hit_ratio: traffic.hit_ratio,
            hit_ratio_dram: traffic.hit_ratio_dram,
            alwa: traffic.alwa,
            over_time: traffic.over_time,
            dlwa,
            nand_mb_per_second: nand.map(|nand| nand.map(|bytes| bytes / 1e6)),
            life_years: years.filter(|years| years.value.is_finite()),
            kgco2e: with_dram(kg_of_drive, plan.prices.dram_kg_per_gb),
            price: with_dram(usd_of_drive, plan.prices.dram_usd_per_gb),
            reads,
            too_large: traffic.too_large,
            is_filled: traffic.is_filled,
            is_best: false,
        }
    }

    /// The figures to maximise: hits, and negated carbon and price.
    fn merits(&self) -> Option<[f64; 3]> {
        let value = |figure: Option<Figure>| figure.map(|it| it.value);
        Some([value(self.hit_ratio)?, -value(self.kgco2e)?, -value(self.price)?])
    }
}

/// Marks the points of the Pareto front: no other point is at least as good in all figures and better in one.
pub(super) fn mark_best(points: &mut [Point]) {
    let merits: Vec<Option<[f64; 3]>> = points.iter().map(Point::merits).collect();
    for (number, point) in points.iter_mut().enumerate() {
        let Some(own) = merits[number] else { continue };
        let beats = |other: &[f64; 3]| other.iter().zip(&own).all(|(a, b)| a >= b) && *other != own;
        point.is_best = !merits.iter().flatten().any(beats);
    }
}

#[cfg(test)]
mod tests {
    use ssd::Card;

    use super::*;
    use crate::predict::{Prices, Settings, SmallEngine, WarmUp};

    fn point(hit_ratio: f64, kg: f64, usd: f64) -> Point {
        let layout = Layout {
            dram_bytes: 0,
            utilization: 1.0,
            flash_bytes: 0,
            small_share: 0.0,
            admission: 1.0,
            small: SmallEngine::Sets,
            settings: Settings::default(),
        };
        Point {
            inputs: Inputs { layout, placement: true },
            hit_ratio: Some(Figure::exact(hit_ratio)),
            hit_ratio_dram: None,
            alwa: None,
            over_time: OverTime::default(),
            dlwa: None,
            nand_mb_per_second: None,
            life_years: None,
            kgco2e: Some(Figure::exact(kg)),
            price: Some(Figure::exact(usd)),
            reads: Reads::Unknown,
            too_large: 0.0,
            is_filled: true,
            is_best: false,
        }
    }

    #[test]
    fn mark_best_selects_the_pareto_front() {
        let mut points = [
            point(0.9, 400.0, 300.0),
            point(0.8, 300.0, 200.0),
            point(0.8, 350.0, 200.0),
            point(0.7, 310.0, 190.0),
            point(0.9, 400.0, 300.0),
            Point { kgco2e: None, ..point(1.0, 0.0, 0.0) },
        ];
        mark_best(&mut points);
        assert_eq!(points.map(|it| it.is_best), [true, true, false, true, true, false]);
    }

    /// A drive of 1 TB with 1.2 TB of flash, rated for one drive write per day over 5 years.
    fn plan() -> Plan {
        let mut card = Card::load("pm9d3").unwrap();
        (card.space.usable_bytes, card.space.raw_bytes) = (1_000_000_000_000, 1_200_000_000_000);
        (card.endurance.dwpd, card.endurance.warranty_years) = (1.0, 5.0);
        (card.cost.usd_per_gb, card.cost.kgco2e_per_gb) = (0.1, 0.2);
        Plan {
            card,
            scale: None,
            requests_per_second: None,
            dram: Vec::new(),
            utilizations: Vec::new(),
            small_shares: Vec::new(),
            small: Vec::new(),
            settings: Settings::default(),
            admissions: Vec::new(),
            placements: Vec::new(),
            warm_up: WarmUp::Share(0.0),
            ignore_ttl: false,
            prices: Prices { system_years: 10.0, rated_dlwa: 1.0, dram_usd_per_gb: 4.0, dram_kg_per_gb: 1.5 },
            threads: 1,
            seed: 1,
        }
    }

    #[test]
    fn years_carbon_and_price_equal_hand_computed_values() {
        let layout = Layout { dram_bytes: 10_000_000_000, ..point(0.5, 0.0, 0.0).inputs.layout };
        // One capacity per day at 1000 requests per second and a write amplification of 2; the bounds are half and twice that.
        let bytes = 1e12 / 86_400.0 / 1000.0 / 2.0;
        let traffic = Traffic {
            too_large: 0.0,
            hit_ratio: None,
            hit_ratio_dram: None,
            alwa: None,
            over_time: OverTime::default(),
            host_bytes: Figure { value: bytes, low: bytes / 2.0, high: bytes * 2.0 },
            small_bytes: 0.0,
            reads: 0.0,
            is_filled: true,
        };
        let of = |rate| {
            let measured = (Some(Figure::exact(2.0)), Reads::Unknown);
            Point::new(Inputs { layout, placement: true }, &traffic, measured, rate, &plan())
        };
        let point = of(Some(1000.0));
        let near = |found: Option<Figure>, value: f64, low: f64, high: f64| {
            let found = found.unwrap();
            for (found, expected) in [(found.value, value), (found.low, low), (found.high, high)] {
                assert!((found / expected - 1.0).abs() < 1e-9, "{found}, not {expected}");
            }
        };
        near(point.nand_mb_per_second, 1e6 / 86_400.0, 5e5 / 86_400.0, 2e6 / 86_400.0);
        near(point.life_years, 5.0, 2.5, 10.0);
        // Two drives in ten years, at least one and at most four: 240 kg and 100 dollars each, plus 15 kg and 40 dollars for DRAM.
        near(point.kgco2e, 2.0 * 240.0 + 15.0, 240.0 + 15.0, 4.0 * 240.0 + 15.0);
        near(point.price, 2.0 * 100.0 + 40.0, 100.0 + 40.0, 4.0 * 100.0 + 40.0);
        let idle = of(Some(1e-6));
        near(idle.kgco2e, 255.0, 255.0, 255.0);
        let filling = Point::new(
            Inputs { layout, placement: true },
            &Traffic { is_filled: false, ..traffic },
            (Some(Figure { value: 3.6, low: 3.0, high: 4.2 }), Reads::Unknown),
            Some(1000.0),
            &plan(),
        );
        assert_eq!(filling.dlwa, Some(Figure { value: 3.6, low: 1.0, high: 4.2 }), "not yet relocating");
        let unknown = of(None);
        let costs = [unknown.nand_mb_per_second, unknown.life_years, unknown.kgco2e, unknown.price];
        assert_eq!((costs, unknown.dlwa), ([None; 4], Some(Figure::exact(2.0))));
    }

    /// Catches a regression: the bound of a drive without writes makes the years unknown.
    #[test]
    fn years_are_known_without_an_upper_bound() {
        let layout = point(0.5, 0.0, 0.0).inputs.layout;
        let bytes = 1e12 / 86_400.0 / 1000.0;
        let years = |host_bytes| {
            let traffic = Traffic {
                too_large: 0.0,
                hit_ratio: None,
                hit_ratio_dram: None,
                alwa: None,
                over_time: OverTime::default(),
                host_bytes,
                small_bytes: 0.0,
                reads: 0.0,
                is_filled: true,
            };
            let measured = (Some(Figure::exact(1.0)), Reads::Unknown);
            Point::new(Inputs { layout, placement: true }, &traffic, measured, Some(1000.0), &plan())
                .life_years
        };
        let found = years(Figure { value: bytes, low: 0.0, high: 2.0 * bytes }).unwrap();
        assert!((found.value - 5.0).abs() < 1e-9 && (found.low - 2.5).abs() < 1e-9, "{found:?}");
        assert!(found.high.is_infinite() && found.json()["high"].is_null());
        assert_eq!(years(Figure::exact(0.0)), None, "who writes nothing lasts for ever");
    }
}
