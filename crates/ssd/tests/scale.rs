//! A scaled drive has the same write amplification: the numbers of units and the shares are kept, and only the pages
//! per unit change.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use flashwright_ssd::run::{self, Counted, Length, Order, Pattern};
use flashwright_ssd::{Card, Ftl, Isolation, Untimed, Upkeep};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=2;

/// The mean over several seeds. The phase of the ring relative to collection is random, and one seed is one sample of
/// it.
fn dlwa(divisor: u32, pattern: &Pattern, placed: bool) -> f64 {
    let mut shape = Card::load("pm9d3").unwrap().scaled(divisor).unwrap().shape(placed);
    if !placed {
        shape.isolation = Isolation::CONVENTIONAL;
    }
    let of_seed = |seed| {
        let upkeep = Upkeep { seed, ..Upkeep::default() };
        let mut ftl = Ftl::new(shape.clone().layout().unwrap(), upkeep);
        let length = Length { warm_up: 5.0, measured: 2.5 };
        assert_eq!(run::run(&mut ftl, pattern, length, seed, &mut Untimed, |_, _| true), Counted::All);
        ftl.stats().dlwa(shape.page_bytes).unwrap()
    };
    SEEDS.map(of_seed).sum::<f64>() / SEEDS.count() as f64
}

#[test]
fn write_amplification_of_a_quarter_size_drive_is_within_two_percent() {
    let cases = [
        ("random writes", Pattern::one(Order::Uniform), false),
        ("a cache without placement", Pattern::mixed(0.04, 0.6), false),
        ("a cache with placement", Pattern::mixed(0.04, 0.6), true),
        ("the same with 64 % in buckets", Pattern::mixed(0.64, 0.6), true),
    ];
    for (what, pattern, placed) in cases {
        let (small, large) = (dlwa(4096, &pattern, placed), dlwa(1024, &pattern, placed));
        let off = small / large - 1.0;
        assert!(
            off.abs() <= 0.02,
            "{what}: {small:.4} at 1/4096, {large:.4} at 1/1024 ({:+.2} %)",
            off * 100.0
        );
        // Checks that collection has work to do; otherwise both values would be 1.
        assert!(what == "a cache with placement" || small > 2.0, "{what}: {small:.4}");
    }
}
