//! What every scheme must satisfy on every device: cases, references in plain f64 loops, and checks.
//!
//! A check takes the operation to be checked as a closure and returns what is wrong, so that the CPU classes (from
//! [`cpu`]), the GPU crates and a shipped self-test run the same code. Nothing here is fast.

pub mod attention;
pub mod cpu;
pub mod elementwise;
pub mod product;

/// Nothing wrong, or what is.
pub type Verdict = Result<(), String>;

/// The bound between an operator in f32 and its reference in f64.
pub const F32_NMSE: f64 = 1e-9;

/// Repeatable numbers in [-1, 1) with a few larger ones, from a 64-bit linear congruential generator.
pub fn numbers(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len)
        .map(|_| {
            let value = next();
            if next() > 0.98 { value * 8.0 } else { value }
        })
        .collect()
}

/// Repeatable whole numbers in `low..=high`.
pub fn whole_numbers(len: usize, seed: u64, low: i32, high: i32) -> Vec<f32> {
    let span = (high - low + 1) as f32;
    let unit = numbers(len, seed).into_iter().map(|v| (v * 0.5 + 0.5).rem_euclid(1.0));
    unit.map(|v| (v * span).floor().min(span - 1.0) + low as f32).collect()
}

/// sum (x - reference)^2 / sum reference^2.
pub fn nmse(x: &[f32], reference: &[f64]) -> f64 {
    let error: f64 = x.iter().zip(reference).map(|(x, r)| (f64::from(*x) - r).powi(2)).sum();
    error / reference.iter().map(|r| r * r).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// Checks a result against a reference by NMSE.
pub fn near(what: &str, x: &[f32], reference: &[f64], bound: f64) -> Verdict {
    if x.len() != reference.len() {
        return Err(format!("{what}: {} values, expected {}", x.len(), reference.len()));
    }
    // Written so that a NaN fails.
    match nmse(x, reference) {
        error if error <= bound => Ok(()),
        error => Err(format!("{what}: NMSE {error:.3e} over {bound:.0e}")),
    }
}

/// Checks that two results have the same bits.
pub fn same_bits(what: &str, x: &[f32], expected: &[f32]) -> Verdict {
    if x.len() != expected.len() {
        return Err(format!("{what}: {} values, expected {}", x.len(), expected.len()));
    }
    match x.iter().zip(expected).position(|(x, e)| x.to_bits() != e.to_bits()) {
        None => Ok(()),
        Some(i) => {
            let count = x.iter().zip(expected).filter(|(x, e)| x.to_bits() != e.to_bits()).count();
            Err(format!(
                "{what}: {count} of {} differ, first at {i}: {:e}, expected {:e}",
                x.len(),
                x[i],
                expected[i]
            ))
        }
    }
}
