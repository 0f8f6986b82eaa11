//! A model's dimensions from GGUF metadata.

use super::error::GgufError;
use super::metadata::Metadata;
use crate::artifact::escaped::Escaped;
use crate::spec::{ModelSpec, Yarn};

/// The architecture that Kipp reads, as `general.architecture` names it.
pub(crate) const ARCHITECTURE: &str = "qwen3";

/// Reads the dimensions. `vocab_size` rows and `tie_word_embeddings` come from the tensors, as this format has it.
pub(crate) fn read(metadata: &Metadata, vocab_size: usize, tied: bool) -> Result<ModelSpec, GgufError> {
    refuse_unread_settings(metadata)?;
    let hidden_size = required(metadata, "qwen3.embedding_length")?;
    let n_heads = required(metadata, "qwen3.attention.head_count")?;
    let n_kv_heads = optional(metadata, "qwen3.attention.head_count_kv")?.unwrap_or(n_heads);
    // The format's own default: the embedding shared out among the heads.
    let share = || hidden_size.checked_div(n_heads).unwrap_or(0);
    let head_dim = optional(metadata, "qwen3.attention.key_length")?.unwrap_or_else(share);
    let value_dim = optional(metadata, "qwen3.attention.value_length")?.unwrap_or_else(share);
    if value_dim != head_dim {
        return Err(unsupported("qwen3.attention.value_length", value_dim, "keys and values of one length"));
    }
    if let Some(rows) = optional(metadata, "qwen3.vocab_size")?.filter(|&rows| rows != vocab_size) {
        return Err(unsupported("qwen3.vocab_size", rows, "as many as token_embd.weight has rows"));
    }
    let max_position_embeddings = required(metadata, "qwen3.context_length")?;
    Ok(ModelSpec {
        n_layers: required(metadata, "qwen3.block_count")?,
        hidden_size,
        intermediate_size: required(metadata, "qwen3.feed_forward_length")?,
        n_heads,
        n_kv_heads,
        head_dim,
        vocab_size,
        rope_theta: required_number(metadata, "qwen3.rope.freq_base")?,
        rms_norm_eps: required_number(metadata, "qwen3.attention.layer_norm_rms_epsilon")? as f32,
        max_position_embeddings,
        tie_word_embeddings: tied,
        rope_scaling: rope_scaling(metadata, max_position_embeddings)?,
    })
}

/// The architecture must be the one we know.
pub(crate) fn check_architecture(metadata: &Metadata) -> Result<(), GgufError> {
    let key = "general.architecture";
    match metadata.string(key)? {
        None => Err(GgufError::MissingKey { key: key.into() }),
        Some(ARCHITECTURE) => Ok(()),
        Some(other) => Err(unsupported(key, other, "Kipp runs qwen3")),
    }
}

/// Settings that would change the numbers and that no Qwen3 model has.
fn refuse_unread_settings(metadata: &Metadata) -> Result<(), GgufError> {
    for key in ["qwen3.attention.sliding_window", "qwen3.expert_count"] {
        if let Some(value) = metadata.unsigned(key)?.filter(|&value| value != 0) {
            return Err(unsupported(key, value, "0, or the key absent"));
        }
    }
    let key = "qwen3.rope.dimension_count";
    if let (Some(value), Some(length)) =
        (metadata.unsigned(key)?, metadata.unsigned("qwen3.attention.key_length")?)
        && value != length
    {
        return Err(unsupported(key, value, "the whole head is rotated"));
    }
    for key in [
        "qwen3.attention.scale",
        "qwen3.logit_scale",
        "qwen3.attn_logit_softcapping",
        "qwen3.final_logit_softcapping",
    ] {
        if let Some(value) = metadata.number(key)?.filter(|&value| value != 0.0) {
            return Err(unsupported(key, value, "0, or the key absent"));
        }
    }
    let key = "qwen3.attention.causal";
    if metadata.boolean(key)? == Some(false) {
        return Err(unsupported(key, "false", "causal attention"));
    }
    let key = "qwen3.rope.scale_linear";
    match metadata.number(key)?.filter(|&value| value != 1.0) {
        Some(value) => Err(unsupported(key, value, "rope scaling of type yarn")),
        None => Ok(()),
    }
}

fn rope_scaling(metadata: &Metadata, max_position_embeddings: usize) -> Result<Option<Yarn>, GgufError> {
    const KEYS: &str = "qwen3.rope.scaling.";
    match metadata.string("qwen3.rope.scaling.type")? {
        Some("yarn") => {}
        Some("none") => return Ok(None),
        Some(other) => return Err(unsupported("qwen3.rope.scaling.type", other, "yarn or none")),
        // Other keys without a type would have to be ignored or guessed at.
        None => {
            return match metadata.keys().find(|key| key.starts_with(KEYS) && !key.ends_with(".finetuned")) {
                Some(_) => Err(GgufError::MissingKey { key: "qwen3.rope.scaling.type".into() }),
                None => Ok(None),
            };
        }
    }
    let factor = required_number(metadata, "qwen3.rope.scaling.factor")?;
    let original = optional(metadata, "qwen3.rope.scaling.original_context_length")?;
    let mut yarn = Yarn::new(factor, original.unwrap_or(max_position_embeddings));
    for key in metadata.keys().filter(|key| key.starts_with(KEYS)) {
        match &key[KEYS.len()..] {
            "type" | "factor" | "original_context_length" | "finetuned" => {}
            "yarn_beta_fast" => yarn.beta_fast = required_number(metadata, key)?,
            "yarn_beta_slow" => yarn.beta_slow = required_number(metadata, key)?,
            // In this format the factor multiplies YaRN's own; in Hugging Face's it replaces it.
            "attn_factor" => {
                yarn.attention_factor =
                    Yarn::default_attention_factor(factor) * required_number(metadata, key)?;
            }
            // Written by some converters with the value that changes nothing.
            "yarn_ext_factor" | "yarn_attn_factor" if metadata.number(key)? == Some(1.0) => {}
            _ => {
                let value = metadata.number(key)?.unwrap_or(f64::NAN);
                return Err(unsupported(key, value, "yarn with factor, original length, betas, attn_factor"));
            }
        }
    }
    Ok(Some(yarn))
}

fn unsupported(key: &str, value: impl ToString, supported: &'static str) -> GgufError {
    GgufError::Unsupported { key: key.into(), value: Escaped::text(&value.to_string()), supported }
}

fn optional(metadata: &Metadata, key: &str) -> Result<Option<usize>, GgufError> {
    let Some(value) = metadata.unsigned(key)? else { return Ok(None) };
    usize::try_from(value).map(Some).map_err(|_| GgufError::OutOfRange {
        key: key.into(),
        value: Escaped::text(&value.to_string()),
        expected: "what this machine can address",
    })
}

fn required(metadata: &Metadata, key: &str) -> Result<usize, GgufError> {
    optional(metadata, key)?.ok_or_else(|| GgufError::MissingKey { key: key.into() })
}

fn required_number(metadata: &Metadata, key: &str) -> Result<f64, GgufError> {
    metadata.number(key)?.ok_or_else(|| GgufError::MissingKey { key: key.into() })
}
