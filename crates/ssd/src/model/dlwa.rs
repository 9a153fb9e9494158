//! Write amplification of uniform random writes in closed form.
//!
//! S is the space that is written, P the physical space that the data may spread over; a = P / S.

use super::lambert::w0;

/// Result of a closed form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dlwa {
    /// Share of a victim's pages that are still live.
    pub delta: f64,
    /// Pages programmed / pages the host wrote.
    pub dlwa: f64,
}

/// The reason why a closed form has no result.
pub const NO_SPARE: &str = "the physical space must be larger than the space that is written";

/// The limit of infinitely many units with infinitely many pages: δ = −(S/P)·W(−(P/S)·e^(−P/S)), DLWA = 1 / (1 − δ).
///
/// The paper's Theorem 1 (§4.2), where S is the space of small objects and P is that space plus all over-provisioning,
/// because separated large objects need none. It equals the result of Desnoyers, SYSTOR 2012, for FIFO victims (called
/// LRU there) with units of any size, and is the limit of greedy for large units.
///
/// # Errors
/// [`NO_SPARE`].
pub fn theorem_1(written: f64, physical: f64) -> Result<Dlwa, &'static str> {
    let a = ratio(written, physical)?;
    // The principal branch: the other one has the solution δ = 1, a drive that can never free a page.
    let w = w0(-a * (-a).exp()).ok_or(NO_SPARE)?;
    let delta = -w / a;
    Ok(Dlwa { delta, dlwa: 1.0 / (1.0 - delta) })
}

/// Greedy victims in units of `unit_pages` pages: Desnoyers, SYSTOR 2012, §4.2. With Np pages a unit,
/// X0 = 1/2 − (Np/a)·W(−(1 + 1/2Np)·a·e^(−(1 + 1/2Np)·a)) live pages in a victim, DLWA = Np / (Np − (X0 − 1)).
///
/// # Errors
/// [`NO_SPARE`].
pub fn greedy(written: f64, physical: f64, unit_pages: u32) -> Result<Dlwa, &'static str> {
    let a = ratio(written, physical)?;
    let pages = f64::from(unit_pages);
    let b = (1.0 + 1.0 / (2.0 * pages)) * a;
    let w = w0(-b * (-b).exp()).ok_or(NO_SPARE)?;
    let live = 0.5 - pages / a * w;
    Ok(Dlwa { delta: (live - 1.0) / pages, dlwa: pages / (pages - (live - 1.0)) })
}

fn ratio(written: f64, physical: f64) -> Result<f64, &'static str> {
    let a = physical / written;
    if a > 1.0 && a.is_finite() && written > 0.0 { Ok(a) } else { Err(NO_SPARE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "{found}, not {expected}");
    }

    #[test]
    fn theorem_1_gives_the_published_values() {
        for (op, expected) in [(0.07, 7.817_160), (0.14, 4.253_095), (0.28, 2.481_361), (0.5, 1.715_820)] {
            near(theorem_1(1.0, 1.0 + op).unwrap().dlwa, expected, 1e-6);
        }
        near(theorem_1(1.0, 2.0).unwrap().delta, 0.203_188, 1e-6);
    }

    #[test]
    fn greedy_gives_the_values_of_finite_units_and_tends_to_theorem_1() {
        let table = [
            (0.07, 32, 6.3427),
            (0.07, 64, 7.0014),
            (0.07, 256, 7.5955),
            (0.07, 1024, 7.7605),
            (0.14, 64, 4.0091),
            (0.28, 256, 2.4610),
            (0.5, 64, 1.6808),
        ];
        for (op, pages, expected) in table {
            near(greedy(1.0, 1.0 + op, pages).unwrap().dlwa, expected, 5e-5);
        }
        let endless = theorem_1(1.0, 1.14).unwrap().dlwa;
        near(greedy(1.0, 1.14, u32::MAX).unwrap().dlwa, endless, 1e-6);
    }

    #[test]
    fn closed_forms_fail_without_spare_space() {
        for physical in [1.0, 0.5, f64::NAN, f64::INFINITY] {
            assert_eq!(theorem_1(1.0, physical), Err(NO_SPARE), "{physical}");
        }
        assert_eq!(greedy(0.0, 1.0, 64), Err(NO_SPARE));
    }
}
