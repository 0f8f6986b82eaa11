//! Where the time of a completion went. Prefill and decode are apart: the first token belongs to the prefill, so a
//! completion of n tokens has n - 1 decode steps, and loading appears in neither.

use std::time::Duration;

use serde::Serialize;

/// Counts and times of one completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    /// Tokens of the prompt that were evaluated.
    pub(crate) prefill_tokens: usize,
    /// From the first prompt token's evaluation to the first generated token.
    pub(crate) prefill: Duration,
    /// Tokens of the prompt that the KV cache had.
    pub(crate) cached_tokens: usize,
    /// Tokens after the first.
    pub(crate) decode_tokens: usize,
    /// All of them together, writing the text not counted.
    pub(crate) decode: Duration,
    /// Tokens that were proposed ahead of the model, where somebody does that.
    pub(crate) drafted_tokens: usize,
    /// Of those, the ones that became part of the completion.
    pub(crate) accepted_tokens: usize,
}

/// As reports give it. A rate of nothing is absent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Timings {
    load_ms: f64,
    prefill_ms: f64,
    prefill_tok_s: Option<f64>,
    decode_ms: f64,
    decode_tok_s: Option<f64>,
    cached_tokens: usize,
    drafted_tokens: usize,
    accepted_tokens: usize,
}

impl Timings {
    pub(crate) fn new(load: Duration, measured: Measured) -> Timings {
        Timings {
            load_ms: ms(load),
            prefill_ms: ms(measured.prefill),
            prefill_tok_s: rate(measured.prefill_tokens, measured.prefill),
            decode_ms: ms(measured.decode),
            decode_tok_s: rate(measured.decode_tokens, measured.decode),
            cached_tokens: measured.cached_tokens,
            drafted_tokens: measured.drafted_tokens,
            accepted_tokens: measured.accepted_tokens,
        }
    }
}

impl Measured {
    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let part = |name: &str, tokens: usize, time: Duration| match rate(tokens, time) {
            Some(rate) => format!("{name} {tokens} tokens in {:.1} ms ({rate:.1} tok/s)", ms(time)),
            None => format!("{name} {tokens} tokens"),
        };
        let mut line = part("prefill", self.prefill_tokens, self.prefill);
        if self.cached_tokens > 0 {
            line += &format!(", {} more cached", self.cached_tokens);
        }
        line += &format!(", {}", part("decode", self.decode_tokens, self.decode));
        if self.drafted_tokens > 0 {
            line += &format!(", {} of {} drafted tokens accepted", self.accepted_tokens, self.drafted_tokens);
        }
        line
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h31_load_and_first_token_are_in_neither_rate() {
        let measured = Measured {
            prefill_tokens: 100,
            prefill: Duration::from_secs(2),
            decode_tokens: 10, // 11 tokens
            decode: Duration::from_secs(1),
            ..Measured::default()
        };
        let timings = Timings::new(Duration::from_secs(5), measured);
        assert_eq!(timings.prefill_tok_s, Some(50.0));
        assert_eq!(timings.decode_tok_s, Some(10.0));
        assert_eq!((timings.load_ms, timings.prefill_ms, timings.decode_ms), (5000.0, 2000.0, 1000.0));
        let line = "prefill 100 tokens in 2000.0 ms (50.0 tok/s), decode 10 tokens in 1000.0 ms (10.0 tok/s)";
        assert_eq!(measured.line(), line);
        let more = Measured { cached_tokens: 64, drafted_tokens: 9, accepted_tokens: 7, ..measured };
        let line = more.line();
        assert!(line.contains("(50.0 tok/s), 64 more cached, decode"), "{line}");
        assert!(line.ends_with("(10.0 tok/s), 7 of 9 drafted tokens accepted"), "{line}");
    }

    #[test]
    fn h31_one_token_has_no_decode_rate() {
        let measured =
            Measured { prefill_tokens: 1, prefill: Duration::from_millis(1), ..Measured::default() };
        assert_eq!(Timings::new(Duration::ZERO, measured).decode_tok_s, None);
        assert!(measured.line().ends_with(", decode 0 tokens"));
    }
}
