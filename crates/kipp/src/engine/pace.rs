//! How much of prompts fits into a step beside answers that are being decoded, from how long steps took. A measured time
//! goes in, a number of tokens comes out; the same times give the same numbers.

use std::time::Duration;

use super::stats::StepReport;
use crate::kv::BLOCK_TOKENS;

/// Where decoding alone takes this long, a step of it cannot be kept short by evaluating less.
const SLOW_DECODE: Duration = Duration::from_millis(100);

/// What a step beside decoding should take at most: an answer that pauses this long still reads as flowing.
const STEP_TARGET: Duration = Duration::from_millis(150);

/// What an older measurement counts against a new one: a few steps forget a hiccup, and follow a context that grows.
const FADING: f64 = 0.75;

/// What steps have taken so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Steps that only decode.
    decode: Fading,
    /// What tokens of prompts add to a step.
    prefill: Fading,
}

/// Seconds and what they were spent on, the latest counting most: by its size, too, so that the few tokens of a short
/// prompt, which take long for their number, do not stand for the many of a long one.
#[derive(Clone, Copy, Debug, Default)]
struct Fading {
    seconds: f64,
    count: f64,
}

impl Fading {
    fn add(&mut self, seconds: f64, count: usize) {
        self.seconds = self.seconds * FADING + seconds;
        self.count = self.count * FADING + count as f64;
    }

    /// Seconds for one, if any were measured.
    fn each(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.seconds / self.count)
    }
}

impl Pace {
    /// Takes a step into account.
    pub(super) fn measured(&mut self, step: &StepReport) {
        let seconds = step.duration.as_secs_f64();
        if step.prefill_rows == 0 {
            return self.decode.add(seconds, 1);
        }
        let decodes = step.decode_rows + step.draft_rows > 0;
        let of_decoding = if decodes { self.decode.each().unwrap_or(0.0) } else { 0.0 };
        self.prefill.add((seconds - of_decoding).max(0.0), step.prefill_rows);
    }

    /// Tokens of prompts for the next step, which has `decode_rows` rows of answers and drafts and at most `step_tokens`
    /// rows in all.
    pub(super) fn prefill_tokens(&self, decode_rows: usize, step_tokens: usize) -> usize {
        let room = step_tokens.saturating_sub(decode_rows);
        if decode_rows == 0 {
            return room;
        }
        let (Some(decode_s), Some(token_s)) = (self.decode.each(), self.prefill.each()) else {
            return room.min(BLOCK_TOKENS);
        };
        if decode_s >= SLOW_DECODE.as_secs_f64() {
            return room.min(BLOCK_TOKENS);
        }
        let seconds = STEP_TARGET.as_secs_f64() - decode_s;
        // A step that took no time, as on a clock that stands still, allows any number.
        let tokens = if token_s > 0.0 { (seconds / token_s) as usize } else { usize::MAX };
        room.min((tokens / BLOCK_TOKENS).max(1).saturating_mul(BLOCK_TOKENS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens allowed beside `decode_rows`, on a machine where a step takes `decode_ms` for its answers and
    /// `token_ms` for each token of a prompt, after it has run for a while.
    fn settled(decode_ms: f64, token_ms: f64) -> usize {
        let mut pace = Pace::default();
        for _ in 0..50 {
            for prefill_rows in [0, pace.prefill_tokens(4, 512)] {
                let ms = decode_ms + token_ms * prefill_rows as f64;
                let duration = Duration::from_secs_f64(ms / 1e3);
                pace.measured(&StepReport { decode_rows: 4, draft_rows: 0, prefill_rows, duration });
            }
        }
        pace.prefill_tokens(4, 512)
    }

    #[test]
    fn prompts_are_sized_to_keep_the_step_short() {
        // 150 ms - 30 ms are 120 tokens, which are 3 blocks.
        assert_eq!(settled(30.0, 1.0), 96);
        assert_eq!(settled(99.0, 0.5), 96);
        // One block, whatever it takes.
        assert_eq!(settled(99.0, 9.0), 32);
        assert_eq!(settled(101.0, 0.01), 32);
        assert_eq!(settled(2.0, 0.1), 508, "no more than the budget leaves");
    }

    #[test]
    fn without_answers_the_budget_is_the_limit_and_without_measurements_one_block() {
        let pace = Pace::default();
        assert_eq!(pace.prefill_tokens(0, 512), 512);
        assert_eq!(pace.prefill_tokens(1, 512), 32);
        assert_eq!(pace.prefill_tokens(20, 30), 10);
        assert_eq!(pace.prefill_tokens(30, 30), 0);
    }
}
