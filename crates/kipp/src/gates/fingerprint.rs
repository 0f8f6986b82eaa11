//! Fingerprints: a number that changes when any bit of a class's logits does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{GATE_TOKENS, Gate, GateError, Subject, all_logits, gate_tokens};
use crate::backend::BackendInfo;

/// Frozen fingerprints; changed only in a commit that says why.
const FROZEN: &str = include_str!("../../../../testdata/fingerprints.json");

/// The name of the gate that holds a fingerprint against the frozen one.
pub const FINGERPRINT: &str = "fingerprint";

/// Weight bytes up to which a file can have frozen fingerprints. Larger ones are not hashed: none is frozen.
const FROZEN_BYTES: usize = 64 << 20;

/// The fingerprints of one file: a file is its weights, whatever its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// FNV-1a 64 over the stored bytes of all matrices and the dimensions, in hexadecimal.
    pub weights: String,
    /// Kernel class, activations and KV scheme: the fingerprint of the logits, in hexadecimal.
    pub logits: BTreeMap<String, String>,
}

/// Tokens a step of the fingerprint.
const CHUNK: usize = 32;

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
#[derive(Clone, Copy, Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Takes in bytes.
    fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash of all bytes so far.
    fn value(self) -> u64 {
        self.0
    }
}

/// FNV-1a over the little-endian f32 bytes of all logits of the gates' ids, evaluated in chunks of 32.
fn fingerprint(logits: &[Vec<f32>]) -> u64 {
    let mut hash = Fnv::default();
    for value in logits.iter().flatten() {
        hash.update(&value.to_le_bytes());
    }
    hash.value()
}

/// The fingerprint of the model under test: its weights, its class, and the one entry that a frozen file would have.
pub fn measure(subject: &Subject<'_>) -> Result<Frozen, GateError> {
    let tokens = gate_tokens(subject.spec.vocab_size, GATE_TOKENS);
    let mut model = (subject.load)(subject.variant(GATE_TOKENS, 1))?;
    let found = format!("{:016x}", fingerprint(&all_logits(model.as_mut(), &tokens, CHUNK)?));
    let BackendInfo { name, kernels, activations, .. } = model.describe();
    let class = format!("{name} {kernels} {activations} kv:{}", subject.kv.name());
    Ok(Frozen { weights: identity(subject), logits: BTreeMap::from([(class, found)]) })
}

/// What is frozen, by the path of the file that it was measured on.
pub fn frozen() -> Result<BTreeMap<String, Frozen>, serde_json::Error> {
    serde_json::from_str(FROZEN)
}

/// Nothing where nothing is frozen for this file and class: a gate that compares nothing must not be counted.
pub(super) fn gates(subject: &Subject<'_>) -> Result<Vec<Gate>, GateError> {
    let weights = identity(subject);
    // A file that cannot be parsed would be an empty list: a test reads it through `frozen`.
    let frozen = frozen().unwrap_or_default();
    let Some(file) = frozen.values().find(|file| file.weights == weights) else { return Ok(Vec::new()) };
    let gate = |(class, found): (String, String)| {
        let frozen = file.logits.get(&class)?;
        let differs = f64::from(u8::from(*frozen != found));
        Some(Gate::at_most(FINGERPRINT, 0.0, differs, format!("{found}, frozen {frozen} for {class}")))
    };
    Ok(measure(subject)?.logits.into_iter().filter_map(gate).collect())
}

/// The weights, and what else flags can change of the model.
fn identity(subject: &Subject<'_>) -> String {
    let weights = subject.artifact.weights();
    let bytes: usize = weights.matrices().map(|matrix| matrix.bytes.len()).sum();
    if bytes > FROZEN_BYTES {
        return "not hashed".to_owned();
    }
    let mut hash = Fnv::default();
    weights.matrices().for_each(|matrix| hash.update(matrix.bytes));
    hash.update(format!("{:?}", subject.spec).as_bytes());
    format!("{:016x}", hash.value())
}
