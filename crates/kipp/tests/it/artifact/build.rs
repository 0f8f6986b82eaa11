//! A small valid model, as a folder and as a GGUF file, with knobs for what tests change about it.

use std::path::Path;

use kipp::Scheme;
use kipp::artifact::gguf::writer::{GgufWriter, MetadataValue as Value, TensorPlan, padding};

pub(crate) const LAYERS: usize = 2;
pub(crate) const HIDDEN: usize = 64;
/// No whole number of groups, so that `ffn_down` stays dense in every scheme.
pub(crate) const FFN: usize = 80;
pub(crate) const HEADS: usize = 4;
pub(crate) const KV_HEADS: usize = 2;
pub(crate) const HEAD_DIM: usize = 32;
pub(crate) const VOCAB: usize = 40;

/// One tensor: its names in both formats, its shape and its weights.
#[derive(Clone)]
pub(crate) struct Weight {
    pub(crate) gguf: String,
    pub(crate) hugging_face: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

/// Small exact numbers in no order, so that no tensor holds a piece of another.
fn values(seed: usize, len: usize) -> Vec<f32> {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let value = |i: usize| {
        let x = (((seed as u64) << 32) | i as u64).wrapping_mul(ODD);
        ((x ^ (x >> 29)).wrapping_mul(ODD) >> 58) as f32 / 64.0 - 0.5
    };
    (0..len).map(value).collect()
}

/// All tensors; with a head of its own (the embedding with its rows reversed) if `untied`.
pub(crate) fn weights(untied: bool) -> Vec<Weight> {
    let mut all = Vec::new();
    let mut add = |gguf: String, hugging_face: String, shape: &[usize]| {
        let values = values(all.len(), shape.iter().product());
        all.push(Weight { gguf, hugging_face, shape: shape.to_vec(), values });
    };
    add("token_embd.weight".into(), "model.embed_tokens.weight".into(), &[VOCAB, HIDDEN]);
    let (q, kv) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
    let layer: [(&str, &str, &[usize]); 11] = [
        ("attn_norm", "input_layernorm", &[HIDDEN]),
        ("attn_q", "self_attn.q_proj", &[q, HIDDEN]),
        ("attn_k", "self_attn.k_proj", &[kv, HIDDEN]),
        ("attn_v", "self_attn.v_proj", &[kv, HIDDEN]),
        ("attn_output", "self_attn.o_proj", &[HIDDEN, q]),
        ("attn_q_norm", "self_attn.q_norm", &[HEAD_DIM]),
        ("attn_k_norm", "self_attn.k_norm", &[HEAD_DIM]),
        ("ffn_norm", "post_attention_layernorm", &[HIDDEN]),
        ("ffn_gate", "mlp.gate_proj", &[FFN, HIDDEN]),
        ("ffn_up", "mlp.up_proj", &[FFN, HIDDEN]),
        ("ffn_down", "mlp.down_proj", &[HIDDEN, FFN]),
    ];
    for i in 0..LAYERS {
        for (gguf, hugging_face, shape) in layer {
            add(format!("blk.{i}.{gguf}.weight"), format!("model.layers.{i}.{hugging_face}.weight"), shape);
        }
    }
    add("output_norm.weight".into(), "model.norm.weight".into(), &[HIDDEN]);
    if untied {
        let rows: Vec<&[f32]> = all[0].values.chunks(HIDDEN).rev().collect();
        let (values, shape) = (rows.concat(), vec![VOCAB, HIDDEN]);
        all.push(Weight {
            gguf: "output.weight".into(),
            hugging_face: "lm_head.weight".into(),
            shape,
            values,
        });
    }
    all
}

/// The metadata of a valid file, tokenizer included.
pub(crate) fn metadata() -> Vec<(String, Value)> {
    let entry = |key: &str, value: Value| (key.to_owned(), value);
    let size = |key: &str, value: usize| (format!("qwen3.{key}"), Value::U32(value as u32));
    let tokens = (0..VOCAB).map(|id| format!("t{id}")).collect();
    vec![
        entry("general.architecture", Value::String("qwen3".into())),
        size("block_count", LAYERS),
        size("context_length", 512),
        size("embedding_length", HIDDEN),
        size("feed_forward_length", FFN),
        size("attention.head_count", HEADS),
        size("attention.head_count_kv", KV_HEADS),
        size("attention.key_length", HEAD_DIM),
        size("attention.value_length", HEAD_DIM),
        entry("qwen3.rope.freq_base", Value::F32(1e6)),
        entry("qwen3.attention.layer_norm_rms_epsilon", Value::F32(1e-6)),
        entry("tokenizer.ggml.model", Value::String("gpt2".into())),
        entry("tokenizer.ggml.pre", Value::String("qwen2".into())),
        entry("tokenizer.ggml.tokens", Value::Strings(tokens)),
        entry("tokenizer.ggml.token_type", Value::I32s(vec![1; VOCAB])),
        entry("tokenizer.ggml.merges", Value::Strings(vec!["t 1".into()])),
        entry("tokenizer.ggml.eos_token_id", Value::U32(7)),
    ]
}

/// A GGUF file of these parts; matrices in `scheme` where it fits, vectors in f32.
pub(crate) fn gguf(metadata: &[(String, Value)], weights: &[Weight], scheme: Scheme) -> Vec<u8> {
    let mut writer = GgufWriter::default();
    metadata.iter().for_each(|(key, value)| writer.set(key, value.clone()));
    let mut data = Vec::new();
    for weight in weights {
        let fits = scheme.row_bytes(*weight.shape.last().unwrap()).is_some();
        let scheme = match weight.shape.len() {
            1 => Scheme::F32,
            _ if fits => scheme,
            _ => Scheme::Bf16,
        };
        let bytes = encode(weight, scheme);
        writer.tensor(TensorPlan {
            name: weight.gguf.clone(),
            shape: weight.shape.clone(),
            ggml_type: scheme.ggml_type(),
            bytes: bytes.len() as u64,
        });
        data.extend(&bytes);
        data.resize(data.len() + padding(bytes.len() as u64), 0);
    }
    let mut file = writer.header();
    file.extend(data);
    file
}

fn encode(weight: &Weight, scheme: Scheme) -> Vec<u8> {
    let cols = weight.shape.last().copied().unwrap_or(1).max(1);
    let mut bytes = Vec::new();
    for row in weight.values.chunks(cols) {
        let start = bytes.len();
        bytes.resize(start + scheme.row_bytes(cols).unwrap(), 0);
        scheme.encode_row(row, &mut bytes[start..]).unwrap();
    }
    bytes
}

/// A valid tied GGUF file.
pub(crate) fn valid_gguf() -> Vec<u8> {
    gguf(&metadata(), &weights(false), Scheme::Bf16)
}

/// A safetensors file of these tensors in bf16.
pub(crate) fn safetensors(weights: &[Weight]) -> Vec<u8> {
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for weight in weights {
        let start = data.len();
        data.extend(encode(weight, Scheme::Bf16));
        entries.push(format!(
            r#""{}":{{"dtype":"BF16","shape":{:?},"data_offsets":[{start},{}]}}"#,
            weight.hugging_face,
            weight.shape,
            data.len()
        ));
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut file = super::raw::safetensors(header, 0);
    file.extend(data);
    file
}

/// The lines of a valid `config.json`, to be edited by tests.
pub(crate) fn config(tied: bool) -> Vec<String> {
    let size = |key: &str, value: usize| format!("\"{key}\": {value}");
    vec![
        r#""architectures": ["Qwen3ForCausalLM"]"#.into(),
        r#""model_type": "qwen3""#.into(),
        size("num_hidden_layers", LAYERS),
        size("hidden_size", HIDDEN),
        size("intermediate_size", FFN),
        size("num_attention_heads", HEADS),
        size("num_key_value_heads", KV_HEADS),
        size("head_dim", HEAD_DIM),
        size("vocab_size", VOCAB),
        size("max_position_embeddings", 512),
        r#""rope_theta": 1000000"#.into(),
        r#""rms_norm_eps": 1e-06"#.into(),
        format!("\"tie_word_embeddings\": {tied}"),
    ]
}

/// Writes a folder of weights and configuration, without a tokenizer.
pub(crate) fn write_folder(folder: &Path, config: &[String], weights: &[Weight]) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("config.json"), format!("{{{}}}", config.join(","))).unwrap();
    std::fs::write(folder.join("model.safetensors"), safetensors(weights)).unwrap();
}
