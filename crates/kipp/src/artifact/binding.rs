//! From a file's tensors to the model's: by name and shape, none missing, none left over.

use std::collections::HashMap;

use kipp_kernels::Scheme;

use super::error::BindingError;
use super::tensor::TensorEntry;
use crate::spec::ModelSpec;

/// How a format names tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    Gguf,
    HuggingFace,
}

/// The tensors of a layer, in the order of `LayerWeights`: name in GGUF, name in Hugging Face folders.
pub(crate) const LAYER_TENSORS: [(&str, &str); 11] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

impl Naming {
    pub(crate) fn embedding(self) -> &'static str {
        match self {
            Naming::Gguf => "token_embd.weight",
            Naming::HuggingFace => "model.embed_tokens.weight",
        }
    }

    pub(crate) fn final_norm(self) -> &'static str {
        match self {
            Naming::Gguf => "output_norm.weight",
            Naming::HuggingFace => "model.norm.weight",
        }
    }

    pub(crate) fn head(self) -> &'static str {
        match self {
            Naming::Gguf => "output.weight",
            Naming::HuggingFace => "lm_head.weight",
        }
    }

    pub(crate) fn layer(self, layer: usize, (gguf, hugging_face): (&str, &str)) -> String {
        match self {
            Naming::Gguf => format!("blk.{layer}.{gguf}.weight"),
            Naming::HuggingFace => format!("model.layers.{layer}.{hugging_face}.weight"),
        }
    }
}

/// Which tensor of the file serves where; indices into the list that was bound.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) embedding: usize,
    pub(crate) layers: Vec<[usize; 11]>,
    pub(crate) final_norm: usize,
    pub(crate) head: Option<usize>,
    /// A head that the file holds although the specification says that the embedding serves as one.
    pub(crate) unused_head: Option<usize>,
    /// Tensors without weights that were passed over.
    pub(crate) empty: Vec<usize>,
}

/// Binds all tensors of a file.
pub(crate) fn bind(tensors: &[TensorEntry], naming: Naming, spec: &ModelSpec) -> Result<Bound, BindingError> {
    let mut binder = Binder {
        tensors,
        by_name: tensors.iter().enumerate().map(|(index, tensor)| (tensor.name.as_str(), index)).collect(),
    };
    let rows = [spec.vocab_size, spec.hidden_size];
    let embedding = binder.take(naming.embedding(), &rows)?;
    let mut layers = Vec::new();
    // Grows by what is found, never by what the file claims.
    for layer in 0..spec.n_layers {
        layers.push(binder.layer(naming, layer, spec)?);
    }
    let final_norm = binder.take(naming.final_norm(), &[spec.hidden_size])?;
    let (mut head, mut unused_head) = (None, None);
    if !spec.tie_word_embeddings {
        head = Some(binder.take(naming.head(), &rows)?);
    } else if binder.by_name.contains_key(naming.head()) {
        unused_head = Some(binder.take(naming.head(), &rows)?);
    }
    let empty = binder.finish()?;
    Ok(Bound { embedding, layers, final_norm, head, unused_head, empty })
}

struct Binder<'a> {
    tensors: &'a [TensorEntry],
    /// Tensors not yet taken.
    by_name: HashMap<&'a str, usize>,
}

impl Binder<'_> {
    fn layer(&mut self, naming: Naming, layer: usize, spec: &ModelSpec) -> Result<[usize; 11], BindingError> {
        let (hidden, ffn) = (spec.hidden_size, spec.intermediate_size);
        let (q, kv, head) = (spec.q_width(), spec.kv_width(), spec.head_dim);
        let shapes: [&[usize]; 11] = [
            &[hidden],
            &[q, hidden],
            &[kv, hidden],
            &[kv, hidden],
            &[hidden, q],
            &[head],
            &[head],
            &[hidden],
            &[ffn, hidden],
            &[ffn, hidden],
            &[hidden, ffn],
        ];
        let mut bound = [0; 11];
        for ((slot, names), shape) in bound.iter_mut().zip(LAYER_TENSORS).zip(shapes) {
            *slot = self.take(&naming.layer(layer, names), shape)?;
        }
        Ok(bound)
    }

    fn take(&mut self, name: &str, shape: &[usize]) -> Result<usize, BindingError> {
        let index = self.by_name.remove(name).ok_or_else(|| BindingError::Missing { tensor: name.into() })?;
        let tensor = &self.tensors[index];
        if tensor.shape != shape {
            let (expected, found) = (shape.to_vec(), tensor.shape.clone());
            return Err(BindingError::Shape { tensor: name.into(), expected, found });
        }
        // Codes are for matrices; a norm's few weights stay dense.
        let fits = |scheme: Scheme| scheme.is_dense() || shape.len() > 1;
        if tensor.scheme.is_some_and(fits) {
            return Ok(index);
        }
        let fitting = Scheme::ALL.iter().filter(|scheme| fits(**scheme));
        let supported = fitting.map(|scheme| scheme.name()).collect::<Vec<_>>().join(", ");
        Err(BindingError::Type { tensor: name.into(), found: tensor.type_name, supported })
    }

    /// What is left must hold no weights: scalars and empty tensors, which cannot change a result.
    fn finish(self) -> Result<Vec<usize>, BindingError> {
        let mut left: Vec<usize> = self.by_name.into_values().collect();
        left.sort_unstable();
        let holds_weights =
            |&&index: &&usize| !self.tensors[index].shape.is_empty() && self.tensors[index].len() > 0;
        match left.iter().find(holds_weights) {
            Some(&index) => Err(BindingError::Extra { tensor: self.tensors[index].name.as_str().into() }),
            None => Ok(left),
        }
    }
}
