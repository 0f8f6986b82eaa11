//! What a model is: its dimensions by their model-card names. Everything comes from the file, nothing is fixed.

/// The dimensions and constants of a Qwen3 model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Transformer layers.
    pub n_layers: usize,
    /// Width of the residual.
    pub hidden_size: usize,
    /// Width of the feed-forward part.
    pub intermediate_size: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Values a head; even. `n_heads * head_dim` need not be `hidden_size`.
    pub head_dim: usize,
    /// Rows of embedding and output head, padding rows included.
    pub vocab_size: usize,
    /// Base of the rotary embedding.
    pub rope_theta: f64,
    /// Epsilon of every RMS norm.
    pub rms_norm_eps: f32,
    /// Positions that the model was made for, before any rope scaling that a flag asks for.
    pub max_position_embeddings: usize,
    /// The output head is the token embedding.
    pub tie_word_embeddings: bool,
    /// YaRN scaling of the rotary embedding.
    pub rope_scaling: Option<Yarn>,
}

/// YaRN as Qwen's model cards describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// How many times the context grows.
    pub factor: f64,
    /// Positions before scaling.
    pub original_max_position_embeddings: usize,
    /// Rotations above which a dimension is left as it is.
    pub beta_fast: f64,
    /// Rotations below which a dimension is fully interpolated.
    pub beta_slow: f64,
    /// Factor on cosine and sine.
    pub attention_factor: f64,
}

impl ModelSpec {
    /// Width of the queries: `n_heads * head_dim`.
    pub fn q_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Width of keys, and of values: `n_kv_heads * head_dim`.
    pub fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }
}
