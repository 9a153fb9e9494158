//! The principal branch of Lambert's W: the w ≥ −1 with w·e^w = x.

/// W₀(x) for −1/e ≤ x ≤ 0, accurate to a few units in the last place; `None` outside that interval.
///
/// Halley's iteration (Corless et al., "On the Lambert W function", 1996, eq. 5.9) from the series around the branch
/// point (eq. 4.22) or, nearer to zero, from x·(1 − x). One branch on one interval does not justify a dependency.
pub(super) fn w0(x: f64) -> Option<f64> {
    let branch_point = -(-1.0_f64).exp();
    if !(branch_point..=0.0).contains(&x) {
        return None;
    }
    if x == branch_point {
        return Some(-1.0);
    }
    let p = (2.0 * (1.0 + std::f64::consts::E * x)).max(0.0).sqrt();
    let mut w = if x < -0.25 { -1.0 + p - p * p / 3.0 + 11.0 / 72.0 * p.powi(3) } else { x * (1.0 - x) };
    for _ in 0..20 {
        let e = w.exp();
        let off = w * e - x;
        let step = off / (e * (w + 1.0) - (w + 2.0) * off / (2.0 * w + 2.0));
        if !step.is_finite() {
            break;
        }
        w -= step;
        if step.abs() <= 1e-16 * w.abs() {
            break;
        }
    }
    Some(w)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w0_inverts_w_times_e_to_the_w() {
        for step in 1..1000 {
            let w = -f64::from(step) / 1000.0;
            let found = w0(w * w.exp()).unwrap();
            // Near −1 the function is flat, so only half of the digits are accurate.
            let tolerance = if w < -0.99 { 1e-7 } else { 1e-12 };
            assert!((found - w).abs() < tolerance, "{w}: {found}");
        }
    }

    #[test]
    fn w0_is_exact_at_its_bounds_and_undefined_outside() {
        assert_eq!(w0(0.0), Some(0.0));
        assert_eq!(w0(-(-1.0_f64).exp()), Some(-1.0));
        assert_eq!((w0(-0.5), w0(0.1), w0(f64::NAN)), (None, None, None));
    }
}
