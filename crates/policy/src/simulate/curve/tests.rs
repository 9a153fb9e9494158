#![allow(clippy::print_stdout, reason = "a failed test prints its seed")]

use super::*;
use crate::lehmer::Lehmer64;

fn separately(capacities: &[u64], accesses: &[Access]) -> Vec<Counts> {
    let counts = capacities.iter().map(|capacity| {
        let mut simulation = Simulation::new(Lru::exact(), *capacity);
        simulation.run(accesses, &[]);
        simulation.counts()
    });
    counts.collect()
}

/// A request for `object`, or its removal.
fn access(object: u32, weight: u32, is_removal: bool) -> Access {
    Access { object, weight, now_seconds: 0, is_removal, is_set: false }
}

/// Requests with popular objects; `weight` returns the weight of an object at a request.
fn trace(requests: u32, objects: u32, removals: bool, weight: fn(u32, u32) -> u32) -> Vec<Access> {
    let mut random = Lehmer64::new(u64::from(objects));
    let draw = |number: u32| {
        let drawn = (random.draw() >> 33) as u32 % objects;
        let object = (u64::from(drawn) * u64::from(drawn) / u64::from(objects)) as u32;
        access(object, weight(object, number), removals && number % 13 == 5)
    };
    (0..requests).map(draw).collect()
}

fn assert_equal(capacities: &[u64], accesses: &[Access]) -> LruCurve {
    let mut curve = LruCurve::new(capacities);
    let (first, rest) = accesses.split_at(accesses.len() / 3);
    curve.run(first);
    assert_eq!(curve.counts(), separately(capacities, first));
    curve.run(rest);
    assert_eq!(curve.counts(), separately(capacities, accesses));
    curve
}

#[test]
fn objects_of_one_size_have_the_counts_of_separate_simulations() {
    let capacities: Vec<u64> = (0..100).map(|number| 1 + number * number / 2).rev().collect();
    for removals in [false, true] {
        let curve = assert_equal(&capacities, &trace(60_000, 5000, removals, |_, _| 1));
        assert_eq!(curve.fronts.len(), capacities.len(), "no cache needs a simulation of its own");
    }
    let scaled: Vec<u64> = capacities.iter().map(|capacity| capacity * 4096 + 7).collect();
    let curve = assert_equal(&scaled, &trace(60_000, 5000, true, |_, _| 4096));
    assert_eq!(curve.fronts.len(), scaled.len());
}

#[test]
fn objects_of_different_sizes_have_the_counts_of_separate_simulations() {
    let capacities: Vec<u64> = (1..100).map(|number| 2000 * number * number).collect();
    let curve = assert_equal(&capacities, &trace(60_000, 5000, false, |object, _| object % 7 * 999));
    assert_eq!(curve.fronts.len(), capacities.len() - 1, "2000 is less than the largest object");
}

#[test]
fn changed_sizes_and_removals_have_the_counts_of_separate_simulations() {
    let capacities: Vec<u64> = (1..60).map(|number| 2000 * number * number).collect();
    let sizes: [fn(u32, u32) -> u32; 3] = [
        |object, _| 1 + object % 7 * 999,
        |object, number| 1 + object % 7 * 999 + u32::from(number > 5000 && number.is_multiple_of(1000)),
        |_, number| if number < 20_000 { 500 } else { 700 },
    ];
    for (place, weight) in sizes.into_iter().enumerate() {
        for removals in [false, true] {
            let curve = assert_equal(&capacities, &trace(30_000, 3000, removals, weight));
            assert!(place == 0 && !removals || !curve.separate.is_empty());
        }
    }
}

#[test]
fn simulations_continue_from_the_curve() {
    let capacities = [10, 500, 40, 3000];
    let all = trace(20_000, 3000, true, |_, _| 1);
    let (first, rest) = all.split_at(11_111);
    let mut curve = LruCurve::new(&capacities);
    curve.run(first);
    let mut simulations = curve.into_simulations();
    simulations.iter_mut().for_each(|simulation| simulation.run(rest, &[]));
    let counts: Vec<Counts> = simulations.iter().map(Simulation::counts).collect();
    assert_eq!(counts, separately(&capacities, &all));
}

/// Few objects and small caches, so that all cases meet.
#[test]
fn random_traces_have_the_counts_of_separate_simulations() {
    for seed in 0..6000 {
        let mut random = Lehmer64::new(seed);
        let mut draw = |end: u64| random.below(end) as u32;
        let capacities: Vec<u64> = (0..=draw(7)).map(|_| 1 + u64::from(draw(40))).collect();
        let accesses = (0..=draw(300)).map(|_| {
            let object = draw(12);
            let weight = match seed % 3 {
                0 => 3,
                1 => object % 5,
                _ if draw(6) == 0 => 1 + object % 3,
                _ => 2,
            };
            access(object, weight, draw(8) == 0)
        });
        let accesses: Vec<Access> = accesses.collect();
        println!("seed {seed}");
        assert_equal(&capacities, &accesses);
    }
}
