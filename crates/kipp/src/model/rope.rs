//! Rotary angles: cosine and sine of every position that a step meets, computed when it is met, so that no table can be
//! too short.

use crate::spec::{ModelSpec, Yarn};

/// The frequencies of a model's rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians a position, one for each rotated pair. `[head_dim / 2]`
    inv_freq: Vec<f32>,
    /// Factor on cosine and sine; 1 without YaRN.
    factor: f64,
}

impl Rope {
    /// The frequencies that the model's dimensions and scaling ask for.
    pub fn new(spec: &ModelSpec) -> Rope {
        let pairs = spec.head_dim / 2;
        let base = |i: usize| 1.0 / libm::pow(spec.rope_theta, i as f64 / pairs as f64);
        match &spec.rope_scaling {
            None => Rope { inv_freq: (0..pairs).map(|i| base(i) as f32).collect(), factor: 1.0 },
            Some(yarn) => {
                let (low, high) = yarn_ramp(yarn, spec);
                let scaled = |i: usize| {
                    let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    (base(i) / yarn.factor * ramp + base(i) * (1.0 - ramp)) as f32
                };
                Rope { inv_freq: (0..pairs).map(scaled).collect(), factor: yarn.attention_factor }
            }
        }
    }

    /// Writes the cosines and sines of one position, `[head_dim / 2]` each.
    ///
    /// The angle is a product in f32, as in the reference, so that long positions agree with it; the functions are
    /// evaluated in f64.
    pub fn fill(&self, position: usize, cos: &mut [f32], sin: &mut [f32]) {
        for ((freq, cos), sin) in self.inv_freq.iter().zip(cos).zip(sin) {
            let angle = f64::from(position as f32 * freq);
            *cos = (libm::cos(angle) * self.factor) as f32;
            *sin = (libm::sin(angle) * self.factor) as f32;
        }
    }

    /// Rotated pairs a head.
    pub fn pairs(&self) -> usize {
        self.inv_freq.len()
    }
}

/// The pairs between which YaRN goes over from extrapolation to interpolation (Peng et al. 2023, section 3.2): those
/// that turn `beta_fast` and `beta_slow` times over the original context.
fn yarn_ramp(yarn: &Yarn, spec: &ModelSpec) -> (f64, f64) {
    let pairs = spec.head_dim as f64 / 2.0;
    let turning = |turns: f64| {
        let positions = yarn.original_max_position_embeddings as f64;
        pairs * libm::log(positions / (turns * std::f64::consts::TAU)) / libm::log(spec.rope_theta)
    };
    let low = turning(yarn.beta_fast).floor().max(0.0);
    let high = turning(yarn.beta_slow).ceil().min(spec.head_dim as f64 - 1.0);
    (low, if high == low { low + 0.001 } else { high })
}
