//! From a row of logits to what the row was asked for; one definition for every device that has its logits on the host.

use crate::batch::{Answer, Ask};
use crate::sampling::logprobs::{MapSpans, argmax_by, log_prob_by, top_logprobs_by};

/// Answers `ask` from the logits of one row, spans of which `map` evaluates. [`Ask::Nothing`] and [`Ask::Hidden`] do not
/// concern logits; a device answers them itself, and here they get the logits.
pub(crate) fn answer(ask: Ask, logits: &[f32], map: &mut MapSpans<'_>) -> Answer {
    match ask {
        Ask::Nothing | Ask::Hidden | Ask::Logits => Answer::Logits(logits.to_vec()),
        Ask::Argmax => Answer::Argmax(argmax_by(logits, map)),
        Ask::TopK(count) => Answer::TopK(top_logprobs_by(logits, count, map)),
        Ask::LogProb(token) => Answer::LogProb(log_prob_by(logits, token, map)),
    }
}
