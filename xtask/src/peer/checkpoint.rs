//! A Hugging Face folder of Qwen3-0.6B's shape with random weights: the work of the real model, at whatever a machine can
//! reach. What it says is noise.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::install;

const HIDDEN: usize = 1024;
const FFN: usize = 3072;
const HEADS: usize = 16;
const KV_HEADS: usize = 8;
const HEAD_DIM: usize = 128;
const LAYERS: usize = 28;
const VOCABULARY: usize = 151_936;

/// Standard deviation of the matrices, that of a model before training: residuals stay of one size over the layers.
const DEVIATION: f32 = 0.02;

/// Writes config.json, model.safetensors and the tokenizer files; the same bytes each time.
pub(super) fn write(folder: &Path, tokenizer: &Path) -> Result<()> {
    install::folder(folder)?;
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(tokenizer.join(name), folder.join(name))
            .with_context(|| format!("cannot copy {name}"))?;
    }
    // The weights last, and under their name only when whole: their presence means that the folder is complete.
    let (part, whole) = (folder.join("model.part"), folder.join("model.safetensors"));
    std::fs::write(folder.join("config.json"), config()).context("cannot write config.json")?;
    let file = File::create(&part).context("cannot create the weights")?;
    weights(&mut BufWriter::with_capacity(1 << 20, file)).context("cannot write the weights")?;
    std::fs::rename(part, whole).context("cannot name the weights")
}

fn config() -> String {
    format!(
        r#"{{
  "architectures": ["Qwen3ForCausalLM"],
  "model_type": "qwen3",
  "attention_bias": false,
  "bos_token_id": 151643,
  "eos_token_id": 151645,
  "head_dim": {HEAD_DIM},
  "hidden_act": "silu",
  "hidden_size": {HIDDEN},
  "intermediate_size": {FFN},
  "max_position_embeddings": 40960,
  "num_attention_heads": {HEADS},
  "num_hidden_layers": {LAYERS},
  "num_key_value_heads": {KV_HEADS},
  "rms_norm_eps": 1e-06,
  "rope_scaling": null,
  "rope_theta": 1000000,
  "tie_word_embeddings": true,
  "torch_dtype": "bfloat16",
  "use_sliding_window": false,
  "vocab_size": {VOCABULARY}
}}
"#
    )
}

/// Names and shapes; a tensor of one dimension is a norm.
fn tensors() -> Vec<(String, Vec<usize>)> {
    let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![VOCABULARY, HIDDEN])];
    for layer in 0..LAYERS {
        let mut push = |name: &str, shape: &[usize]| {
            tensors.push((format!("model.layers.{layer}.{name}.weight"), shape.to_vec()));
        };
        push("input_layernorm", &[HIDDEN]);
        push("self_attn.q_proj", &[HEADS * HEAD_DIM, HIDDEN]);
        push("self_attn.k_proj", &[KV_HEADS * HEAD_DIM, HIDDEN]);
        push("self_attn.v_proj", &[KV_HEADS * HEAD_DIM, HIDDEN]);
        push("self_attn.q_norm", &[HEAD_DIM]);
        push("self_attn.k_norm", &[HEAD_DIM]);
        push("self_attn.o_proj", &[HIDDEN, HEADS * HEAD_DIM]);
        push("post_attention_layernorm", &[HIDDEN]);
        push("mlp.gate_proj", &[FFN, HIDDEN]);
        push("mlp.up_proj", &[FFN, HIDDEN]);
        push("mlp.down_proj", &[HIDDEN, FFN]);
    }
    tensors.push(("model.norm.weight".to_owned(), vec![HIDDEN]));
    tensors
}

/// A safetensors file: the length of the header, the header, the values.
fn weights(out: &mut impl Write) -> std::io::Result<()> {
    let tensors = tensors();
    let (mut header, mut end) = (String::from(r#"{"__metadata__":{"format":"pt"}"#), 0);
    for (name, shape) in &tensors {
        let bytes = 2 * shape.iter().product::<usize>();
        header.push_str(&format!(
            r#","{name}":{{"dtype":"BF16","shape":{shape:?},"data_offsets":[{end},{}]}}"#,
            end + bytes
        ));
        end += bytes;
    }
    header.push('}');
    header.push_str(&" ".repeat(header.len().wrapping_neg() % 8));
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for (_, shape) in &tensors {
        let norm = shape.len() == 1;
        for _ in 0..shape.iter().product::<usize>() {
            let value = if norm { 1.0 } else { DEVIATION * random.normal() };
            // Cutting the low half rounds towards zero, which is as random as any.
            out.write_all(&value.to_bits().to_le_bytes()[2..])?;
        }
    }
    out.flush()
}

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    /// About normal, deviation 1: the sum of four uniform values, whose variances are 1/12.
    fn normal(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let sum: u32 = (0..4).map(|part| u32::from((self.0 >> (16 * part)) as u16)).sum();
        (sum as f32 / 65_536.0 - 2.0) * 3.0_f32.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_are_about_normal() {
        let mut random = Random(1);
        let values: Vec<f32> = (0..100_000).map(|_| random.normal()).collect();
        let mean = values.iter().sum::<f32>() / 1e5;
        let variance = values.iter().map(|value| value * value).sum::<f32>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn the_shape_is_that_of_the_model_card() {
        let parameters: usize = tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        assert_eq!(parameters, 596_049_920);
    }
}
