//! Elementwise operations in f64.

/// RMS norm of one row.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / x.len() as f64;
    let factor = 1.0 / (mean + f64::from(eps)).sqrt();
    x.iter().zip(weight).map(|(x, w)| f64::from(*x) * factor * f64::from(*w)).collect()
}

/// Rotation of the pairs (i, i + width / 2).
pub fn rope(x: &[f64], cos: &[f32], sin: &[f32]) -> Vec<f64> {
    let half = x.len() / 2;
    let angle = |i: usize| (f64::from(cos[i]), f64::from(sin[i]));
    let first = (0..half).map(|i| x[i] * angle(i).0 - x[i + half] * angle(i).1);
    let second = (0..half).map(|i| x[i + half] * angle(i).0 + x[i] * angle(i).1);
    first.chain(second).collect()
}

/// silu(gate) * up.
pub fn swiglu(gate: &[f32], up: &[f32]) -> Vec<f64> {
    let silu = |g: f64| g / (1.0 + (-g).exp());
    gate.iter().zip(up).map(|(g, u)| silu(f64::from(*g)) * f64::from(*u)).collect()
}
