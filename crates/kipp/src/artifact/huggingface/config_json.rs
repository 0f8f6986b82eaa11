//! `config.json`: the model's dimensions as Hugging Face names them. Newer folders' `rope_parameters` is read as the
//! older `rope_theta` and `rope_scaling`. (`dtype`, older `torch_dtype`, decides nothing: every tensor says its own.)

use super::{ConfigError, Section};
use crate::artifact::json::Json;
use crate::spec::{ModelSpec, Yarn};

/// Reads the dimensions, and refuses what would change the numbers and is not implemented.
pub(crate) fn read(json: &Json) -> Result<ModelSpec, ConfigError> {
    let root = Section::root(json);
    check_architecture(root)?;
    refuse_unread_settings(root)?;
    let size = |key: &str| root.size(key).and_then(|value| root.required(key, value));
    let max_position_embeddings = size("max_position_embeddings")?;
    let rope = Rope::read(root, max_position_embeddings)?;
    Ok(ModelSpec {
        n_layers: size("num_hidden_layers")?,
        hidden_size: size("hidden_size")?,
        intermediate_size: size("intermediate_size")?,
        n_heads: size("num_attention_heads")?,
        n_kv_heads: size("num_key_value_heads")?,
        head_dim: size("head_dim")?,
        vocab_size: size("vocab_size")?,
        rope_theta: rope.theta,
        rms_norm_eps: root.required("rms_norm_eps", root.number("rms_norm_eps")?)? as f32,
        max_position_embeddings,
        tie_word_embeddings: root.boolean("tie_word_embeddings")?.unwrap_or(false),
        rope_scaling: rope.scaling,
    })
}

fn check_architecture(root: Section<'_>) -> Result<(), ConfigError> {
    if let Some(architectures) = root.value("architectures") {
        let names: Option<Vec<&str>> =
            architectures.as_array().and_then(|items| items.iter().map(Json::as_str).collect());
        let names = names.ok_or_else(|| ConfigError::WrongType {
            key: root.name("architectures"),
            expected: "a list of names",
            found: architectures.shown(),
        })?;
        if let Some(other) = names.iter().find(|name| **name != "Qwen3ForCausalLM") {
            return Err(ConfigError::Unsupported {
                key: root.name("architectures"),
                value: (*other).into(),
                supported: "Kipp runs Qwen3ForCausalLM",
            });
        }
    }
    match root.string("model_type")? {
        Some("qwen3") => Ok(()),
        Some(_) => Err(root.unsupported("model_type", "Kipp runs qwen3")),
        // Without either of the two nothing says what the tensors are.
        None if root.value("architectures").is_some() => Ok(()),
        None => Err(ConfigError::MissingKey { key: root.name("model_type") }),
    }
}

fn refuse_unread_settings(root: Section<'_>) -> Result<(), ConfigError> {
    if let Some(quantization) = root.value("quantization_config") {
        let method = quantization.get("quant_method").unwrap_or(quantization).shown();
        return Err(ConfigError::Unsupported {
            key: root.name("quantization_config"),
            value: method,
            supported: "use the bf16 checkpoint, or a GGUF file in q8_0, q4_0 or q4_1",
        });
    }
    match root.string("hidden_act")? {
        None | Some("silu") => {}
        Some(_) => return Err(root.unsupported("hidden_act", "silu")),
    }
    if root.boolean("attention_bias")? == Some(true) {
        return Err(root.unsupported("attention_bias", "false: Qwen3 has no bias"));
    }
    if root.boolean("use_sliding_window")? == Some(true) {
        return Err(root.unsupported("use_sliding_window", "full attention in every layer"));
    }
    if root.value("partial_rotary_factor").is_some_and(|factor| factor.as_f64() != Some(1.0)) {
        return Err(root.unsupported("partial_rotary_factor", "1: the whole head is rotated"));
    }
    if let Some(types) = root.value("layer_types") {
        let full = |item: &Json| item.as_str() == Some("full_attention");
        if !types.as_array().is_some_and(|items| items.iter().all(full)) {
            return Err(root.unsupported("layer_types", "full_attention in every layer"));
        }
    }
    Ok(())
}

/// The rotary embedding's settings, from whichever spelling the file has.
struct Rope {
    theta: f64,
    scaling: Option<Yarn>,
}

impl Rope {
    fn read(root: Section<'_>, max_position_embeddings: usize) -> Result<Rope, ConfigError> {
        let older = match root.value("rope_scaling") {
            Some(json) => Some(Section::nested(json, "rope_scaling.")?),
            None => None,
        };
        let newer = match root.value("rope_parameters") {
            Some(json) => Some(Section::nested(json, "rope_parameters.")?),
            None => None,
        };
        let mut theta = root.number("rope_theta")?;
        if let Some(value) = newer.map(|section| section.number("rope_theta")).transpose()?.flatten() {
            if theta.is_some_and(|theta| theta != value) {
                let (first, second) = ("rope_theta", "rope_parameters.rope_theta");
                return Err(ConfigError::Contradiction { first, second });
            }
            theta = Some(value);
        }
        let read = |section: Option<Section<'_>>| {
            section.map_or(Ok(None), |section| read_scaling(section, max_position_embeddings))
        };
        let (from_older, from_newer) = (read(older)?, read(newer)?);
        if older.is_some() && newer.is_some() && from_older != from_newer {
            let (first, second) = ("rope_scaling", "rope_parameters");
            return Err(ConfigError::Contradiction { first, second });
        }
        Ok(Rope { theta: root.required("rope_theta", theta)?, scaling: from_newer.or(from_older) })
    }
}

fn read_scaling(section: Section<'_>, max_position_embeddings: usize) -> Result<Option<Yarn>, ConfigError> {
    // `type` is the oldest spelling.
    let key = if section.value("rope_type").is_some() { "rope_type" } else { "type" };
    match section.string(key)? {
        Some("yarn") => {}
        Some("default" | "none") => return Ok(None),
        Some(_) => return Err(section.unsupported(key, "yarn, default or none")),
        None if section.keys().all(|key| key == "rope_theta" || section.value(key).is_none()) => {
            return Ok(None);
        }
        None => return Err(ConfigError::MissingKey { key: section.name("rope_type") }),
    }
    let factor = section.required("factor", section.number("factor")?)?;
    let original = section.size("original_max_position_embeddings")?;
    let mut yarn = Yarn::new(factor, original.unwrap_or(max_position_embeddings));
    for key in section.keys().filter(|key| section.value(key).is_some()) {
        match key {
            "rope_type" | "type" | "rope_theta" | "factor" | "original_max_position_embeddings" => {}
            "beta_fast" => yarn.beta_fast = section.required(key, section.number(key)?)?,
            "beta_slow" => yarn.beta_slow = section.required(key, section.number(key)?)?,
            "attention_factor" => yarn.attention_factor = section.required(key, section.number(key)?)?,
            "truncate" if section.boolean(key)? == Some(true) => {}
            _ => {
                return Err(section.unsupported(
                    key,
                    "yarn with factor, original_max_position_embeddings, beta_fast, beta_slow, attention_factor",
                ));
            }
        }
    }
    Ok(Some(yarn))
}

#[cfg(test)]
mod tests {
    use super::super::parse_object;
    use super::*;

    fn config(extra: &str) -> Result<ModelSpec, ConfigError> {
        let text = format!(
            r#"{{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64,
            "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1,
            "head_dim": 32, "vocab_size": 100, "rms_norm_eps": 1e-6, "max_position_embeddings": 40960{extra}}}"#
        );
        read(&parse_object(text.as_bytes())?)
    }

    #[test]
    fn both_spellings_of_rope_settings_are_read() {
        let plain = config(r#", "rope_theta": 1e6, "rope_scaling": null"#).unwrap();
        assert_eq!((plain.rope_theta, plain.rope_scaling.clone()), (1e6, None));
        let newer =
            config(r#", "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}"#).unwrap();
        assert_eq!(newer, plain);
        let yarn = Some(Yarn::new(4.0, 32_768));
        let keys = r#""factor": 4.0, "original_max_position_embeddings": 32768"#;
        for kind in ["rope_type", "type"] {
            let spec =
                config(&format!(r#", "rope_theta": 1e6, "rope_scaling": {{"{kind}": "yarn", {keys}}}"#))
                    .unwrap();
            assert_eq!(spec.rope_scaling, yarn);
        }
        let spec = config(&format!(
            r#", "rope_parameters": {{"rope_theta": 1e6, "rope_type": "yarn", {keys}, "beta_fast": 16}}"#
        ));
        assert_eq!(spec.unwrap().rope_scaling.unwrap().beta_fast, 16.0);
        let both = config(r#", "rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e4}"#);
        assert!(matches!(both, Err(ConfigError::Contradiction { .. })));
    }

    #[test]
    fn what_would_change_the_numbers_is_refused_by_name() {
        for (extra, key) in [
            (
                r#", "rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 2}"#,
                "rope_scaling.rope_type",
            ),
            (r#", "rope_theta": 1e6, "rope_scaling": {"type": "dynamic", "factor": 2}"#, "rope_scaling.type"),
            (
                r#", "rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 2, "mscale": 1}"#,
                "rope_scaling.mscale",
            ),
            (r#", "rope_theta": 1e6, "use_sliding_window": true"#, "use_sliding_window"),
            (r#", "rope_theta": 1e6, "attention_bias": true"#, "attention_bias"),
            (r#", "rope_theta": 1e6, "partial_rotary_factor": 0.5"#, "partial_rotary_factor"),
            (r#", "rope_theta": 1e6, "hidden_act": "gelu""#, "hidden_act"),
            (r#", "rope_theta": 1e6, "quantization_config": {"quant_method": "fp8"}"#, "quantization_config"),
            (r#", "rope_theta": 1e6, "layer_types": ["sliding_attention"]"#, "layer_types"),
        ] {
            let Err(ConfigError::Unsupported { key: found, .. }) = config(extra) else { panic!("{extra}") };
            assert_eq!(found.to_string(), key);
        }
        assert_eq!(config(""), Err(ConfigError::MissingKey { key: "rope_theta".into() }));
        let no_type = config(r#", "rope_theta": 1e6, "rope_scaling": {"factor": 2}"#);
        assert_eq!(no_type, Err(ConfigError::MissingKey { key: "rope_scaling.rope_type".into() }));
    }
}
