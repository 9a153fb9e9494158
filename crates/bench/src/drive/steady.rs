//! When a drive has settled.
//!
//! The rule of SNIA's Solid State Storage Performance Test Specification: over five rounds, no value strays from
//! their mean by more than 20 % in all (largest less smallest), and the best line through them climbs or falls by less than
//! 10 % of the mean from the first round to the last.

/// Rounds that are looked at.
pub const ROUNDS: usize = 5;

const MAX_RANGE: f64 = 0.20;
const MAX_SLOPE: f64 = 0.10;

/// Whether the last [`ROUNDS`] of `values` are steady. Fewer never are.
#[must_use]
pub fn is_steady(values: &[f64]) -> bool {
    let Some(window) = values.last_chunk::<ROUNDS>() else { return false };
    let mean = window.iter().sum::<f64>() / ROUNDS as f64;
    let (low, high) =
        window.iter().fold((f64::MAX, f64::MIN), |(low, high), &it| (low.min(it), high.max(it)));
    let middle = (ROUNDS - 1) as f64 / 2.0;
    let places = (0..ROUNDS).map(|round| round as f64 - middle);
    let (rise, run) = places
        .zip(window)
        .fold((0.0, 0.0), |(rise, run), (place, value)| (rise + place * (value - mean), run + place * place));
    let excursion = (rise / run * (ROUNDS - 1) as f64).abs();
    mean > 0.0 && high - low <= MAX_RANGE * mean && excursion <= MAX_SLOPE * mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_alike_are_steady_and_four_are_not() {
        assert!(is_steady(&[7.0, 1.0, 1.0, 1.0, 1.0, 1.0]), "what came before does not count");
        assert!(!is_steady(&[1.0; 4]));
        assert!(!is_steady(&[0.0; 5]), "nothing moved");
    }

    #[test]
    fn a_wide_range_or_a_slope_is_not_steady() {
        // The ranges are 18 % and 22 % of the mean, without a slope to speak of.
        assert!(is_steady(&[1.0, 1.09, 0.91, 1.09, 0.91]));
        assert!(!is_steady(&[1.0, 1.11, 0.89, 1.11, 0.89]));
        // Lines that fall by 8 % and by 12 % of the mean from first to last.
        assert!(is_steady(&[1.04, 1.02, 1.0, 0.98, 0.96]));
        assert!(!is_steady(&[1.06, 1.03, 1.0, 0.97, 0.94]));
    }
}
