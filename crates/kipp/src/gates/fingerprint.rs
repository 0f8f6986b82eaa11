//! Fingerprints: a number that changes when any bit of a class's logits does.

use std::collections::BTreeMap;

use super::{GATE_TOKENS, Gate, GateError, Subject, all_logits, gate_tokens};
use crate::backend::BackendInfo;

/// Frozen fingerprints by key; changed only in a commit that says why.
const FROZEN: &str = include_str!("../../../../testdata/fingerprints.json");

/// Tokens a step of the fingerprint.
const CHUNK: usize = 32;

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
#[derive(Clone, Copy, Debug)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Takes in bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash of all bytes so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

/// FNV-1a over the little-endian f32 bytes of all logits of the gates' ids, evaluated in chunks of 32.
pub fn fingerprint(logits: &[Vec<f32>]) -> u64 {
    let mut hash = Fnv::default();
    for value in logits.iter().flatten() {
        hash.update(&value.to_le_bytes());
    }
    hash.value()
}

/// The fingerprint of the model under test, as `testdata/fingerprints.json` holds it: key and value.
pub fn measure(subject: &Subject<'_>) -> Result<(String, String), GateError> {
    let tokens = gate_tokens(subject.spec.vocab_size, GATE_TOKENS);
    let mut model = (subject.load)(subject.variant(GATE_TOKENS, 1))?;
    let found = format!("{:016x}", fingerprint(&all_logits(model.as_mut(), &tokens, CHUNK)?));
    Ok((key(subject, &model.describe()), found))
}

pub(super) fn gates(subject: &Subject<'_>) -> Result<Vec<Gate>, GateError> {
    let (key, found) = measure(subject)?;
    let frozen: BTreeMap<String, String> = serde_json::from_str(FROZEN).unwrap_or_default();
    Ok(vec![match frozen.get(&key) {
        None => Gate::at_most("fingerprint", 0.0, 0.0, format!("{found}, none frozen for {key}")),
        Some(frozen) => {
            let differs = f64::from(u8::from(*frozen != found));
            Gate::at_most("fingerprint", 0.0, differs, format!("{found}, frozen {frozen} for {key}"))
        }
    }])
}

/// Model, scheme, kernel class, activations and KV: everything that may change a bit.
fn key(subject: &Subject<'_>, info: &BackendInfo) -> String {
    let (id, scheme) = (subject.artifact.id(), subject.artifact.scheme().name());
    format!("{id} {scheme} {} {} {} kv:{}", info.name, info.kernels, info.activations, subject.kv.name())
}
