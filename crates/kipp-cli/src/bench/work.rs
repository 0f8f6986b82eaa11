//! What a case must at least read and compute: figures are given as shares of the machine's limits for these.

use kipp::artifact::Artifact;
use kipp::kv::KvScheme;
use kipp_kernels::probe::PeakLoop;
use kipp_kernels::{KvLayout, kv};

use super::cases::Case;
use super::limits::{Limits, Peak};

/// Bytes and operations of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Work {
    /// Weights that every decode step reads: all layers and the output head.
    step_bytes: f64,
    /// Keys and values of one position, all layers.
    position_bytes: f64,
    /// Multiplications and additions of the layers' matrices for one token. Attention and the head, which a prompt
    /// meets once, are not counted.
    token_operations: f64,
    /// What most of them are made of.
    peak_loop: PeakLoop,
}

/// Which limit a case is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The rate of the peak loop.
    Compute,
    /// The bandwidth of the bare read.
    Memory,
}

impl Work {
    /// `peak_loop` is what the products of most weights are made of.
    pub(crate) fn new(artifact: &Artifact, kv: KvScheme, peak_loop: PeakLoop) -> Work {
        let (weights, spec) = (artifact.weights(), artifact.spec());
        let mut work = Work {
            step_bytes: weights.head.as_ref().unwrap_or(&weights.embedding).bytes.len() as f64,
            position_bytes: 0.0,
            token_operations: 0.0,
            peak_loop,
        };
        for matrix in weights.layers.iter().flat_map(|layer| layer.matrices()) {
            work.step_bytes += matrix.bytes.len() as f64;
            work.token_operations += 2.0 * matrix.rows as f64 * matrix.cols as f64;
        }
        let layout = KvLayout { scheme: kv, n_kv_heads: spec.n_kv_heads, head_dim: spec.head_dim };
        work.position_bytes = (layout.block_bytes() * spec.n_layers) as f64 / kv::BLOCK_TOKENS as f64;
        work
    }

    /// A model of so many weight bytes and operations a token, with s8 activations and no KV.
    #[cfg(test)]
    pub(crate) fn of_numbers(step_bytes: f64, token_operations: f64) -> Work {
        Work { step_bytes, position_bytes: 0.0, token_operations, peak_loop: PeakLoop::U8Dot }
    }

    /// Bytes of the weights that a step reads.
    pub(crate) fn step_bytes(&self) -> f64 {
        self.step_bytes
    }

    /// The loop that bounds a prefill.
    pub(crate) fn peak<'a>(&self, limits: &'a Limits) -> Option<&'a Peak> {
        limits.peak(self.peak_loop)
    }

    /// The part of the limit that `tok_s` of a case comes to: of the bandwidth in GB/s for decode, of the peak loop in
    /// GOP/s for prefill.
    pub(crate) fn share(&self, case: Case, tok_s: f64, limit: f64) -> f64 {
        match case {
            Case::Prefill { .. } => self.token_operations * tok_s / 1e9 / limit,
            Case::Decode { tokens, depth, sequences } => {
                // Each sequence reads its own positions, on average those of the middle step.
                let positions = sequences as f64 * (depth as f64 + tokens as f64 / 2.0);
                let step_bytes = self.step_bytes + positions * self.position_bytes;
                step_bytes * tok_s / sequences as f64 / 1e9 / limit
            }
        }
    }
}

/// Prefill is bound by arithmetic, decode by what it reads.
pub(crate) fn bound(case: Case) -> Bound {
    match case {
        Case::Prefill { .. } => Bound::Compute,
        Case::Decode { .. } => Bound::Memory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_bytes_and_operations_of_a_case() {
        let work =
            Work { step_bytes: 1e9, position_bytes: 1e6, token_operations: 2e9, peak_loop: PeakLoop::U8Dot };
        assert_eq!(work.share(Case::Prefill { tokens: 512 }, 100.0, 400.0), 0.5);
        let decode = |depth, sequences| Case::Decode { tokens: 0, depth, sequences };
        assert_eq!(work.share(decode(0, 1), 10.0, 20.0), 0.5);
        assert_eq!(work.share(decode(1000, 1), 10.0, 20.0), 1.0);
        assert_eq!(work.share(decode(0, 8), 80.0, 20.0), 0.5);
    }
}
