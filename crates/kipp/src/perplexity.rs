//! Perplexity: how well a model predicts a text, in non-overlapping windows.

use crate::batch::{Answer, Ask};
use crate::kv::KvPool;
use crate::model::Forward;
use crate::session::{Session, SessionError};
use crate::token::TokenId;

/// Why a perplexity cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PerplexityError {
    /// A window of one token scores nothing.
    #[error("a window needs at least 2 tokens, not {0}")]
    Window(usize),
    /// Fewer than two tokens score nothing.
    #[error("{0} tokens leave nothing to score; the first of a window has no prediction")]
    TooShort(usize),
    /// The KV cache does not hold a window, or the model failed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The result, with its protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Perplexity {
    /// What was scored, in words.
    pub protocol: &'static str,
    /// Tokens of the text.
    pub tokens: usize,
    /// Tokens scored.
    pub tokens_scored: usize,
    /// Tokens a window.
    pub window: usize,
    /// Mean negative log-likelihood a scored token, natural logarithm.
    pub nll: f64,
    /// `exp(nll)`
    pub ppl: f64,
    /// Standard error of `nll`, tokens taken as independent.
    pub stderr: f64,
    /// Negative log-likelihood of each scored token, in order of the text.
    pub per_token: Vec<f64>,
}

/// Scores `tokens` in non-overlapping windows: every window starts from an empty cache, and every token but a window's
/// first is scored by those before it in its window.
pub fn perplexity(
    model: &mut dyn Forward,
    pool: &KvPool,
    tokens: &[TokenId],
    window: usize,
    progress: &mut dyn FnMut(usize),
) -> Result<Perplexity, PerplexityError> {
    if window < 2 {
        return Err(PerplexityError::Window(window));
    }
    if tokens.len() < 2 {
        return Err(PerplexityError::TooShort(tokens.len()));
    }
    let mut per_token = Vec::with_capacity(tokens.len());
    for (index, window_tokens) in tokens.chunks(window).enumerate() {
        score_window(model, pool, window_tokens, &mut per_token)?;
        progress(tokens.len().min((index + 1) * window));
    }
    Ok(summarize(tokens.len(), window, per_token))
}

fn score_window(
    model: &mut dyn Forward,
    pool: &KvPool,
    tokens: &[TokenId],
    per_token: &mut Vec<f64>,
) -> Result<(), PerplexityError> {
    // The last token predicts nothing inside the window, so it is not evaluated.
    let context = &tokens[..tokens.len() - 1];
    let answers = Session::new(model, pool).evaluate(context, |i| Ask::LogProb(tokens[i + 1]))?;
    per_token.extend(answers.iter().filter_map(|answer| match answer {
        Answer::LogProb(log_prob) => Some(-log_prob),
        _ => None,
    }));
    Ok(())
}

fn summarize(tokens: usize, window: usize, per_token: Vec<f64>) -> Perplexity {
    let count = per_token.len() as f64;
    let nll = per_token.iter().sum::<f64>() / count;
    let squares = per_token.iter().map(|x| (x - nll) * (x - nll)).sum::<f64>();
    let stderr = if per_token.len() > 1 { (squares / (count - 1.0) / count).sqrt() } else { f64::NAN };
    Perplexity {
        protocol: "non-overlapping windows, each from an empty cache; every token but a window's first is scored",
        tokens,
        tokens_scored: per_token.len(),
        window,
        nll,
        ppl: libm::exp(nll),
        stderr,
        per_token,
    }
}
