//! Counts and times of a request, as answers carry them.

use kipp::engine::RequestStats;
use serde_json::{Value, json};

/// What a request has cost so far, all its prompts and choices together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    pub(crate) cached_tokens: usize,
    pub(crate) completion_tokens: usize,
    /// Tokens of thinking, its marks included; `None` where thinking is not told apart.
    pub(crate) reasoning_tokens: Option<usize>,
}

impl Usage {
    /// OpenAI's `usage`.
    pub(crate) fn json(&self) -> Value {
        let mut usage = json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        });
        if let Some(reasoning_tokens) = self.reasoning_tokens {
            usage["completion_tokens_details"] = json!({"reasoning_tokens": reasoning_tokens});
        }
        usage
    }
}

/// Times of the choices that have ended. Prompts and times of choices that share them count once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timings {
    first: Option<RequestStats>,
    completion_tokens: usize,
    drafted_tokens: usize,
    accepted_tokens: usize,
    decode_ms: f64,
}

impl Timings {
    /// A choice ended.
    pub(crate) fn add(&mut self, stats: RequestStats) {
        self.first.get_or_insert(stats);
        self.completion_tokens += stats.completion_tokens;
        self.drafted_tokens += stats.drafted_tokens;
        self.accepted_tokens += stats.accepted_tokens;
        // Choices run beside each other: the longest is how long it took.
        self.decode_ms = self.decode_ms.max(ms(stats.decode));
    }

    /// The object `timings`: of the first prompt, and of all answers.
    pub(crate) fn json(&self) -> Value {
        let first = self.first.unwrap_or_default();
        let rate = |tokens: usize, ms: f64| if ms > 0.0 { tokens as f64 * 1000.0 / ms } else { 0.0 };
        let prefill_ms = ms(first.prefill);
        json!({
            "queue_ms": ms(first.queue),
            "prefill_ms": prefill_ms,
            "decode_ms": self.decode_ms,
            "prompt_tokens": first.prompt_tokens,
            "cached_tokens": first.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "prefill_tok_s": rate(first.evaluated_tokens, prefill_ms),
            "decode_tok_s": rate(self.completion_tokens.saturating_sub(1), self.decode_ms),
            "drafted_tokens": self.drafted_tokens,
            "accepted_tokens": self.accepted_tokens,
        })
    }
}

fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
