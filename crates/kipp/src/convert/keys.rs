//! The metadata of a converted file: the model's dimensions and the tokenizer under llama.cpp's keys, where the file
//! comes from under `kipp.*`.

use kipp_kernels::Scheme;
use sha2::{Digest, Sha256};

use super::vocabulary::Vocabulary;
use super::{ConvertError, Meter};
use crate::artifact::Artifact;
use crate::artifact::gguf::spec::ARCHITECTURE;
use crate::artifact::gguf::writer::{GgufWriter, MetadataValue as Value};
use crate::checkpoints::Checkpoint;
use crate::spec::Yarn;

/// Version of ggml's quantized layouts that is written; readers refuse an older one.
const QUANTIZATION_VERSION: u32 = 2;
/// Bytes hashed between two reports of progress.
const HASH_PIECE_BYTES: usize = 16 << 20;

/// One weight file of the source.
pub(super) struct HashedFile {
    name: String,
    sha256: String,
}

/// Hashes every weight file of the source.
pub(super) fn hash_files(source: &Artifact, meter: &mut Meter<'_>) -> Result<Vec<HashedFile>, ConvertError> {
    let mut files = Vec::new();
    for (path, bytes) in source.weight_bytes() {
        let name = path.and_then(|path| path.file_name()).unwrap_or_default().to_string_lossy().into_owned();
        let mut hash = Sha256::new();
        for piece in bytes.chunks(HASH_PIECE_BYTES) {
            hash.update(piece);
            meter.add(piece.len())?;
        }
        let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        files.push(HashedFile { name, sha256 });
    }
    Ok(files)
}

/// The checkpoint that the source is or says to be.
fn checkpoint(source: &Artifact, files: &[HashedFile]) -> Option<&'static Checkpoint> {
    let proved = match files {
        [file] => Checkpoint::by_sha256(&file.sha256),
        _ => None,
    };
    proved.or_else(|| source.source().and_then(Checkpoint::by_source))
}

/// Architecture, dimensions, sampling defaults.
pub(super) fn model(writer: &mut GgufWriter, source: &Artifact, scheme: Scheme, files: &[HashedFile]) {
    writer.set("general.architecture", Value::String(ARCHITECTURE.to_owned()));
    writer.set("general.type", Value::String("model".to_owned()));
    // The name of a folder is not the model's: the same source gives the same bytes wherever it lies.
    if let Some(checkpoint) = checkpoint(source, files) {
        writer.set("general.name", Value::String(checkpoint.id.to_owned()));
    }
    writer.set("general.file_type", Value::U32(scheme.file_type()));
    writer.set("general.quantization_version", Value::U32(QUANTIZATION_VERSION));

    let spec = source.spec();
    let mut size = |key: &str, value: usize| writer.set(&format!("qwen3.{key}"), Value::U32(value as u32));
    size("block_count", spec.n_layers);
    size("context_length", spec.max_position_embeddings);
    size("embedding_length", spec.hidden_size);
    size("feed_forward_length", spec.intermediate_size);
    size("attention.head_count", spec.n_heads);
    size("attention.head_count_kv", spec.n_kv_heads);
    size("attention.key_length", spec.head_dim);
    size("attention.value_length", spec.head_dim);
    size("vocab_size", spec.vocab_size);
    writer.set("qwen3.rope.freq_base", Value::F32(spec.rope_theta as f32));
    writer.set("qwen3.attention.layer_norm_rms_epsilon", Value::F32(spec.rms_norm_eps));
    if let Some(yarn) = &spec.rope_scaling {
        rope_scaling(writer, yarn);
    }

    let generation = source.generation();
    let sampling = [
        ("general.sampling.temp", generation.temperature),
        ("general.sampling.top_p", generation.top_p),
        ("general.sampling.min_p", generation.min_p),
        ("general.sampling.penalty_repeat", generation.repetition_penalty),
    ];
    for (key, value) in sampling {
        if let Some(value) = value {
            writer.set(key, Value::F32(value as f32));
        }
    }
    if let Some(top_k) = generation.top_k {
        writer.set("general.sampling.top_k", Value::U32(top_k));
    }
    if let Some(do_sample) = generation.do_sample {
        writer.set("kipp.generation.do_sample", Value::Bool(do_sample));
    }
    let stops = source.stop_tokens().iter().map(|&id| id.cast_signed()).collect();
    writer.set("kipp.generation.eos_token_ids", Value::I32s(stops));
}

fn rope_scaling(writer: &mut GgufWriter, yarn: &Yarn) {
    writer.set("qwen3.rope.scaling.type", Value::String("yarn".to_owned()));
    writer.set("qwen3.rope.scaling.factor", Value::F32(yarn.factor as f32));
    let original = yarn.original_max_position_embeddings as u32;
    writer.set("qwen3.rope.scaling.original_context_length", Value::U32(original));
    let default = Yarn::new(yarn.factor, yarn.original_max_position_embeddings);
    if yarn.beta_fast != default.beta_fast {
        writer.set("qwen3.rope.scaling.yarn_beta_fast", Value::F32(yarn.beta_fast as f32));
    }
    if yarn.beta_slow != default.beta_slow {
        writer.set("qwen3.rope.scaling.yarn_beta_slow", Value::F32(yarn.beta_slow as f32));
    }
    // This format's factor multiplies YaRN's own.
    if yarn.attention_factor != default.attention_factor {
        let factor = (yarn.attention_factor / default.attention_factor) as f32;
        writer.set("qwen3.rope.scaling.attn_factor", Value::F32(factor));
    }
}

/// The vocabulary and the chat template. A source without a tokenizer gives a file that says so.
pub(super) fn tokenizer(writer: &mut GgufWriter, source: &Artifact, vocabulary: Option<&Vocabulary>) {
    let Some(vocabulary) = vocabulary else {
        writer.set("tokenizer.ggml.model", Value::String("none".to_owned()));
        return;
    };
    writer.set("tokenizer.ggml.model", Value::String("gpt2".to_owned()));
    writer.set("tokenizer.ggml.pre", Value::String(vocabulary.entries.pre.clone()));
    writer.set("tokenizer.ggml.tokens", Value::Strings(vocabulary.entries.tokens.clone()));
    let types = vocabulary.entries.kinds.iter().map(|kind| kind.to_gguf()).collect();
    writer.set("tokenizer.ggml.token_type", Value::I32s(types));
    writer.set("tokenizer.ggml.merges", Value::Strings(vocabulary.entries.merges.clone()));
    let ids = vocabulary.special_ids;
    let named = [
        ("tokenizer.ggml.eos_token_id", ids.eos),
        ("tokenizer.ggml.padding_token_id", ids.pad),
        ("tokenizer.ggml.bos_token_id", ids.bos),
    ];
    for (key, id) in named {
        if let Some(id) = id {
            writer.set(key, Value::U32(id));
        }
    }
    writer.set("tokenizer.ggml.add_bos_token", Value::Bool(ids.add_bos_token));
    if let Some(template) = source.chat_template() {
        writer.set("tokenizer.chat_template", Value::String(template.to_owned()));
    }
}

/// Source repository, revision, hashes, schemes.
pub(super) fn provenance(
    writer: &mut GgufWriter,
    source: &Artifact,
    (scheme, head): (Scheme, Scheme),
    files: Vec<HashedFile>,
) {
    if let Some(source) = source.source() {
        writer.set("kipp.source.repository", Value::String(source.repository.clone()));
        writer.set("kipp.source.revision", Value::String(source.revision.clone()));
    }
    let (names, hashes) = files.into_iter().map(|file| (file.name, file.sha256)).unzip();
    writer.set("kipp.source.files", Value::Strings(names));
    writer.set("kipp.source.sha256", Value::Strings(hashes));
    writer.set("kipp.scheme", Value::String(scheme.name().to_owned()));
    writer.set("kipp.head_scheme", Value::String(head.name().to_owned()));
}
