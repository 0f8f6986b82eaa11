//! Whether a draft pays, and how long it should be. A state machine over what happened: the same history of calls gives the
//! same decisions.
//!
//! ```text
//! p       = (1 + hits) / (2 + hits + misses)     a drafted token is right; hits and misses fade with each draft
//! E(k)    = 1 + p + p^2 + ... + p^k              tokens that a step with k drafted ones is expected to make
//! cost(k) = 1 + k * (row + draft) + catching_up  in steps of one row
//! k       = argmax E(k) / cost(k), and 0 unless that is above 1.05
//! ```
//!
//! An estimate can be wrong, so a draft must also be covered by **credit**, counted in tokens: what a draft gained is earned
//! (`accepted - k * (row + draft) - catching_up`), each plain step allows 0.01 more, and a draft is never longer than the credit
//! can pay if all of it is wrong. So whatever the text, the time of `n` tokens is at most `1.01 * n + 0.5` plain steps, as
//! far as the costs are right: never below 0.97 of plain decoding from some 25 tokens on.
//!
//! A drafter that has read only the end of a long prompt may read all of it once the sequence is ahead of plain decoding
//! by what that takes: what was gained pays for it, and nothing else does.
//!
//! While it is off, it learns from drafts that are only watched where drafting is free; else it tries two tokens
//! after 8 steps without a draft, and after twice as many each time they fail, up to 64.

use super::TokenCosts;

/// Tokens that a draft has at most, a limit on rows of logits as well: each takes the whole vocabulary. At a row's price of
/// 0.07 and 98 of 100 tokens right, 16 give 6.8 times the speed and 32 give 7.5.
pub const MAX_DRAFT_TOKENS: usize = 16;

/// How far ahead a draft must be. Less is within what estimates are wrong by.
const MARGIN: f64 = 1.05;

/// What hits and misses before a draft count after it: seven drafts are remembered.
const FADE: f64 = 0.85;

/// Credit that a plain step gives, in tokens.
const ALLOWANCE: f64 = 0.01;

/// Credit of a new sequence: its first draft may have some tokens.
const INITIAL_CREDIT: f64 = 0.5;

/// Most credit that is kept, so that gains of long ago do not pay for a bad stretch now.
const MAX_CREDIT: f64 = 4.0;

/// Tokens of a try while off.
const TRIED_TOKENS: usize = 2;

/// Plain steps before a try: after one that succeeded, and at most.
const WAIT_STEPS: (u32, u32) = (8, 64);

/// Decides for one sequence.
#[derive(Clone, Debug)]
pub struct Gate {
    max_tokens: usize,
    /// Whether to try while off, because nobody watches.
    tries: bool,
    hits: f64,
    misses: f64,
    credit: f64,
    /// The credit as it would be without a limit: tokens ahead of plain decoding.
    ahead: f64,
    plain_steps: u32,
    wait_steps: u32,
}

impl Gate {
    /// A gate for drafts of at most `max_tokens`. `tries` says that drafts are not free, so that it must try
    /// them itself while off; otherwise it is told by [`Gate::watched`].
    pub fn new(max_tokens: usize, tries: bool) -> Gate {
        Gate {
            max_tokens: max_tokens.min(MAX_DRAFT_TOKENS),
            tries,
            hits: 0.0,
            misses: 0.0,
            credit: INITIAL_CREDIT,
            ahead: INITIAL_CREDIT,
            plain_steps: 0,
            wait_steps: WAIT_STEPS.0,
        }
    }

    /// The length of the next draft, 0 for none, where the drafter has `behind` tokens to catch up with.
    pub fn draft_tokens(&self, costs: TokenCosts, behind: usize) -> usize {
        let catching_up = costs.catch_up * behind as f64;
        let each = costs.row + costs.draft;
        // What the credit pays for if every drafted token is wrong.
        let covered = ((self.credit - catching_up) / each.max(1e-6)).max(0.0) as usize;
        let longest = self.max_tokens.min(covered);
        let p = self.acceptance();
        let (mut best, mut best_speed) = (0, MARGIN);
        let (mut expected, mut power) = (1.0, 1.0);
        for k in 1..=longest {
            power *= p;
            expected += power;
            let speed = expected / (1.0 + each * k as f64 + catching_up);
            if speed > best_speed {
                (best, best_speed) = (k, speed);
            }
        }
        if best == 0 && self.tries && self.plain_steps >= self.wait_steps {
            best = TRIED_TOKENS.min(longest);
        }
        best
    }

    /// Pays for catching up with `behind` tokens out of what was gained, if that leaves as much credit as is ever kept.
    pub fn pay_for(&mut self, costs: TokenCosts, behind: usize) -> bool {
        let left = self.ahead - costs.catch_up * behind as f64;
        let is_paid = left >= MAX_CREDIT;
        if is_paid {
            self.ahead = left;
        }
        is_paid
    }

    /// A step ran without a draft.
    pub fn plain(&mut self) {
        self.plain_steps = self.plain_steps.saturating_add(1);
        self.earn(ALLOWANCE);
    }

    /// A step checked `drafted` tokens, and the first `accepted` of them were right. None were drafted where the drafter
    /// caught up with `behind` tokens and had nothing to propose.
    pub fn verified(&mut self, drafted: usize, accepted: usize, costs: TokenCosts, behind: usize) {
        let catching_up = costs.catch_up * behind as f64;
        if drafted == 0 {
            self.earn(-catching_up);
            return self.plain();
        }
        self.earn(accepted as f64 - (costs.row + costs.draft) * drafted as f64 - catching_up);
        self.plain_steps = 0;
        let (shortest, longest) = WAIT_STEPS;
        self.wait_steps = if accepted > 0 { shortest } else { (2 * self.wait_steps).min(longest) };
        self.watched(drafted, accepted);
    }

    fn earn(&mut self, tokens: f64) {
        self.ahead += tokens;
        self.credit = (self.credit + tokens).min(MAX_CREDIT);
    }

    /// A draft of `drafted` tokens would have had its first `accepted` right; nothing was spent on it.
    pub fn watched(&mut self, drafted: usize, accepted: usize) {
        if drafted > 0 {
            self.hits = self.hits * FADE + accepted as f64;
            self.misses = self.misses * FADE + f64::from(u8::from(accepted < drafted));
        }
    }

    /// How likely a drafted token is right if those before it are.
    pub fn acceptance(&self) -> f64 {
        (1.0 + self.hits) / (2.0 + self.hits + self.misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: TokenCosts = TokenCosts { row: 0.07, draft: 0.0, catch_up: 0.0 };

    /// Numbers in 0..1, the same every time.
    struct Stream(u64);

    impl Stream {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Tokens a plain step's time, over `n` tokens, where token `i` is drafted right with likelihood `p(i)`. `watches`:
    /// drafts are looked at while off, of 8 tokens each, as a free drafter lets one.
    fn speed(n: usize, costs: TokenCosts, watches: bool, p: impl Fn(usize) -> f64) -> f64 {
        let mut gate = Gate::new(MAX_DRAFT_TOKENS, !watches);
        let mut stream = Stream(7);
        let (mut tokens, mut time) = (0, 0.0);
        while tokens < n {
            let k = gate.draft_tokens(costs, 1);
            let right =
                |stream: &mut Stream, k: usize| (0..k).take_while(|i| stream.next() < p(tokens + i)).count();
            if k == 0 {
                if watches && tokens % 8 == 0 {
                    let accepted = right(&mut stream, 8);
                    gate.watched(8, accepted);
                }
                gate.plain();
                (tokens, time) = (tokens + 1, time + 1.0);
                continue;
            }
            let accepted = right(&mut stream, k);
            gate.verified(k, accepted, costs, 1);
            tokens += accepted + 1;
            time += 1.0 + (costs.row + costs.draft) * k as f64 + costs.catch_up;
        }
        tokens as f64 / time
    }

    #[test]
    fn text_that_cannot_be_drafted_costs_nearly_nothing() {
        for row in [0.01, 0.07, 0.3, 0.9] {
            for draft in [0.0, 0.15] {
                for watches in [true, false] {
                    for n in [32, 100, 1000, 10_000] {
                        let costs = TokenCosts { row, draft, catch_up: draft / 10.0 };
                        let speed = speed(n, costs, watches, |_| 0.0);
                        assert!(speed >= 0.97, "row {row}, draft {draft}, watches {watches}, {n}: {speed}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_text_is_much_slower_than_plain_decoding() {
        // Right and wrong in turns of every length, so that each estimate comes too late.
        for turn in [1, 2, 3, 5, 8, 13, 30, 100, 400] {
            for row in [0.03, 0.07, 0.3, 0.9] {
                for watches in [true, false] {
                    let costs = TokenCosts { row, draft: 0.05, catch_up: 0.005 };
                    let speed = speed(5000, costs, watches, |i| if (i / turn) % 2 == 0 { 1.0 } else { 0.0 });
                    assert!(speed >= 0.97, "turns of {turn}, row {row}: {speed}");
                }
            }
        }
    }

    #[test]
    fn repetitive_text_gets_long_drafts() {
        let speed_of = |p: f64| speed(500, CPU, true, |_| p);
        assert!(speed_of(1.0) > 6.0, "{}", speed_of(1.0));
        assert!(speed_of(0.95) > 3.0, "{}", speed_of(0.95));
        assert!(speed_of(0.6) > 1.4, "{}", speed_of(0.6));
        let mut gate = Gate::new(MAX_DRAFT_TOKENS, false);
        for _ in 0..10 {
            let k = gate.draft_tokens(CPU, 1);
            gate.verified(k, k, CPU, 1);
        }
        assert_eq!(gate.draft_tokens(CPU, 1), MAX_DRAFT_TOKENS);
    }

    #[test]
    fn an_expensive_row_closes_the_gate() {
        let gate = Gate::new(MAX_DRAFT_TOKENS, false);
        assert!(gate.draft_tokens(CPU, 1) > 0);
        assert_eq!(gate.draft_tokens(TokenCosts { row: 1.0, ..CPU }, 1), 0);
        assert_eq!(Gate::new(0, false).draft_tokens(CPU, 1), 0);
    }

    #[test]
    fn a_closed_gate_tries_ever_more_rarely_and_opens_when_that_succeeds() {
        let costs = TokenCosts { row: 0.07, draft: 0.05, catch_up: 0.005 };
        let mut gate = Gate::new(MAX_DRAFT_TOKENS, true);
        let mut tries = Vec::new();
        for step in 0..2000 {
            match gate.draft_tokens(costs, 1) {
                0 => gate.plain(),
                k => {
                    tries.push(step);
                    gate.verified(k, 0, costs, 1);
                }
            }
        }
        let late = tries.iter().filter(|step| **step >= 1000).count();
        assert!((10..=20).contains(&late), "{tries:?}");
        // The text turns repetitive: within one wait it drafts again, and soon at full length.
        let mut steps = 0;
        while gate.draft_tokens(costs, 1) < 12 {
            steps += 1;
            match gate.draft_tokens(costs, 1) {
                0 => gate.plain(),
                k => gate.verified(k, k, costs, 1),
            }
            assert!(steps < 120, "{gate:?}");
        }
    }
}
