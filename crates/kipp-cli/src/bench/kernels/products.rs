//! Isolated projections: the products that share an input in the forward pass, on matrices of random weights. More of
//! them than the caches hold take turns, as the layers of a model do; beside it one set is used again and again.

use anyhow::Result;
use kipp::ModelSpec;
use kipp::artifact::Matrix;
use kipp::backend::cpu::CpuBackend;
use kipp::backend::{Backend, Product};
use kipp::kv::KvScheme;
use kipp_kernels::conformance::product::{ProductCase, whole_cols};
use kipp_kernels::{Activations, Scheme};

use super::input::Sequence;
use super::timing;
use crate::bench::statistics::Summary;

/// Rows of random weights; more would only repeat them with other numbers.
const RANDOM_ROWS: usize = 64;

/// Matrices of the forward pass that share one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Projection {
    pub(super) name: &'static str,
    /// Outputs of each.
    rows: Vec<usize>,
    /// Inputs.
    cols: usize,
}

impl Projection {
    /// Those of a model, in the order of the forward pass.
    pub(super) fn of(spec: &ModelSpec) -> Vec<Projection> {
        let ModelSpec { hidden_size, intermediate_size, vocab_size, .. } = *spec;
        let (q, kv) = (spec.q_width(), spec.kv_width());
        vec![
            Projection { name: "qkv", rows: vec![q, kv, kv], cols: hidden_size },
            Projection { name: "o", rows: vec![hidden_size], cols: q },
            Projection { name: "gate_up", rows: vec![intermediate_size; 2], cols: hidden_size },
            Projection { name: "down", rows: vec![hidden_size], cols: intermediate_size },
            Projection { name: "head", rows: vec![vocab_size], cols: hidden_size },
        ]
    }

    /// Multiplications and additions for `tokens` rows.
    pub(super) fn operations(&self, tokens: usize) -> f64 {
        2.0 * (self.rows.iter().sum::<usize>() * self.cols * tokens) as f64
    }
}

/// Prepared matrices of one projection, in as many sets as take turns.
pub(super) struct Weights {
    sets: Vec<Vec<<CpuBackend as Backend>::Matrix>>,
    /// Bytes of one set as a file has them.
    pub(super) set_bytes: usize,
    projection: Projection,
}

/// What one case came to.
pub(super) struct ProductTimes {
    /// Seconds of one product, sets taking turns.
    pub(super) rotating: Summary,
    /// The same with one set only.
    pub(super) reused: Summary,
    /// Multiplications and additions.
    pub(super) operations: f64,
}

impl Weights {
    /// Sets that together have at least `rotated_bytes`, and at least two.
    pub(super) fn prepare(
        backend: &mut CpuBackend,
        projection: &Projection,
        scheme: Scheme,
        rotated_bytes: usize,
    ) -> Result<Weights> {
        let cols = whole_cols(scheme, projection.cols);
        let random = ProductCase::arbitrary(scheme, Activations::F32, [1, RANDOM_ROWS, cols]).weights;
        let row_bytes = random.len() / RANDOM_ROWS;
        let rows: usize = projection.rows.iter().sum();
        let bytes = random.repeat(rows.div_ceil(RANDOM_ROWS));
        let mut set = || -> Result<Vec<_>> {
            let one = |rows: &usize| Matrix {
                name: projection.name,
                scheme,
                rows: *rows,
                cols,
                bytes: &bytes[..rows * row_bytes],
            };
            projection.rows.iter().map(|rows| Ok(backend.matrix(&one(rows))?)).collect()
        };
        let set_bytes = rows * row_bytes;
        let count = rotated_bytes.div_ceil(set_bytes.max(1)).max(2);
        let sets = (0..count).map(|_| set()).collect::<Result<Vec<_>>>()?;
        backend.seal();
        Ok(Weights { sets, set_bytes, projection: Projection { cols, ..projection.clone() } })
    }

    /// The time of one product with `tokens` rows.
    pub(super) fn measure(
        &self,
        backend: &mut CpuBackend,
        spec: &ModelSpec,
        tokens: usize,
    ) -> Result<ProductTimes> {
        let sequence = Sequence::new(backend, spec, KvScheme::F32, [0, tokens, 1])?;
        let x = sequence.rows(backend, tokens, self.projection.cols)?;
        let outs = self.projection.rows.iter().map(|rows| backend.rows(tokens, *rows));
        let mut outs = outs.collect::<Result<Vec<_>, _>>()?;
        let mut run = |set: &[<CpuBackend as Backend>::Matrix]| {
            let mut products: Vec<Product<'_, CpuBackend>> =
                set.iter().zip(&mut outs).map(|(matrix, out)| Product { matrix, out }).collect();
            backend.linear(&x, &mut products);
        };
        let rotating = timing::seconds(|turn| run(&self.sets[turn % self.sets.len()]));
        let reused = timing::seconds(|_| run(&self.sets[0]));
        sequence.end(backend)?;
        Ok(ProductTimes { rotating, reused, operations: self.projection.operations(tokens) })
    }
}
