//! Which tensor is written how, and writing it: rows decoded, rounded and encoded on all cores, a bounded piece of
//! the tensor at a time, so that memory does not grow with the model.

use kipp_kernels::Scheme;
use kipp_kernels::schemes::EncodeError;
use rayon::prelude::*;

use super::{ConvertError, Meter};
use crate::artifact::binding::{LAYER_TENSORS, Naming};
use crate::artifact::gguf::writer::TensorPlan;
use crate::artifact::{Matrix, Vector, Weights};

/// Encoded bytes held at once: large enough to keep the cores busy, small beside any model.
const PIECE_BYTES: usize = 16 << 20;

/// All tensors of the file to be, in order.
pub(super) struct Plan<'a> {
    steps: Vec<Step<'a>>,
}

/// One tensor to write.
pub(super) struct Step<'a> {
    name: String,
    shape: Vec<usize>,
    source: Matrix<'a>,
    scheme: Scheme,
    /// The scheme asked for, where the rows do not allow it.
    refused: Option<Scheme>,
}

impl<'a> Plan<'a> {
    /// Norms become f32, which is exact; embedding and head get `head`, the others `scheme`.
    pub(super) fn new(weights: &Weights<'a>, scheme: Scheme, head: Scheme) -> Plan<'a> {
        let naming = Naming::Gguf;
        let mut steps = vec![Step::matrix(naming.embedding().to_owned(), weights.embedding, head)];
        for (index, layer) in weights.layers.iter().enumerate() {
            let [attn_norm, q, k, v, o, q_norm, k_norm, ffn_norm, gate, up, down] =
                LAYER_TENSORS.map(|names| naming.layer(index, names));
            steps.push(Step::vector(attn_norm, layer.attn_norm));
            steps.push(Step::matrix(q, layer.q, scheme));
            steps.push(Step::matrix(k, layer.k, scheme));
            steps.push(Step::matrix(v, layer.v, scheme));
            steps.push(Step::matrix(o, layer.o, scheme));
            steps.push(Step::vector(q_norm, layer.q_norm));
            steps.push(Step::vector(k_norm, layer.k_norm));
            steps.push(Step::vector(ffn_norm, layer.ffn_norm));
            steps.push(Step::matrix(gate, layer.gate, scheme));
            steps.push(Step::matrix(up, layer.up, scheme));
            steps.push(Step::matrix(down, layer.down, scheme));
        }
        steps.push(Step::vector(naming.final_norm().to_owned(), weights.final_norm));
        steps.extend(weights.head.map(|matrix| Step::matrix(naming.head().to_owned(), matrix, head)));
        Plan { steps }
    }

    pub(super) fn steps(&self) -> &[Step<'a>] {
        &self.steps
    }

    /// Bytes of the source that will be read.
    pub(super) fn source_bytes(&self) -> u64 {
        self.steps.iter().map(|step| step.source.bytes.len() as u64).sum()
    }

    /// What the header says of each tensor.
    pub(super) fn tensors(&self) -> impl Iterator<Item = TensorPlan> {
        self.steps.iter().map(|step| TensorPlan {
            name: step.name.clone(),
            shape: step.shape.clone(),
            ggml_type: step.scheme.ggml_type(),
            bytes: step.bytes(),
        })
    }

    /// Tensors whose rows did not allow the scheme asked for.
    pub(super) fn kept_dense(&self) -> Vec<(String, Scheme)> {
        let kept = self.steps.iter().filter(|step| step.refused.is_some());
        kept.map(|step| (step.name.clone(), step.scheme)).collect()
    }
}

impl<'a> Step<'a> {
    fn matrix(name: String, source: Matrix<'a>, wanted: Scheme) -> Step<'a> {
        let fits = source.cols.is_multiple_of(wanted.group_len());
        // f16 where the source is f16, which bf16 would coarsen; else bf16, as the checkpoints are.
        let dense = if source.scheme == Scheme::F16 { Scheme::F16 } else { Scheme::Bf16 };
        Step {
            name,
            shape: vec![source.rows, source.cols],
            source,
            scheme: if fits { wanted } else { dense },
            refused: (!fits).then_some(wanted),
        }
    }

    fn vector(name: String, source: Vector<'a>) -> Step<'a> {
        let row = Matrix {
            name: source.name,
            scheme: source.scheme,
            rows: 1,
            cols: source.len,
            bytes: source.bytes,
        };
        Step { name, shape: vec![source.len], source: row, scheme: Scheme::F32, refused: None }
    }

    fn row_bytes(&self) -> usize {
        self.source.cols / self.scheme.group_len() * self.scheme.group_bytes()
    }

    /// Size of the tensor in the new file.
    pub(super) fn bytes(&self) -> u64 {
        self.source.rows as u64 * self.row_bytes() as u64
    }

    /// Encodes the tensor and hands its bytes on, piece by piece.
    pub(super) fn write(
        &self,
        meter: &mut Meter<'_>,
        mut sink: impl FnMut(&[u8]) -> Result<(), ConvertError>,
    ) -> Result<(), ConvertError> {
        let row_bytes = self.row_bytes();
        let rows_at_once = (PIECE_BYTES / row_bytes).max(1);
        let mut piece = vec![0; rows_at_once.min(self.source.rows) * row_bytes];
        for first in (0..self.source.rows).step_by(rows_at_once) {
            let rows = rows_at_once.min(self.source.rows - first);
            let piece = &mut piece[..rows * row_bytes];
            // The first row that fails, not the first to be noticed: the same error however many threads run.
            let failed = piece
                .par_chunks_mut(row_bytes)
                .enumerate()
                .map_init(
                    || vec![0.0; self.source.cols],
                    |values, (row, out)| self.encode_row(first + row, values, out).err(),
                )
                .find_map_first(|error| error);
            if let Some(error) = failed {
                return Err(error);
            }
            sink(piece)?;
            meter.add(rows * (self.source.bytes.len() / self.source.rows))?;
        }
        Ok(())
    }

    fn encode_row(&self, row: usize, values: &mut [f32], out: &mut [u8]) -> Result<(), ConvertError> {
        self.source.decode_row(row, values);
        self.scheme.encode_row(values, out).map_err(|error| match error {
            EncodeError::NotFinite { index, value } => ConvertError::NotFinite {
                tensor: self.source.name.into(),
                index: row * self.source.cols + index,
                value,
            },
            EncodeError::ReadOnly(_) | EncodeError::Length { .. } => ConvertError::ReadOnly(self.scheme),
        })
    }
}
