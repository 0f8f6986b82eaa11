//! From a row of logits to what the row was asked for; one definition for every device that has its logits on the host.

use crate::batch::{Answer, Ask};
use crate::sampling::logprobs;
use crate::token::TokenId;

/// Answers `ask` from the logits of one row. [`Ask::Nothing`] and [`Ask::Hidden`] do not concern logits; a device
/// answers them itself, and here they get the logits.
pub(crate) fn answer(ask: Ask, logits: &[f32]) -> Answer {
    match ask {
        Ask::Nothing | Ask::Hidden | Ask::Logits => Answer::Logits(logits.to_vec()),
        Ask::Argmax => Answer::Argmax(argmax(logits)),
        Ask::TopK(count) => Answer::TopK(logprobs::top_logprobs(logits, count)),
        Ask::LogProb(token) => Answer::LogProb(logprobs::log_prob(logits, token)),
    }
}

/// The lowest id of the largest logit; NaN is never the largest.
fn argmax(logits: &[f32]) -> TokenId {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, logit) in logits.iter().enumerate() {
        if *logit > best.1 {
            best = (id as TokenId, *logit);
        }
    }
    best.0
}
