//! `kipp show`: what a model is. Reads no weights but to prove a registered checkpoint.

use clap::Args;
use kipp::ModelSpec;
use kipp::artifact::{Artifact, ArtifactError, TokenizerFilesError};
use kipp::spec::Yarn;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::{EMBEDDED_MODEL, JsonArg};
use crate::outcome::Outcome;
use crate::{open, report};

/// Flags of `kipp show`.
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// A .gguf file, a Hugging Face folder, or kipp-tiny, which is part of the program
    #[arg(env = "KIPP_MODEL", default_value = EMBEDDED_MODEL)]
    model: String,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Serialize)]
struct ShowReport {
    id: String,
    registered: &'static str,
    architecture: &'static str,
    parameters: u64,
    dimensions: Dimensions,
    /// Tensor name to scheme name, in file order.
    schemes: Map<String, Value>,
    rope: Rope,
    tokenizer: Option<TokenizerReport>,
    chat_template: Option<String>,
    file: FileReport,
    source: Option<SourceReport>,
}

/// By their names in the model cards.
#[derive(Serialize)]
struct Dimensions {
    n_layers: usize,
    hidden_size: usize,
    intermediate_size: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    vocab_size: usize,
    rope_theta: f64,
    rms_norm_eps: f32,
    max_position_embeddings: usize,
    tie_word_embeddings: bool,
}

#[derive(Serialize)]
struct Rope {
    theta: f64,
    scaling: Option<Value>,
}

#[derive(Serialize)]
struct TokenizerReport {
    tokens: usize,
    added: usize,
}

#[derive(Serialize)]
struct FileReport {
    kind: &'static str,
    path: Option<String>,
    bytes: u64,
}

#[derive(Serialize)]
struct SourceReport {
    repository: String,
    revision: String,
}

/// Prints the model's description.
pub(crate) fn run(args: &ShowArgs) -> anyhow::Result<Outcome> {
    let report = ShowReport::new(&open::artifact(&args.model)?)?;
    if args.json.json {
        report::json(&report)?;
    } else {
        report::text(&report::table(&report.rows()))?;
    }
    Ok(Outcome::Done)
}

impl ShowReport {
    fn new(artifact: &Artifact) -> anyhow::Result<ShowReport> {
        let file = artifact.file();
        Ok(ShowReport {
            id: artifact.id(),
            registered: artifact.registration().as_str(),
            architecture: "qwen3",
            parameters: artifact.parameters(),
            dimensions: Dimensions::new(artifact.spec()),
            schemes: artifact.tensors().map(|t| (t.name.to_owned(), Value::from(t.scheme.name()))).collect(),
            rope: Rope {
                theta: artifact.spec().rope_theta,
                scaling: artifact.spec().rope_scaling.as_ref().map(scaling),
            },
            tokenizer: tokenizer(artifact)?,
            chat_template: artifact.chat_template().map(str::to_owned),
            file: FileReport {
                kind: file.kind.as_str(),
                path: file.path.map(|path| path.display().to_string()),
                bytes: file.bytes,
            },
            source: artifact.source().map(|source| SourceReport {
                repository: source.repository.clone(),
                revision: source.revision.clone(),
            }),
        })
    }

    /// The same as a table for people.
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        let mut rows = vec![
            row("model", format!("{} ({})", self.id, self.registered)),
            row(
                "file",
                match &self.file.path {
                    Some(path) => format!("{path} ({}, {})", self.file.kind, report::bytes(self.file.bytes)),
                    None => format!(
                        "part of this program ({}, {})",
                        self.file.kind,
                        report::bytes(self.file.bytes)
                    ),
                },
            ),
        ];
        if let Some(source) = &self.source {
            rows.push(row("source", format!("{} at {}", source.repository, source.revision)));
        }
        rows.push(row("architecture", self.architecture.to_owned()));
        rows.push(row("parameters", self.parameters.to_string()));
        if let Ok(Value::Object(dimensions)) = serde_json::to_value(&self.dimensions) {
            rows.extend(dimensions.iter().map(|(name, value)| row(name, value.to_string())));
        }
        rows.push(row(
            "rope scaling",
            match &self.rope.scaling {
                Some(scaling) => scaling.to_string(),
                None => "none".to_owned(),
            },
        ));
        rows.push(row(
            "tokenizer",
            match &self.tokenizer {
                Some(tokenizer) => format!("{} tokens, {} of them added", tokenizer.tokens, tokenizer.added),
                None => "none".to_owned(),
            },
        ));
        rows.push(row(
            "chat template",
            match &self.chat_template {
                Some(template) => format!("{} bytes", template.len()),
                None => "none".to_owned(),
            },
        ));
        rows.extend(
            self.schemes
                .iter()
                .map(|(tensor, scheme)| row(tensor, scheme.as_str().unwrap_or_default().to_owned())),
        );
        rows
    }
}

impl Dimensions {
    fn new(spec: &ModelSpec) -> Dimensions {
        Dimensions {
            n_layers: spec.n_layers,
            hidden_size: spec.hidden_size,
            intermediate_size: spec.intermediate_size,
            n_heads: spec.n_heads,
            n_kv_heads: spec.n_kv_heads,
            head_dim: spec.head_dim,
            vocab_size: spec.vocab_size,
            rope_theta: spec.rope_theta,
            rms_norm_eps: spec.rms_norm_eps,
            max_position_embeddings: spec.max_position_embeddings,
            tie_word_embeddings: spec.tie_word_embeddings,
        }
    }
}

fn scaling(yarn: &Yarn) -> Value {
    json!({
        "type": "yarn",
        "factor": yarn.factor,
        "original_max_position_embeddings": yarn.original_max_position_embeddings,
        "beta_fast": yarn.beta_fast,
        "beta_slow": yarn.beta_slow,
        "attention_factor": yarn.attention_factor,
    })
}

/// A model without tokenizer files is still a model; one with broken files is refused.
fn tokenizer(artifact: &Artifact) -> anyhow::Result<Option<TokenizerReport>> {
    let files = artifact.tokenizer_files();
    match files.source() {
        Err(ArtifactError::Tokenizer { error: TokenizerFilesError::Absent { .. }, .. }) => Ok(None),
        _ => {
            let tokenizer = open::tokenizer(files)?;
            Ok(Some(TokenizerReport { tokens: tokenizer.len(), added: tokenizer.added_len() }))
        }
    }
}
