//! Attention: cases over a paged cache and what must hold of them.

use super::product::as_coded;
use super::{F32_NMSE, Verdict, near, numbers, same_bits};
use crate::activations::Activations;
use crate::half::{bf16_to_f32, f32_to_bf16};
use crate::kv::{BLOCK_TOKENS, KvLayout, KvScheme};
use crate::schemes::Scheme;

/// A sequence's keys, values and query rows.
#[derive(Clone)]
pub struct AttentionCase {
    /// Shape of the cache.
    pub layout: KvLayout,
    /// Query heads.
    pub n_heads: usize,
    /// Absolute position of the first query row.
    pub start: usize,
    /// `[rows, n_heads * head_dim]`.
    pub q: Vec<f32>,
    /// `[start + rows, n_kv_heads * head_dim]`.
    pub k: Vec<f32>,
    /// As `k`. It has an offset: without one the sums cancel, and rounding looks like a fault.
    pub v: Vec<f32>,
    /// The physical block of each 32 positions.
    pub table: Vec<u32>,
    /// Physical blocks of the store.
    pub n_blocks: usize,
}

impl AttentionCase {
    /// Arbitrary numbers; blocks in order.
    pub fn new(layout: KvLayout, n_heads: usize, start: usize, rows: usize) -> AttentionCase {
        let positions = start + rows;
        let width = layout.n_kv_heads * layout.head_dim;
        let q = numbers(rows * n_heads * layout.head_dim, 21).iter().map(|v| v * 3.0).collect();
        let k = numbers(positions * width, 22);
        let v = numbers(positions * width, 23).iter().map(|v| v + 4.0).collect();
        let n_blocks = positions.div_ceil(BLOCK_TOKENS);
        let table = (0..n_blocks as u32).collect();
        AttentionCase { layout, n_heads, start, q, k, v, table, n_blocks }
    }

    /// Query rows.
    pub fn rows(&self) -> usize {
        self.q.len() / (self.n_heads * self.layout.head_dim)
    }

    /// Shape, for messages.
    pub fn name(&self) -> String {
        let KvLayout { scheme, n_kv_heads, head_dim } = self.layout;
        let (n_heads, start, rows) = (self.n_heads, self.start, self.rows());
        format!(
            "{} KV, {n_heads} heads over {n_kv_heads} of {head_dim}, {rows} rows from {start}",
            scheme.name()
        )
    }

    /// Some of the query rows; keys and values stay, so later positions than attended are in the cache.
    pub fn with_rows(&self, rows: std::ops::Range<usize>) -> AttentionCase {
        let width = self.n_heads * self.layout.head_dim;
        let q = self.q[rows.start * width..rows.end * width].to_vec();
        AttentionCase { q, start: self.start + rows.start, ..self.clone() }
    }

    /// The same sequence in other blocks of a larger store.
    pub fn scrambled(&self) -> AttentionCase {
        let n_blocks = 2 * self.n_blocks + 1;
        let table = (0..self.n_blocks as u32).map(|i| (2 * self.n_blocks as u32) - 2 * i).collect();
        AttentionCase { table, n_blocks, ..self.clone() }
    }

    /// Naive attention in f64 over keys and values as stored, `[rows, n_heads * head_dim]`.
    pub fn reference(&self) -> Vec<f64> {
        let KvLayout { scheme, n_kv_heads, head_dim } = self.layout;
        let (k, v) = (stored(self.layout, &self.k), stored(self.layout, &self.v));
        // A q8_0 store meets coded queries.
        let coding = if scheme == KvScheme::Q8_0 { Activations::S8 } else { Activations::F32 };
        let scale = 1.0 / (head_dim as f64).sqrt();
        let mut out = vec![0.0; self.q.len()];
        for (i, (q, out)) in self.q.chunks(head_dim).zip(out.chunks_mut(head_dim)).enumerate() {
            let (row, head, q) = (i / self.n_heads, i % self.n_heads, as_coded(coding, q));
            let kv_head = head / (self.n_heads / n_kv_heads);
            let at = |position: usize| (position * n_kv_heads + kv_head) * head_dim;
            let scores: Vec<f64> = (0..=self.start + row)
                .map(|p| q.iter().zip(&k[at(p)..]).map(|(q, k)| q * k).sum::<f64>() * scale)
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
            for (p, score) in scores.iter().enumerate() {
                let weight = (score - max).exp() / sum;
                out.iter_mut().zip(&v[at(p)..]).for_each(|(out, v)| *out += weight * v);
            }
        }
        out
    }
}

/// Keys or values, `[positions, n_kv_heads * head_dim]`, as a store gives them back.
fn stored(layout: KvLayout, values: &[f32]) -> Vec<f64> {
    match layout.scheme {
        KvScheme::F32 => values.iter().map(|v| f64::from(*v)).collect(),
        KvScheme::Bf16 => values.iter().map(|v| f64::from(bf16_to_f32(f32_to_bf16(*v)))).collect(),
        KvScheme::Q8_0 => values.chunks(layout.head_dim).flat_map(through_q8_0).collect(),
    }
}

/// One head's values encoded as a row of q8_0, padded by zeros, and decoded.
fn through_q8_0(head: &[f32]) -> Vec<f64> {
    let mut padded = head.to_vec();
    padded.resize(head.len().next_multiple_of(32), 0.0);
    let mut bytes = vec![0; Scheme::Q8_0.row_bytes(padded.len()).unwrap_or(0)];
    // Finite numbers in whole groups can be encoded; others would show as a difference.
    let _ = Scheme::Q8_0.encode_row(&padded, &mut bytes);
    Scheme::Q8_0.decode_row(&bytes, &mut padded);
    padded[..head.len()].iter().map(|v| f64::from(*v)).collect()
}

/// Lengths and starts across the borders of blocks (32), steps (128) and spans (1,024): `[start, rows]`.
pub const BORDERS: &[[usize; 2]] =
    &[[0, 1], [0, 33], [31, 2], [120, 20], [127, 1], [128, 3], [1010, 16], [1023, 2], [2047, 3]];

/// Heads over kv heads, for ratios 1, 2, 4 and 5.
pub const HEADS: &[[usize; 2]] = &[[2, 2], [4, 2], [8, 2], [5, 1]];

/// The result is that of naive attention, up to f32 sums.
pub fn near_the_reference(case: &AttentionCase, attention: impl Fn(&AttentionCase) -> Vec<f32>) -> Verdict {
    near(&case.name(), &attention(case), &case.reference(), F32_NMSE)
}

/// Bits depend neither on the blocks nor on the rows computed together.
pub fn placement_and_chunks_change_nothing(
    case: &AttentionCase,
    attention: impl Fn(&AttentionCase) -> Vec<f32>,
) -> Verdict {
    let whole = attention(case);
    same_bits(&format!("{}, scrambled blocks", case.name()), &attention(&case.scrambled()), &whole)?;
    for chunk in [1, 3, 7] {
        let parts: Vec<f32> = (0..case.rows())
            .step_by(chunk)
            .flat_map(|row| attention(&case.with_rows(row..case.rows().min(row + chunk))))
            .collect();
        same_bits(&format!("{}, {chunk} rows at once", case.name()), &parts, &whole)?;
    }
    Ok(())
}
