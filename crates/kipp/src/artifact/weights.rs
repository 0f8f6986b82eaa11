//! Bound weights: every tensor of the model under the name of its step, as bytes of the file.
//!
//! Opening does not read the weights. Whoever reads them anyway (preparing a matrix for a device) calls
//! [`Matrix::check_finite`] then, so that a poisoned scale is refused at load and an idle scan costs nothing.

use kipp_kernels::Scheme;
use rayon::prelude::*;

use super::error::BindingError;

/// One matrix as the file stores it: `rows` of `cols` weights.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// The tensor's name in its file.
    pub name: &'a str,
    /// How its weights are stored.
    pub scheme: Scheme,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// `[rows, row_bytes]`.
    pub bytes: &'a [u8],
}

/// One vector (a norm's weights) as the file stores it, in f32, f16 or bf16.
#[derive(Clone, Copy, Debug)]
pub struct Vector<'a> {
    /// The tensor's name in its file.
    pub name: &'a str,
    /// How its weights are stored.
    pub scheme: Scheme,
    /// Weights.
    pub len: usize,
    /// The stored weights.
    pub bytes: &'a [u8],
}

/// The weights of one layer, in the order in which the forward pass meets them. Shapes are `[rows, cols]`.
#[derive(Clone, Copy, Debug)]
pub struct LayerWeights<'a> {
    /// Norm before attention, `[hidden_size]`.
    pub attn_norm: Vector<'a>,
    /// Queries, `[n_heads * head_dim, hidden_size]`.
    pub q: Matrix<'a>,
    /// Keys, `[n_kv_heads * head_dim, hidden_size]`.
    pub k: Matrix<'a>,
    /// Values, `[n_kv_heads * head_dim, hidden_size]`.
    pub v: Matrix<'a>,
    /// Attention's output, `[hidden_size, n_heads * head_dim]`.
    pub o: Matrix<'a>,
    /// Norm of each query head, `[head_dim]`.
    pub q_norm: Vector<'a>,
    /// Norm of each key head, `[head_dim]`.
    pub k_norm: Vector<'a>,
    /// Norm before the feed-forward part, `[hidden_size]`.
    pub ffn_norm: Vector<'a>,
    /// Gate, `[intermediate_size, hidden_size]`.
    pub gate: Matrix<'a>,
    /// Up, `[intermediate_size, hidden_size]`.
    pub up: Matrix<'a>,
    /// Down, `[hidden_size, intermediate_size]`.
    pub down: Matrix<'a>,
}

/// All weights of a model.
#[derive(Clone, Debug)]
pub struct Weights<'a> {
    /// Token embedding, `[vocab_size, hidden_size]`.
    pub embedding: Matrix<'a>,
    /// One entry a layer.
    pub layers: Vec<LayerWeights<'a>>,
    /// Norm before the output head, `[hidden_size]`.
    pub final_norm: Vector<'a>,
    /// Output head, `[vocab_size, hidden_size]`; `None` when the embedding serves as the head.
    pub head: Option<Matrix<'a>>,
}

impl<'a> Matrix<'a> {
    /// The stored bytes of one row. Like indexing, it panics beyond the last row.
    pub fn row(&self, row: usize) -> &'a [u8] {
        let row_bytes = self.bytes.len() / self.rows;
        &self.bytes[row * row_bytes..][..row_bytes]
    }

    /// Decodes one row into `out`, which is `cols` long.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        self.scheme.decode_row(self.row(row), out);
    }

    /// Refuses a matrix that holds NaN or an infinity, also as a scale. Reads all of it, on all cores.
    pub fn check_finite(&self) -> Result<(), BindingError> {
        let found = (0..self.rows).into_par_iter().find_map_first(|row| {
            self.scheme.find_non_finite(self.row(row)).map(|col| row * self.cols + col)
        });
        refuse_at(self.name, found)
    }
}

impl Vector<'_> {
    /// The weights as numbers.
    pub fn decode(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.len];
        self.scheme.decode_row(self.bytes, &mut out);
        out
    }

    /// Refuses a vector that holds NaN or an infinity.
    pub fn check_finite(&self) -> Result<(), BindingError> {
        refuse_at(self.name, self.scheme.find_non_finite(self.bytes))
    }
}

fn refuse_at(tensor: &str, index: Option<usize>) -> Result<(), BindingError> {
    match index {
        Some(index) => Err(BindingError::NotFinite { tensor: tensor.into(), index }),
        None => Ok(()),
    }
}

impl<'a> LayerWeights<'a> {
    /// The layer's matrices, in order.
    pub fn matrices(&self) -> [Matrix<'a>; 7] {
        [self.q, self.k, self.v, self.o, self.gate, self.up, self.down]
    }

    /// The layer's vectors, in order.
    pub fn vectors(&self) -> [Vector<'a>; 4] {
        [self.attn_norm, self.q_norm, self.k_norm, self.ffn_norm]
    }
}

impl<'a> Weights<'a> {
    /// Every matrix that the model uses, a tied head counted once.
    pub fn matrices(&self) -> impl Iterator<Item = Matrix<'a>> {
        let layers = self.layers.iter().flat_map(LayerWeights::matrices);
        [self.embedding].into_iter().chain(layers).chain(self.head)
    }

    /// Every vector that the model uses.
    pub fn vectors(&self) -> impl Iterator<Item = Vector<'a>> {
        self.layers.iter().flat_map(LayerWeights::vectors).chain([self.final_norm])
    }

    /// Refuses weights that hold NaN or an infinity. Reads all of them.
    pub fn check_finite(&self) -> Result<(), BindingError> {
        self.vectors().try_for_each(|vector| vector.check_finite())?;
        self.matrices().try_for_each(|matrix| matrix.check_finite())
    }
}
