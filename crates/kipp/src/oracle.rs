//! The executable specification: what Qwen3 computes, in plain loops over f32. No cache, no threads, no lanes, no traits.
//!
//! It shares with the rest only the bound weights and the decoding of schemes, so that a fault in a kernel, in the KV
//! cache or in the forward pass cannot hide in it. Activations are kept as columns, `[width][tokens]`: the innermost
//! loop runs over tokens, and each sum still adds its terms in ascending order.

use kipp_kernels::half::{f16_to_f32, f32_to_f16};

use crate::artifact::{Matrix, Vector, Weights};
use crate::kv::KvScheme;
use crate::spec::{ModelSpec, Yarn};
use crate::token::TokenId;

/// `[width][tokens]`
type Columns = Vec<Vec<f32>>;

/// The hidden states of every position.
#[derive(Clone, Debug, PartialEq)]
pub struct States {
    /// The residual after the first layer, for comparing step by step. `[tokens][hidden_size]`
    pub first_layer: Vec<Vec<f32>>,
    /// After the final norm. `[tokens][hidden_size]`
    pub final_norm: Vec<Vec<f32>>,
}

/// Logits of every position. `[tokens][vocab_size]`
///
/// Keys and values are rounded to what `kv` stores. Every token must be below `spec.vocab_size`.
pub fn logits(weights: &Weights<'_>, spec: &ModelSpec, tokens: &[TokenId], kv: KvScheme) -> Vec<Vec<f32>> {
    head(weights, &states(weights, spec, tokens, kv).final_norm)
}

/// All layers, and the final norm.
pub fn states(weights: &Weights<'_>, spec: &ModelSpec, tokens: &[TokenId], kv: KvScheme) -> States {
    let mut layers = Layers::new(weights, spec, tokens, kv);
    while layers.run_next() {}
    layers.into_states()
}

/// The layers one by one, for those who may give up in between.
pub struct Layers<'a> {
    weights: &'a Weights<'a>,
    spec: &'a ModelSpec,
    kv: KvScheme,
    rotation: Rotation,
    next: usize,
    /// The residual.
    x: Columns,
    first_layer: Vec<Vec<f32>>,
}

impl<'a> Layers<'a> {
    /// Before the first layer.
    pub fn new(
        weights: &'a Weights<'a>,
        spec: &'a ModelSpec,
        tokens: &[TokenId],
        kv: KvScheme,
    ) -> Layers<'a> {
        let rotation = Rotation::new(spec, tokens.len());
        let x = embed(&weights.embedding, tokens);
        Layers { weights, spec, kv, rotation, next: 0, x, first_layer: Vec::new() }
    }

    /// Runs one layer; false where there is none left.
    pub fn run_next(&mut self) -> bool {
        let Layers { weights, spec, kv, rotation, next, x, first_layer } = self;
        let Some(layer) = weights.layers.get(*next) else { return false };
        let h = rms_norm(x, &layer.attn_norm, spec.rms_norm_eps);
        let mut q = linear(&layer.q, &h);
        let mut k = linear(&layer.k, &h);
        let mut v = linear(&layer.v, &h);
        norm_and_rotate_heads(&mut q, &layer.q_norm, spec, rotation);
        norm_and_rotate_heads(&mut k, &layer.k_norm, spec, rotation);
        round_to(*kv, spec.head_dim, &mut k);
        round_to(*kv, spec.head_dim, &mut v);
        let attended = attention(&q, &k, &v, spec);
        add(x, &linear(&layer.o, &attended));

        let h = rms_norm(x, &layer.ffn_norm, spec.rms_norm_eps);
        let mut gate = linear(&layer.gate, &h);
        swiglu(&mut gate, &linear(&layer.up, &h));
        add(x, &linear(&layer.down, &gate));
        if *next == 0 {
            *first_layer = transpose(x);
        }
        *next += 1;
        true
    }

    /// The hidden states so far.
    pub fn into_states(self) -> States {
        let final_norm = rms_norm(&self.x, &self.weights.final_norm, self.spec.rms_norm_eps);
        States { first_layer: self.first_layer, final_norm: transpose(&final_norm) }
    }
}

/// The output head over some hidden states. `[tokens][vocab_size]`
pub fn head(weights: &Weights<'_>, final_norm: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let head = weights.head.as_ref().unwrap_or(&weights.embedding);
    transpose(&linear(head, &transpose(final_norm)))
}

fn embed(table: &Matrix<'_>, tokens: &[TokenId]) -> Columns {
    let mut x = vec![vec![0.0; tokens.len()]; table.cols];
    let mut row = vec![0.0; table.cols];
    for (t, token) in tokens.iter().enumerate() {
        table.decode_row(*token as usize, &mut row);
        for (column, value) in x.iter_mut().zip(&row) {
            column[t] = *value;
        }
    }
    x
}

/// `y[row] = sum over i of w[row][i] * x[i]`
fn linear(w: &Matrix<'_>, x: &[Vec<f32>]) -> Columns {
    let tokens = x[0].len();
    let mut weights = vec![0.0; w.cols];
    let mut y = Vec::with_capacity(w.rows);
    for row in 0..w.rows {
        w.decode_row(row, &mut weights);
        let mut sums = vec![0.0f32; tokens];
        for (weight, column) in weights.iter().zip(x) {
            for (sum, value) in sums.iter_mut().zip(column) {
                *sum += weight * value;
            }
        }
        y.push(sums);
    }
    y
}

/// `y = x / sqrt(mean(x^2) + eps) * weight`
fn rms_norm(x: &[Vec<f32>], weight: &Vector<'_>, eps: f32) -> Columns {
    let mut y = x.to_vec();
    norm_in_place(&mut y, &weight.decode(), eps);
    y
}

fn norm_in_place(x: &mut [Vec<f32>], weight: &[f32], eps: f32) {
    for t in 0..x[0].len() {
        let mut squares = 0.0f32;
        for column in x.iter() {
            squares += column[t] * column[t];
        }
        let scale = 1.0 / (squares / weight.len() as f32 + eps).sqrt();
        for (column, w) in x.iter_mut().zip(weight) {
            column[t] = column[t] * scale * w;
        }
    }
}

/// Each head's RMS norm, then the rotation of its pairs (i, i + head_dim / 2) by the token's position.
fn norm_and_rotate_heads(x: &mut [Vec<f32>], weight: &Vector<'_>, spec: &ModelSpec, rotation: &Rotation) {
    let weight = weight.decode();
    for head in x.chunks_mut(spec.head_dim) {
        norm_in_place(head, &weight, spec.rms_norm_eps);
        let (low, high) = head.split_at_mut(spec.head_dim / 2);
        for (pair, (a, b)) in low.iter_mut().zip(high).enumerate() {
            for t in 0..a.len() {
                let (sin, cos) = rotation.of(t, pair);
                (a[t], b[t]) = (a[t] * cos - b[t] * sin, b[t] * cos + a[t] * sin);
            }
        }
    }
}

/// Sine and cosine of every position and pair.
struct Rotation {
    pairs: usize,
    /// `[tokens][pairs]`
    sin_cos: Vec<(f32, f32)>,
}

impl Rotation {
    fn new(spec: &ModelSpec, tokens: usize) -> Rotation {
        let pairs = spec.head_dim / 2;
        let frequencies: Vec<f32> = (0..pairs).map(|pair| frequency(spec, pair) as f32).collect();
        let factor = spec.rope_scaling.as_ref().map_or(1.0, |yarn| yarn.attention_factor);
        let mut sin_cos = Vec::with_capacity(tokens * pairs);
        for position in 0..tokens {
            for frequency in &frequencies {
                let angle = f64::from(position as f32 * frequency);
                sin_cos.push(((libm::sin(angle) * factor) as f32, (libm::cos(angle) * factor) as f32));
            }
        }
        Rotation { pairs, sin_cos }
    }

    fn of(&self, position: usize, pair: usize) -> (f32, f32) {
        self.sin_cos[position * self.pairs + pair]
    }
}

/// Radians a position of one pair: theta^(-2 pair / head_dim), and with YaRN (Peng et al. 2023) divided by the factor
/// for pairs that turn less than `beta_slow` times over the original context, not for those that turn more than
/// `beta_fast` times, and in between by a linear mixture.
fn frequency(spec: &ModelSpec, pair: usize) -> f64 {
    let plain = libm::pow(spec.rope_theta, -2.0 * pair as f64 / spec.head_dim as f64);
    let Some(yarn) = &spec.rope_scaling else { return plain };
    let Yarn { factor, original_max_position_embeddings: original, beta_fast, beta_slow, .. } = yarn;
    // The (fractional) pair that makes so many turns over the original context.
    let pair_turning = |turns: f64| {
        let wavelength = *original as f64 / turns;
        spec.head_dim as f64 * libm::log(wavelength / std::f64::consts::TAU)
            / (2.0 * libm::log(spec.rope_theta))
    };
    let first = pair_turning(*beta_fast).floor().max(0.0);
    let mut last = pair_turning(*beta_slow).ceil().min(spec.head_dim as f64 - 1.0);
    if last == first {
        last += 0.001;
    }
    let interpolated = ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0);
    plain * (1.0 - interpolated) + plain / factor * interpolated
}

/// Rounds keys or values to what the cache stores.
fn round_to(kv: KvScheme, head_dim: usize, x: &mut [Vec<f32>]) {
    match kv {
        KvScheme::F32 => {}
        KvScheme::Q8_0 => x.chunks_mut(head_dim).for_each(round_head_to_q8),
        KvScheme::Bf16 => {
            for value in x.iter_mut().flatten() {
                // To the nearest bf16, ties to even; values here are finite.
                let bits = value.to_bits();
                let even = (bits >> 16) & 1;
                *value = f32::from_bits((bits + 0x7fff + even) & 0xffff_0000);
            }
        }
    }
}

/// One head's values, `[head_dim][tokens]`: each 32 dimensions of a token become whole multiples of an f16 scale, the
/// largest of them 127 times it.
fn round_head_to_q8(head: &mut [Vec<f32>]) {
    for group in head.chunks_mut(32) {
        for token in 0..group[0].len() {
            let largest = group.iter().fold(0.0f32, |m, values| m.max(values[token].abs()));
            let scale = f16_to_f32(f32_to_f16(largest / 127.0));
            for values in group.iter_mut() {
                let code = if scale == 0.0 { 0.0 } else { (values[token] / scale).round_ties_even() };
                values[token] = code.clamp(-127.0, 127.0) * scale;
            }
        }
    }
}

/// Causal attention; `n_heads / n_kv_heads` query heads share a head of keys and values.
fn attention(q: &[Vec<f32>], k: &[Vec<f32>], v: &[Vec<f32>], spec: &ModelSpec) -> Columns {
    let (dim, tokens) = (spec.head_dim, q[0].len());
    let scale = 1.0 / (dim as f32).sqrt();
    let mut out = vec![vec![0.0f32; tokens]; q.len()];
    for head in 0..spec.n_heads {
        let q = &q[head * dim..][..dim];
        let kv_head = head / (spec.n_heads / spec.n_kv_heads);
        let k = &k[kv_head * dim..][..dim];
        let v = &v[kv_head * dim..][..dim];
        for t in 0..tokens {
            let mut scores = vec![0.0f32; t + 1];
            for (q, k) in q.iter().zip(k) {
                for (score, k) in scores.iter_mut().zip(k) {
                    *score += q[t] * k;
                }
            }
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut total = 0.0f32;
            for score in &mut scores {
                *score = libm::expf((*score - largest) * scale);
                total += *score;
            }
            for (out, v) in out[head * dim..][..dim].iter_mut().zip(v) {
                let mut sum = 0.0f32;
                for (p, v) in scores.iter().zip(v) {
                    sum += p * v;
                }
                out[t] = sum / total;
            }
        }
    }
    out
}

/// `gate = silu(gate) * up`
fn swiglu(gate: &mut [Vec<f32>], up: &[Vec<f32>]) {
    for (gate, up) in gate.iter_mut().flatten().zip(up.iter().flatten()) {
        *gate = *gate / (1.0 + libm::expf(-*gate)) * up;
    }
}

fn add(x: &mut [Vec<f32>], y: &[Vec<f32>]) {
    for (x, y) in x.iter_mut().flatten().zip(y.iter().flatten()) {
        *x += y;
    }
}

/// `[width][tokens]` to `[tokens][width]`, and back.
fn transpose(x: &[Vec<f32>]) -> Columns {
    let tokens = x.first().map_or(0, Vec::len);
    (0..tokens).map(|t| x.iter().map(|column| column[t]).collect()).collect()
}
