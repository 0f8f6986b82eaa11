//! Perplexity: how well a model predicts a text, under a stated protocol; and divergence: how far its predictions lie from
//! those of another model on the same text.

mod divergence;
mod mean;
mod protocol;

use crate::TokenId;
use crate::batch::{Answer, Ask};
use crate::kv::KvPool;
use crate::model::Forward;
use crate::session::{Session, SessionError};

pub use divergence::{Divergence, divergence};
pub use mean::Mean;
pub use protocol::Protocol;

use protocol::Window;

/// Why a perplexity cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PerplexityError {
    /// A window of one token scores nothing.
    #[error("a window needs at least 2 tokens, not {0}")]
    Window(usize),
    /// Windows that do not overlap have no stride, and one of nothing never ends.
    #[error("a stride of {stride} tokens does not overlap windows of {window}; it is 1 to {}", window - 1)]
    Stride {
        /// Tokens a window.
        window: usize,
        /// What was asked for.
        stride: usize,
    },
    /// The first token of a window has no prediction.
    #[error("{tokens} tokens leave nothing to score in windows of {}: {protocol}", protocol.window())]
    TooShort {
        /// Tokens of the text.
        tokens: usize,
        /// How they were to be cut.
        protocol: Protocol,
    },
    /// Log-probabilities of two vocabularies are not comparable.
    #[error("a vocabulary of {tokens} tokens cannot be held against one of {reference}")]
    Vocabularies {
        /// The model's.
        tokens: usize,
        /// The reference's.
        reference: usize,
    },
    /// The KV cache does not hold a window, or the model failed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// How well a text was predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Perplexity {
    /// What was scored.
    pub protocol: Protocol,
    /// Tokens of the text.
    pub tokens: usize,
    /// Negative log-likelihood a scored token, natural logarithm.
    pub nll: Mean,
    /// `exp(nll)`
    pub ppl: f64,
    /// Negative log-likelihood of each scored token, in order of the text.
    pub per_token: Vec<f64>,
}

impl Perplexity {
    fn new(protocol: Protocol, tokens: usize, per_token: Vec<f64>) -> Perplexity {
        let nll = Mean::of(per_token.iter().copied());
        Perplexity { protocol, tokens, nll, ppl: libm::exp(nll.value), per_token }
    }
}

/// Scores `tokens`. `progress` is told the tokens done.
pub fn perplexity(
    model: &mut dyn Forward,
    pool: &KvPool,
    tokens: &[TokenId],
    protocol: Protocol,
    progress: &mut dyn FnMut(usize),
) -> Result<Perplexity, PerplexityError> {
    let mut per_token = Vec::with_capacity(tokens.len());
    for window in protocol.windows(tokens.len())? {
        score_window(model, pool, tokens, &window, &mut per_token)?;
        progress(window.tokens.end);
    }
    Ok(Perplexity::new(protocol, tokens.len(), per_token))
}

fn score_window(
    model: &mut dyn Forward,
    pool: &KvPool,
    tokens: &[TokenId],
    window: &Window,
    per_token: &mut Vec<f64>,
) -> Result<(), PerplexityError> {
    // The last token predicts nothing inside the window, so it is not evaluated.
    let read = window.tokens.start..window.tokens.end - 1;
    let ask = |i| match read.start + i + 1 {
        next if window.scored.contains(&next) => Ask::LogProb(tokens[next]),
        _ => Ask::Nothing,
    };
    let answers = Session::new(model, pool).evaluate(&tokens[read.clone()], ask)?;
    per_token.extend(answers.iter().filter_map(|answer| match answer {
        Answer::LogProb(log_prob) => Some(-log_prob),
        _ => None,
    }));
    Ok(())
}
