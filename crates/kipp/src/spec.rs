//! What a model is: its dimensions by their model-card names. Everything comes from the file, nothing is fixed.

/// Bases below 1 make frequencies that grow, and angles that are not finite.
const MIN_ROPE_THETA: f64 = 1.0;

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

/// Why dimensions describe no model. Fields go by their names in [`ModelSpec`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// A base whose frequencies grow with the pair, up to infinity.
    #[error("rope_theta is {found}; the base of the rotary embedding is at least {MIN_ROPE_THETA}")]
    RopeTheta {
        /// The base.
        found: f64,
    },
    /// A dimension of zero.
    #[error("{field} is zero")]
    Zero {
        /// The dimension.
        field: &'static str,
    },
    /// A dimension larger than any machine's memory would hold.
    #[error("{field} is {value}; at most {limit} is possible")]
    TooLarge {
        /// The dimension.
        field: &'static str,
        /// The value.
        value: usize,
        /// The bound.
        limit: usize,
    },
    /// Query heads that cannot be shared out among the key and value heads.
    #[error("n_heads {n_heads} is no multiple of n_kv_heads {n_kv_heads}")]
    HeadsNotDivisible {
        /// Query heads.
        n_heads: usize,
        /// Key and value heads.
        n_kv_heads: usize,
    },
    /// A head that has no pairs to rotate.
    #[error("head_dim {head_dim} is odd")]
    OddHeadDim {
        /// Values a head.
        head_dim: usize,
    },
    /// A constant out of its range.
    #[error("{field} is {value}; it must be {expected}")]
    OutOfRange {
        /// The constant.
        field: &'static str,
        /// The value.
        value: f64,
        /// What is possible.
        expected: &'static str,
    },
}

/// Bound of every width and count. No product of three of them overflows 64 bits, and 2^20 is 40 times the widest model.
const MAX_WIDTH: usize = 1 << 20;
/// Bound of vocabulary rows and positions: 4 bytes of id, with room for arithmetic in i32.
const MAX_ROWS: usize = 1 << 30;

/// Positions that Qwen3's cards give as the original length for the checkpoints whose files say 40,960: 32,768 for the
/// text and 8,192 kept for the prompt. YaRN is computed from the former.
const QWEN3_CARD_POSITIONS: (usize, usize) = (40_960, 32_768);

impl ModelSpec {
    /// Width of the queries: `n_heads * head_dim`.
    pub fn q_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Width of keys, and of values: `n_kv_heads * head_dim`.
    pub fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Positions that the model can run: its own, or what YaRN stretches them to.
    pub fn context(&self) -> usize {
        match &self.rope_scaling {
            None => self.max_position_embeddings,
            Some(yarn) => {
                let stretched = yarn.factor * yarn.original_max_position_embeddings as f64;
                // Bounded by `validate`, so the cast is exact enough and cannot saturate.
                self.max_position_embeddings.max(stretched.min(MAX_ROWS as f64) as usize)
            }
        }
    }

    /// The same model with its rotary embedding stretched `factor` times by YaRN, as the flags ask for it.
    ///
    /// The original length is the file's own YaRN entry, else what the checkpoint's card says, else
    /// `max_position_embeddings`.
    pub fn with_yarn(&self, factor: f64) -> Result<ModelSpec, SpecError> {
        let original = match &self.rope_scaling {
            Some(yarn) => yarn.original_max_position_embeddings,
            None if self.max_position_embeddings == QWEN3_CARD_POSITIONS.0 => QWEN3_CARD_POSITIONS.1,
            None => self.max_position_embeddings,
        };
        ModelSpec { rope_scaling: Some(Yarn::new(factor, original)), ..self.clone() }.validate()
    }

    /// Checks everything that the forward pass relies on. A reader calls it before it hands a specification out.
    pub fn validate(self) -> Result<ModelSpec, SpecError> {
        for (field, value, limit) in [
            ("n_layers", self.n_layers, MAX_WIDTH),
            ("hidden_size", self.hidden_size, MAX_WIDTH),
            ("intermediate_size", self.intermediate_size, MAX_WIDTH),
            ("n_heads", self.n_heads, MAX_WIDTH),
            ("n_kv_heads", self.n_kv_heads, MAX_WIDTH),
            ("head_dim", self.head_dim, MAX_WIDTH),
            ("vocab_size", self.vocab_size, MAX_ROWS),
            ("max_position_embeddings", self.max_position_embeddings, MAX_ROWS),
        ] {
            within(field, value, limit)?;
        }
        within("n_heads * head_dim", self.q_width(), MAX_WIDTH)?;
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            return Err(SpecError::HeadsNotDivisible { n_heads: self.n_heads, n_kv_heads: self.n_kv_heads });
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(SpecError::OddHeadDim { head_dim: self.head_dim });
        }
        positive("rope_theta", self.rope_theta)?;
        if self.rope_theta < MIN_ROPE_THETA {
            return Err(SpecError::RopeTheta { found: self.rope_theta });
        }
        positive("rms_norm_eps", f64::from(self.rms_norm_eps))?;
        if let Some(yarn) = &self.rope_scaling {
            yarn.validate()?;
        }
        Ok(self)
    }
}

impl Yarn {
    /// YaRN with the values that its paper and Transformers take where none are given: beta 32 and 1, attention factor
    /// `0.1 ln(factor) + 1`.
    pub fn new(factor: f64, original_max_position_embeddings: usize) -> Yarn {
        Yarn {
            factor,
            original_max_position_embeddings,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: Yarn::default_attention_factor(factor),
        }
    }

    /// `0.1 ln(factor) + 1`: how YaRN keeps the attention's entropy as the context grows.
    pub fn default_attention_factor(factor: f64) -> f64 {
        0.1 * libm::log(factor) + 1.0
    }

    fn validate(&self) -> Result<(), SpecError> {
        within("original_max_position_embeddings", self.original_max_position_embeddings, MAX_ROWS)?;
        let stretched = self.factor * self.original_max_position_embeddings as f64;
        // Written so that NaN fails.
        if !(self.factor >= 1.0 && stretched <= MAX_ROWS as f64) {
            return Err(SpecError::OutOfRange {
                field: "rope factor",
                value: self.factor,
                expected: "at least 1, and times the original positions at most 2^30",
            });
        }
        positive("attention_factor", self.attention_factor)?;
        positive("beta_slow", self.beta_slow)?;
        positive("beta_fast", self.beta_fast)?;
        if self.beta_fast < self.beta_slow {
            let expected = "at least beta_slow";
            return Err(SpecError::OutOfRange { field: "beta_fast", value: self.beta_fast, expected });
        }
        Ok(())
    }
}

fn within(field: &'static str, value: usize, limit: usize) -> Result<(), SpecError> {
    match value {
        0 => Err(SpecError::Zero { field }),
        value if value > limit => Err(SpecError::TooLarge { field, value, limit }),
        _ => Ok(()),
    }
}

fn positive(field: &'static str, value: f64) -> Result<(), SpecError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(SpecError::OutOfRange { field, value, expected: "finite and above 0" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ModelSpec {
        ModelSpec {
            n_layers: 2,
            hidden_size: 160,
            intermediate_size: 416,
            n_heads: 10,
            n_kv_heads: 2,
            head_dim: 32,
            vocab_size: 1003,
            rope_theta: 1e6,
            rms_norm_eps: 1e-6,
            max_position_embeddings: 40_960,
            tie_word_embeddings: true,
            rope_scaling: None,
        }
    }

    #[test]
    fn odd_dimensions_are_fine_and_impossible_ones_are_named() {
        assert_eq!(spec().validate(), Ok(spec()));
        let zero = ModelSpec { n_kv_heads: 0, ..spec() };
        assert_eq!(zero.validate(), Err(SpecError::Zero { field: "n_kv_heads" }));
        let heads = ModelSpec { n_kv_heads: 3, ..spec() };
        assert_eq!(heads.validate(), Err(SpecError::HeadsNotDivisible { n_heads: 10, n_kv_heads: 3 }));
        let odd = ModelSpec { head_dim: 33, ..spec() };
        assert_eq!(odd.validate(), Err(SpecError::OddHeadDim { head_dim: 33 }));
        let huge = ModelSpec { hidden_size: usize::MAX, ..spec() };
        assert!(matches!(huge.validate(), Err(SpecError::TooLarge { field: "hidden_size", .. })));
        let wide = ModelSpec { n_heads: 1 << 20, n_kv_heads: 1, head_dim: 1 << 20, ..spec() };
        assert!(matches!(wide.validate(), Err(SpecError::TooLarge { field: "n_heads * head_dim", .. })));
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(ModelSpec { rope_theta: value, ..spec() }.validate().is_err());
            assert!(ModelSpec { rms_norm_eps: value as f32, ..spec() }.validate().is_err());
        }
    }

    #[test]
    fn yarn_takes_the_cards_defaults() {
        let stretched = spec().with_yarn(4.0).unwrap();
        let yarn = stretched.rope_scaling.clone().unwrap();
        assert_eq!(
            (yarn.beta_fast, yarn.beta_slow, yarn.original_max_position_embeddings),
            (32.0, 1.0, 32_768)
        );
        assert!((yarn.attention_factor - 1.138_629_436_111_989).abs() < 1e-15);
        assert_eq!(stretched.context(), 131_072);
        assert_eq!(spec().context(), 40_960);
        for factor in [0.5, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(spec().with_yarn(factor).is_err(), "{factor}");
        }
    }
}
