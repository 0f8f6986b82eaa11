//! What a model is held against: the oracle's logits on the same file. They are the same for every backend and kernel
//! class, and slow, so they are computed once.

use super::{GATE_TOKENS, Gate, GateError, Reference, gate_tokens, reference};
use crate::artifact::Artifact;
use crate::kv::KvScheme;
use crate::oracle;
use crate::spec::ModelSpec;
use crate::token::TokenId;

/// The oracle's logits of the gates' ids, with each storage of keys and values. `[tokens][vocab_size]`
pub struct Expected<'r> {
    pub(super) tokens: Vec<TokenId>,
    /// With f32 keys and values.
    pub(super) exact: Vec<Vec<f32>>,
    /// With bf16 ones.
    pub(super) rounded: Vec<Vec<f32>>,
    /// With q8_0 ones.
    pub(super) coded: Vec<Vec<f32>>,
    pub(super) reference: Option<&'r Reference>,
    gates: Vec<Gate>,
}

impl<'r> Expected<'r> {
    /// Computes them. The oracle itself is held against the `reference`, logits of another implementation.
    ///
    /// # Errors
    /// Where the context does not hold the gates' ids.
    pub fn compute(
        artifact: &Artifact,
        spec: &ModelSpec,
        reference: Option<&'r Reference>,
    ) -> Result<Expected<'r>, GateError> {
        let context = spec.context();
        if context < GATE_TOKENS {
            return Err(GateError::Context { needed: GATE_TOKENS, context });
        }
        let tokens = gate_tokens(spec.vocab_size, GATE_TOKENS);
        let weights = artifact.weights();
        let logits = |kv| oracle::logits(&weights, spec, &tokens, kv);
        Ok(Expected {
            exact: logits(KvScheme::F32),
            rounded: logits(KvScheme::Bf16),
            coded: logits(KvScheme::Q8_0),
            gates: reference.map_or_else(Vec::new, |it| reference::oracle_gates(artifact, spec, it)),
            reference,
            tokens,
        })
    }

    /// The oracle against the reference; none without one.
    pub fn gates(&self) -> &[Gate] {
        &self.gates
    }
}
