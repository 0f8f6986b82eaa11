//! A model against the oracle on the same file.

use kipp_kernels::Activations;

use super::compare::{CODED_LEAD, Comparison, nmse};
use super::{Expected, GATE_TOKENS, Gate, GateError, Subject, Variant, all_logits};
use crate::kv::KvScheme;

/// Tokens a step: ragged over several blocks, so that matrix kernels, tails and block borders are all met.
const CHUNK: usize = 50;

/// f32 sums in another order, nothing else.
const EXACT: f64 = 1e-9;
/// Roundings to bf16 that fall to the other side where sums differ in their last bit.
const ROUNDED: f64 = 5e-5;
/// The same in a deep model, where layers amplify them.
const ROUNDED_DEEP: f64 = 2e-4;
/// 8-bit keys, values and queries, everything else in f32.
const CODED_KV: f64 = 1e-3;
/// 8-bit activations.
const CODED: f64 = 2e-3;

pub(super) fn gates(
    subject: &Subject<'_>,
    expected: &Expected<'_>,
    add: &mut dyn FnMut(Vec<Gate>),
) -> Result<(), GateError> {
    let Expected { tokens, exact, rounded, coded, .. } = expected;
    let f32_activations = Some(Activations::F32);
    let held = |activations, kv| -> Result<_, GateError> {
        let variant = Variant { activations, kv, ..subject.variant(GATE_TOKENS, 1) };
        all_logits((subject.load)(variant)?.as_mut(), tokens, CHUNK)
    };

    let logits = held(f32_activations, KvScheme::F32)?;
    add(vec![closeness("f32 activations, f32 KV: oracle", EXACT, &logits, exact)]);
    let logits = held(f32_activations, KvScheme::Bf16)?;
    add(vec![closeness("f32 activations, bf16 KV: oracle with bf16 KV", ROUNDED, &logits, rounded)]);
    let logits = held(subject.activations, subject.kv)?;
    let reference = match subject.kv {
        KvScheme::F32 => exact,
        KvScheme::Bf16 => rounded,
        KvScheme::Q8_0 => coded,
    };
    add(vec![chosen(subject, &logits, reference)]);

    let with_q8_0 = held(f32_activations, KvScheme::Q8_0)?;
    add(vec![
        closeness("f32 activations, q8_0 KV: oracle with q8_0 KV", CODED_KV, &with_q8_0, coded),
        closeness("f32 activations, q8_0 KV: oracle with bf16 KV", CODED_KV, &with_q8_0, rounded),
    ]);
    Ok(())
}

/// NMSE, and the same best id wherever the reference's lead exceeds what the NMSE bound lets two logits move.
fn closeness(name: &str, bound: f64, logits: &[Vec<f32>], reference: &[Vec<f32>]) -> Gate {
    let noise = noise_of(bound, reference);
    let comparison = Comparison::new(logits, reference, noise);
    let mut gate = Gate::at_most(name, bound, nmse(logits, reference), comparison.detail(noise));
    gate.passed &= comparison.wrong == 0;
    gate
}

/// The class as the user asked for it, teacher-forced.
fn chosen(subject: &Subject<'_>, logits: &[Vec<f32>], reference: &[Vec<f32>]) -> Gate {
    let coded = subject.artifact.weights().matrices().any(|m| m.scheme.group_len() > 1);
    let bound = match (subject.activations, coded) {
        (Some(Activations::F32), _) if subject.kv == KvScheme::F32 => EXACT,
        (Some(Activations::F32), _) if subject.kv == KvScheme::Bf16 => ROUNDED,
        (None | Some(Activations::S8), true) => CODED,
        _ if subject.kv == KvScheme::Q8_0 => CODED_KV,
        _ if subject.spec.n_layers <= 5 => ROUNDED,
        _ => ROUNDED_DEEP,
    };
    let comparison = Comparison::new(logits, reference, CODED_LEAD);
    let name = "as chosen: oracle, teacher-forced";
    let mut gate = Gate::at_most(name, bound, nmse(logits, reference), comparison.detail(CODED_LEAD));
    gate.passed &= comparison.wrong == 0;
    gate
}

/// Two logits that each move by three times the root mean square error that the bound allows.
fn noise_of(bound: f64, reference: &[Vec<f32>]) -> f32 {
    let values = reference.iter().flatten();
    let count = values.clone().count() as f64;
    let power = values.map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / count;
    (6.0 * (power * bound).sqrt()) as f32
}
