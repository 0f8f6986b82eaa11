//! What a record says about the model: identity, schemes of its tensor classes, and the fingerprint of its logits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use kipp::ModelSpec;
use kipp::artifact::{Artifact, sha256_file};
use kipp::backend::cpu::CpuOptions;
use kipp::gates::{Subject, frozen_fingerprints, measure_fingerprint, on_cpu};
use kipp::kv::KvScheme;
use serde::Serialize;

/// The model.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Model {
    pub(super) id: String,
    /// As [`kipp::artifact::Registration`] spells it, after all weight files were hashed.
    pub(super) registered: String,
    repository: Option<String>,
    revision: Option<String>,
    kind: String,
    bytes: u64,
    parameters: u64,
    /// The scheme of most weights.
    pub(super) scheme: String,
    /// Tensor class to the schemes of its matrices, by their place in the forward pass.
    schemes: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// File name to sha256. Empty where the model is part of the program, whose own hash covers it.
    sha256: BTreeMap<String, String>,
}

impl Model {
    /// Reads all weight files to hash them.
    pub(super) fn new(artifact: &Artifact) -> Result<Model> {
        let file = artifact.file();
        let source = artifact.source();
        let mut sha256 = BTreeMap::new();
        for path in artifact.weight_paths() {
            let hash = sha256_file(path).with_context(|| path.display().to_string())?;
            sha256.insert(file_name(path), hash);
        }
        Ok(Model {
            id: artifact.id(),
            registered: artifact.registration().as_str().to_owned(),
            repository: source.map(|source| source.repository.clone()),
            revision: source.map(|source| source.revision.clone()),
            kind: file.kind.as_str().to_owned(),
            bytes: file.bytes,
            parameters: artifact.parameters(),
            scheme: artifact.scheme().name().to_owned(),
            schemes: schemes(artifact),
            sha256,
        })
    }

    /// A registered one.
    #[cfg(test)]
    pub(super) fn registered() -> Model {
        Model {
            id: "qwen3-0.6b".to_owned(),
            registered: "registered".to_owned(),
            repository: None,
            revision: None,
            kind: "gguf".to_owned(),
            bytes: 1,
            parameters: 1,
            scheme: "q8_0".to_owned(),
            schemes: BTreeMap::new(),
            sha256: BTreeMap::new(),
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn schemes(artifact: &Artifact) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let weights = artifact.weights();
    let mut schemes: BTreeMap<&'static str, BTreeSet<&'static str>> = BTreeMap::new();
    let mut add = |class, scheme: kipp::Scheme| {
        schemes.entry(class).or_default().insert(scheme.name());
    };
    add("embedding", weights.embedding.scheme);
    add("norms", weights.final_norm.scheme);
    if let Some(head) = &weights.head {
        add("head", head.scheme);
    }
    for layer in &weights.layers {
        for (class, matrix) in ["q", "k", "v", "o", "gate", "up", "down"].into_iter().zip(layer.matrices()) {
            add(class, matrix.scheme);
        }
        layer.vectors().iter().for_each(|vector| add("norms", vector.scheme));
    }
    schemes
}

/// The logits of the class that was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fingerprint {
    /// Backend, kernel class, activations, KV scheme.
    class: String,
    logits: String,
    /// What is frozen for this file and class, if anything.
    frozen: Option<String>,
    /// `equal` or `differs`; `none frozen` where there is nothing to hold it against.
    pub(super) verdict: &'static str,
}

impl Fingerprint {
    /// Evaluates the gates' ids once.
    pub(crate) fn measure(
        artifact: &Artifact,
        spec: &ModelSpec,
        options: CpuOptions,
        kv: KvScheme,
    ) -> Result<Fingerprint> {
        let load = on_cpu(artifact, spec, options);
        let activations = options.activations;
        let found = measure_fingerprint(&Subject { artifact, spec, load: &load, activations, kv })?;
        let (class, logits) = found.logits.into_iter().next().context("no fingerprint")?;
        let frozen = frozen_fingerprints()?
            .into_values()
            .find(|file| file.weights == found.weights)
            .and_then(|file| file.logits.get(&class).cloned());
        let verdict = match &frozen {
            None => "none frozen",
            Some(frozen) if *frozen == logits => "equal",
            Some(_) => "differs",
        };
        Ok(Fingerprint { class, logits, frozen, verdict })
    }

    /// Held against nothing.
    #[cfg(test)]
    pub(super) fn with_verdict(verdict: &'static str) -> Fingerprint {
        Fingerprint { class: String::new(), logits: String::new(), frozen: None, verdict }
    }
}
