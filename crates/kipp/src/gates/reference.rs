//! The oracle and the model against logits of another implementation.
//!
//! Two layouts of a reference folder are read: `tokens.u32` with `logits.f32` (last position), both little-endian; or a
//! `manifest.json` with cases of `id`, `token_ids`, `greedy_48`, `greedy_gap`, and `ID-logits-last.f32` beside it.

use std::path::{Path, PathBuf};

use kipp_kernels::Activations;
use serde::Deserialize;

use super::compare::{CODED_LEAD, Comparison, nmse};
use super::{Gate, GateError, Subject, Variant, all_logits};
use crate::artifact::Artifact;
use crate::kv::KvScheme;
use crate::oracle;
use crate::spec::ModelSpec;
use crate::token::TokenId;

/// Why a reference cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// A file is absent or unreadable.
    #[error("reference file {path}: {error}")]
    File {
        /// Where.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A file has the wrong size.
    #[error("reference file {path}: {expected} bytes expected, {found} found")]
    Size {
        /// Where.
        path: PathBuf,
        /// Bytes.
        expected: String,
        /// Bytes.
        found: usize,
    },
    /// The manifest does not say what a manifest says.
    #[error("reference file {path}: {error}")]
    Manifest {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// An id that the model has no row for.
    #[error("reference file {path}: token {token} is outside the vocabulary of {vocab_size}")]
    Token {
        /// Where.
        path: PathBuf,
        /// The id.
        token: TokenId,
        /// Rows of the embedding.
        vocab_size: usize,
    },
    /// Greedy ids without a lead each.
    #[error("reference file {path}: case {case} has {ids} greedy ids and {leads} leads")]
    Leads {
        /// Where.
        path: PathBuf,
        /// Its id.
        case: u32,
        /// How many ids.
        ids: usize,
        /// How many leads.
        leads: usize,
    },
    /// Nothing to compare with.
    #[error("reference file {path}: no cases, or no tokens")]
    Empty {
        /// Where.
        path: PathBuf,
    },
}

/// Logits of another implementation.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    cases: Vec<Case>,
}

#[derive(Clone, Debug, PartialEq)]
struct Case {
    name: String,
    tokens: Vec<TokenId>,
    /// Of the last position. `[vocab_size]`
    logits: Vec<f32>,
    /// Greedy ids that follow, each with its lead over the runner-up.
    greedy: Vec<(TokenId, f32)>,
}

#[derive(Deserialize)]
struct Manifest {
    cases: Vec<ManifestCase>,
}

#[derive(Deserialize)]
struct ManifestCase {
    id: u32,
    token_ids: Vec<TokenId>,
    #[serde(default)]
    greedy_48: Vec<TokenId>,
    #[serde(default)]
    greedy_gap: Vec<f64>,
}

impl Reference {
    /// Reads a reference for a model of `vocab_size` rows.
    pub fn open(folder: &Path, vocab_size: usize) -> Result<Reference, ReferenceError> {
        let manifest = folder.join("manifest.json");
        let reference = if manifest.exists() {
            Reference::from_manifest(&manifest, vocab_size)?
        } else {
            let path = folder.join("tokens.u32");
            let bytes = read(&path)?;
            let (words, rest) = bytes.as_chunks::<4>();
            if !rest.is_empty() {
                let expected = "a multiple of 4".to_owned();
                return Err(ReferenceError::Size { path, expected, found: bytes.len() });
            }
            let tokens: Vec<TokenId> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
            check_tokens(&path, &tokens, vocab_size)?;
            let logits = read_f32(&folder.join("logits.f32"), vocab_size)?;
            Reference {
                cases: vec![Case { name: "reference".to_owned(), tokens, logits, greedy: Vec::new() }],
            }
        };
        Ok(reference)
    }

    fn from_manifest(path: &Path, vocab_size: usize) -> Result<Reference, ReferenceError> {
        let manifest: Manifest = serde_json::from_slice(&read(path)?)
            .map_err(|error| ReferenceError::Manifest { path: path.to_owned(), error })?;
        if manifest.cases.is_empty() {
            return Err(ReferenceError::Empty { path: path.to_owned() });
        }
        let mut cases = Vec::with_capacity(manifest.cases.len());
        for case in manifest.cases {
            check_tokens(path, &case.token_ids, vocab_size)?;
            if !case.greedy_48.is_empty() {
                check_tokens(path, &case.greedy_48, vocab_size)?;
            }
            let logits = read_f32(&path.with_file_name(format!("{}-logits-last.f32", case.id)), vocab_size)?;
            if case.greedy_48.len() != case.greedy_gap.len() {
                return Err(ReferenceError::Leads {
                    path: path.to_owned(),
                    case: case.id,
                    ids: case.greedy_48.len(),
                    leads: case.greedy_gap.len(),
                });
            }
            let leads = case.greedy_gap.iter().map(|lead| *lead as f32);
            let greedy = case.greedy_48.iter().copied().zip(leads).collect();
            cases.push(Case {
                name: format!("reference {}", case.id),
                tokens: case.token_ids,
                logits,
                greedy,
            });
        }
        Ok(Reference { cases })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ReferenceError> {
    std::fs::read(path).map_err(|error| ReferenceError::File { path: path.to_owned(), error })
}

fn read_f32(path: &Path, count: usize) -> Result<Vec<f32>, ReferenceError> {
    let bytes = read(path)?;
    if bytes.len() != count * 4 {
        let expected = (count * 4).to_string();
        return Err(ReferenceError::Size { path: path.to_owned(), expected, found: bytes.len() });
    }
    Ok(bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect())
}

fn check_tokens(path: &Path, tokens: &[TokenId], vocab_size: usize) -> Result<(), ReferenceError> {
    if tokens.is_empty() {
        return Err(ReferenceError::Empty { path: path.to_owned() });
    }
    match tokens.iter().find(|token| **token as usize >= vocab_size) {
        Some(token) => Err(ReferenceError::Token { path: path.to_owned(), token: *token, vocab_size }),
        None => Ok(()),
    }
}

/// The oracle itself: the same for every backend and kernel class.
pub(super) fn oracle_gates(artifact: &Artifact, spec: &ModelSpec, reference: &Reference) -> Vec<Gate> {
    let mut gates = Vec::new();
    for case in &reference.cases {
        let logits = std::slice::from_ref(&case.logits);
        for (kv, bound) in [(KvScheme::F32, 1e-9), (KvScheme::Bf16, 5e-5)] {
            let weights = artifact.weights();
            let states = oracle::states(&weights, spec, &case.tokens, kv);
            let last = states.final_norm.last().cloned().unwrap_or_default();
            let found = oracle::head(&weights, &[last]);
            let name = format!("oracle, {} KV: {}", kv.name(), case.name);
            gates.push(Gate::at_most(name, bound, nmse(&found, logits), "last position"));
        }
    }
    gates
}

pub(super) fn gates(subject: &Subject<'_>, reference: &Reference) -> Result<Vec<Gate>, GateError> {
    let mut gates = Vec::new();
    for case in &reference.cases {
        gates.extend(model_gates(subject, case)?);
    }
    Ok(gates)
}

/// The model with exact arithmetic must give the reference's ids; as the user chose it, wherever they are decided.
fn model_gates(subject: &Subject<'_>, case: &Case) -> Result<Vec<Gate>, GateError> {
    let mut tokens = case.tokens.clone();
    tokens.extend(case.greedy.iter().map(|(token, _)| *token));
    tokens.truncate(tokens.len() - usize::from(!case.greedy.is_empty()));
    let as_chosen = subject.variant(tokens.len(), 1);
    let exact = Variant { activations: Some(Activations::F32), kv: KvScheme::F32, ..as_chosen };
    let mut gates = Vec::new();
    for (variant, label) in [(exact, "f32 activations, f32 KV"), (as_chosen, "as chosen")] {
        let logits = all_logits((subject.load)(variant)?.as_mut(), &tokens, tokens.len())?;
        let last = &logits[case.tokens.len() - 1..];
        if label != "as chosen" {
            let value = nmse(&last[..1], std::slice::from_ref(&case.logits));
            gates.push(Gate::at_most(format!("{label}: {}", case.name), 1e-9, value, "last position"));
        }
        if !case.greedy.is_empty() {
            // What an undecided position goes on to after an end token nobody reads.
            let ended =
                case.greedy.iter().position(|(token, _)| subject.artifact.stop_tokens().contains(token));
            let until = if label == "as chosen" {
                case.greedy.len()
            } else {
                ended.map_or(case.greedy.len(), |i| i + 1)
            };
            let noise = if label == "as chosen" { CODED_LEAD } else { 0.0 };
            gates.push(greedy_gate(
                format!("{label}: greedy ids of {}", case.name),
                last,
                &case.greedy[..until],
                noise,
            ));
        }
    }
    Ok(gates)
}

/// The best ids, teacher-forced with the reference's, compared with them.
fn greedy_gate(name: String, logits: &[Vec<f32>], greedy: &[(TokenId, f32)], noise: f32) -> Gate {
    let mut comparison = Comparison { positions: greedy.len(), ..Comparison::default() };
    for (logits, (token, lead)) in logits.iter().zip(greedy) {
        match super::compare::best_and_lead(logits).0 == *token as usize {
            true => {}
            false if *lead > noise => comparison.wrong += 1,
            false => comparison.within_noise += 1,
        }
    }
    Gate::at_most(name, 0.0, comparison.wrong as f64, comparison.detail(noise))
}
