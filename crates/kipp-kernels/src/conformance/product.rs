//! Matrix products: cases for every scheme and kind of activations, and what must hold of them.

use super::{F32_NMSE, Verdict, near, numbers, same_bits, whole_numbers};
use crate::activations::{Activations, GROUP_COLS};
use crate::half::{bf16_to_f32, f32_to_bf16, f32_to_f16};
use crate::schemes::Scheme;

/// A matrix as a file has it and an input.
#[derive(Clone)]
pub struct ProductCase {
    /// How the weights are stored.
    pub scheme: Scheme,
    /// How the input is coded.
    pub activations: Activations,
    /// Rows of the matrix.
    pub rows: usize,
    /// Columns of the matrix.
    pub cols: usize,
    /// Rows of the input.
    pub tokens: usize,
    /// The matrix, row-major, as in a file.
    pub weights: Vec<u8>,
    /// `[tokens, cols]`.
    pub x: Vec<f32>,
}

/// Columns near `cols` that the scheme can have.
pub fn whole_cols(scheme: Scheme, cols: usize) -> usize {
    cols.next_multiple_of(scheme.group_len())
}

/// The kinds of activations that the scheme's products may use.
pub fn kinds(scheme: Scheme) -> impl Iterator<Item = Activations> {
    Activations::ALL.iter().copied().filter(move |kind| kind.for_scheme(scheme) == *kind)
}

impl ProductCase {
    /// Arbitrary weights and inputs.
    pub fn arbitrary(
        scheme: Scheme,
        activations: Activations,
        [tokens, rows, cols]: [usize; 3],
    ) -> ProductCase {
        let seed = (tokens * 1_000_003 + rows * 1009 + cols) as u64;
        let scale = |group| 0.000_3 * (1.0 + (group % 7) as f32);
        let weights = encode(scheme, &numbers(rows * cols, seed))
            .unwrap_or_else(|| arbitrary_groups(scheme, rows * cols, scale));
        let x = numbers(tokens * cols, seed + 1);
        ProductCase { scheme, activations, rows, cols, tokens, weights, x }
    }

    /// Weights and inputs that are whole numbers, exact in every coding, so that the product is exact.
    pub fn whole(scheme: Scheme, activations: Activations, [tokens, rows, cols]: [usize; 3]) -> ProductCase {
        let mut case = ProductCase::arbitrary(scheme, activations, [tokens, rows, cols]);
        let (low, high) = match scheme {
            Scheme::Q8_0 => (-127, 127),
            Scheme::Q4_0 => (-8, 7),
            Scheme::Q4_1 => (3, 18),
            _ => (-9, 9),
        };
        let mut values = whole_numbers(rows * cols, 5, low, high);
        // The extremes in each group make its scale one.
        for group in values.chunks_mut(GROUP_COLS).filter(|group| group.len() > 1) {
            (group[0], group[1]) = (low as f32, high as f32);
        }
        let encoded = encode(scheme, &values);
        // Codes as they come, times scales as they come: thousands. Smaller inputs keep their sums within 24 bits.
        let largest = if encoded.is_some() { 127 } else { 3 };
        case.weights = encoded.unwrap_or_else(|| arbitrary_groups(scheme, rows * cols, |_| 1.0));
        case.x = whole_numbers(tokens * cols, 6, -largest, largest);
        for row in case.x.chunks_mut(cols) {
            row.chunks_mut(GROUP_COLS).for_each(|group| group[0] = -127.0);
        }
        case
    }

    /// The case with every byte of its weights this one, but for f16 scales, and every input `x`.
    pub fn with_all(mut self, byte: u8, x: f32) -> ProductCase {
        for group in self.weights.chunks_mut(self.scheme.group_bytes()) {
            let kept = group.to_vec();
            group.fill(byte);
            for &at in self.scheme.f16_at() {
                group[at..at + 2].copy_from_slice(&kept[at..at + 2]);
            }
        }
        self.x.fill(x);
        self
    }

    /// Shape and kind, for messages.
    pub fn name(&self) -> String {
        let ProductCase { rows, cols, tokens, .. } = self;
        format!("{} x {} [{tokens} tokens, {rows} x {cols}]", self.scheme.name(), self.activations.name())
    }

    /// The case with some of the tokens.
    pub fn with_tokens(&self, tokens: std::ops::Range<usize>) -> ProductCase {
        let x = self.x[tokens.start * self.cols..tokens.end * self.cols].to_vec();
        ProductCase { tokens: tokens.len(), x, ..self.clone() }
    }

    /// The product in f64 over the decoded weights and the input as coded, `[tokens, rows]`.
    pub fn reference(&self) -> Vec<f64> {
        let mut decoded = vec![0.0; self.rows * self.cols];
        self.scheme.decode_row(&self.weights, &mut decoded);
        let mut out = Vec::with_capacity(self.tokens * self.rows);
        for x in self.x.chunks(self.cols) {
            let x = as_coded(self.activations, x);
            for w in decoded.chunks(self.cols) {
                out.push(w.iter().zip(&x).map(|(w, x)| f64::from(*w) * x).sum());
            }
        }
        out
    }
}

/// Encodes a matrix whose rows are whole groups; `None` if the scheme is only read.
fn encode(scheme: Scheme, values: &[f32]) -> Option<Vec<u8>> {
    let mut bytes = vec![0; scheme.row_bytes(values.len())?];
    scheme.encode_row(values, &mut bytes).ok().map(|()| bytes)
}

/// Groups of arbitrary bytes, their f16 scales given by the group's index.
fn arbitrary_groups(scheme: Scheme, weights: usize, scale: impl Fn(usize) -> f32) -> Vec<u8> {
    let len = scheme.row_bytes(weights).unwrap_or(0);
    let mut bytes: Vec<u8> = whole_numbers(len, 11, 0, 255).iter().map(|v| *v as u8).collect();
    for (index, group) in bytes.chunks_exact_mut(scheme.group_bytes()).enumerate() {
        for &at in scheme.f16_at() {
            group[at..at + 2].copy_from_slice(&f32_to_f16(scale(index)).to_le_bytes());
        }
    }
    bytes
}

/// One row of the input as its coding means it; the rules of `activations`, written plainly.
pub(crate) fn as_coded(kind: Activations, x: &[f32]) -> Vec<f64> {
    match kind {
        Activations::F32 => x.iter().map(|v| f64::from(*v)).collect(),
        Activations::Bf16 => x.iter().map(|v| f64::from(bf16_to_f32(f32_to_bf16(*v)))).collect(),
        Activations::S8 => x
            .chunks(GROUP_COLS)
            .flat_map(|group| {
                let largest = group.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                let code = move |v: &f32| f64::from((v * (127.0 / largest)).round_ties_even());
                group.iter().map(move |v| f64::from(largest / 127.0) * code(v))
            })
            .collect(),
    }
}

/// Shapes, `[tokens, rows, cols]`, with rows and columns that are no multiple of anything where the scheme allows.
pub fn ragged_shapes(scheme: Scheme) -> Vec<[usize; 3]> {
    [[72, 37, 133], [1, 1, 1], [5, 16, 32], [13, 15, 96], [3, 33, 200], [25, 17, 64], [2, 48, 515]]
        .map(|[tokens, rows, cols]| [tokens, rows, whole_cols(scheme, cols)])
        .to_vec()
}

/// The product is that of the decoded weights and the coded input, up to f32 sums.
pub fn near_the_reference(case: &ProductCase, product: impl Fn(&ProductCase) -> Vec<f32>) -> Verdict {
    near(&case.name(), &product(case), &case.reference(), F32_NMSE)
}

/// Whole numbers come out exactly.
pub fn exact_on_whole_numbers(case: &ProductCase, product: impl Fn(&ProductCase) -> Vec<f32>) -> Verdict {
    let expected: Vec<f32> = case.reference().iter().map(|v| *v as f32 + 0.0).collect();
    let found: Vec<f32> = product(case).iter().map(|v| *v + 0.0).collect();
    same_bits(&format!("{}, whole numbers", case.name()), &found, &expected)
}

/// Each token has the bits it would have alone, for every number of tokens up to those of the case.
pub fn tokens_are_independent(case: &ProductCase, product: impl Fn(&ProductCase) -> Vec<f32>) -> Verdict {
    let alone: Vec<f32> = (0..case.tokens).flat_map(|t| product(&case.with_tokens(t..t + 1))).collect();
    for tokens in 1..=case.tokens {
        let together = product(&case.with_tokens(0..tokens));
        let what = format!("{}, {tokens} tokens against single ones", case.name());
        same_bits(&what, &together, &alone[..tokens * case.rows])?;
    }
    Ok(())
}
