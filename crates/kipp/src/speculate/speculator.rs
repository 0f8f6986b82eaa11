//! One sequence's speculation: its drafter and its gate. The engine asks for a draft before each decode step and says
//! afterwards how much of it was right.

use super::{Drafter, Gate, TokenCosts};
use crate::TokenId;

/// Tokens of a draft that is only watched: enough to tell a repetition from a chance.
const WATCHED_TOKENS: usize = 8;

/// A draft that nobody checks: how far the text follows it shows whether drafts would pay.
#[derive(Debug)]
struct Watched {
    /// Length of the history that it was drafted for.
    from: usize,
    tokens: Vec<TokenId>,
}

/// The speculation of one sequence.
pub struct Speculator {
    drafter: Box<dyn Drafter>,
    gate: Gate,
    draft: Vec<TokenId>,
    watched: Option<Watched>,
    /// Length of the history that the drafter saw last; 0 before the first draft.
    seen_tokens: usize,
    /// Of the step that runs.
    costs: TokenCosts,
    behind: usize,
    drafted_tokens: usize,
    accepted_tokens: usize,
}

impl Speculator {
    /// Speculation with drafts of at most `max_tokens` from `drafter`.
    pub fn new(drafter: Box<dyn Drafter>, max_tokens: usize) -> Speculator {
        let gate = Gate::new(max_tokens, !drafter.is_free());
        Speculator {
            drafter,
            gate,
            draft: Vec::new(),
            watched: None,
            seen_tokens: 0,
            costs: TokenCosts { row: 0.0, draft: 0.0 },
            behind: 0,
            drafted_tokens: 0,
            accepted_tokens: 0,
        }
    }

    /// Before a decode step: the tokens to check after the last one of `history` (prompt and answer so far), at most
    /// `room_tokens`; none for a plain step. The caller may check fewer, from the front.
    pub fn draft(&mut self, history: &[TokenId], room_tokens: usize, costs: TokenCosts) -> &[TokenId] {
        self.look_at_watched(history);
        // The prompt is caught up with once, whatever follows.
        self.behind = match self.seen_tokens {
            0 => 0,
            seen => history.len().saturating_sub(seen),
        };
        self.costs = costs;
        self.draft.clear();
        let wanted = self.gate.draft_tokens(costs, self.behind);
        if wanted.min(room_tokens) > 0 {
            self.watched = None;
            self.ask(history, wanted.min(room_tokens));
        } else if wanted == 0 && self.watched.is_none() && self.drafter.is_free() {
            self.ask(history, WATCHED_TOKENS);
            if !self.draft.is_empty() {
                self.watched = Some(Watched { from: history.len(), tokens: std::mem::take(&mut self.draft) });
            }
        }
        &self.draft
    }

    /// After a decode step: `drafted` tokens of the draft were checked, the first `accepted` of them right.
    pub fn settle(&mut self, drafted: usize, accepted: usize) {
        self.gate.verified(drafted, accepted, self.costs, self.behind);
        if drafted > 0 {
            self.drafter.accepted(drafted, accepted);
            self.drafted_tokens += drafted;
            self.accepted_tokens += accepted;
        }
    }

    /// Drafted tokens that were checked, and those of them that were right.
    pub fn counts(&self) -> (usize, usize) {
        (self.drafted_tokens, self.accepted_tokens)
    }

    fn ask(&mut self, history: &[TokenId], max_tokens: usize) {
        self.drafter.draft(history, max_tokens, &mut self.draft);
        self.draft.truncate(max_tokens);
        self.seen_tokens = history.len();
    }

    /// Tells the gate of a watched draft once it is known how far the text followed it.
    fn look_at_watched(&mut self, history: &[TokenId]) {
        let Some(Watched { from, tokens }) = &self.watched else { return };
        let Some(since) = history.get(*from..) else {
            self.watched = None;
            return;
        };
        let right = tokens.iter().zip(since).take_while(|(drafted, chosen)| drafted == chosen).count();
        if right == tokens.len() || right < since.len() {
            self.gate.watched(tokens.len(), right);
            self.watched = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NgramDrafter;
    use super::*;

    const CPU: TokenCosts = TokenCosts { row: 0.07, draft: 0.0 };

    /// Replays `text` after its first `prompt_tokens`: the steps that it takes, and the tokens drafted and accepted.
    fn replay(text: &[TokenId], prompt_tokens: usize) -> (usize, usize, usize) {
        let mut speculator = Speculator::new(Box::new(NgramDrafter::new()), 16);
        let (mut len, mut steps) = (prompt_tokens, 0);
        while len < text.len() {
            let draft = speculator.draft(&text[..len], text.len() - len - 1, CPU);
            let drafted = draft.len();
            let accepted = draft.iter().zip(&text[len..]).take_while(|(a, b)| a == b).count();
            speculator.settle(drafted, accepted);
            len += accepted + 1;
            steps += 1;
        }
        assert_eq!(len, text.len(), "never past the room");
        let (drafted, accepted) = speculator.counts();
        (steps, drafted, accepted)
    }

    fn noise(n: u32, kinds: u32) -> impl Iterator<Item = TokenId> {
        (0..n).map(move |i| (i.wrapping_mul(2_654_435_761).wrapping_add(i * i) >> 7) % kinds)
    }

    #[test]
    fn a_repetition_is_drafted_and_noise_is_left_alone() {
        let repeated: Vec<TokenId> = (0..600).map(|i| i % 20).collect();
        let (steps, drafted, accepted) = replay(&repeated, 40);
        assert!(steps < 560 / 8 && accepted * 10 > drafted * 9, "{steps} {drafted} {accepted}");
        let random: Vec<TokenId> = noise(2000, 12).collect();
        let (steps, drafted, accepted) = replay(&random, 100);
        let time = steps as f64 + 0.07 * drafted as f64;
        assert!(1900.0 / time > 0.98, "{steps} {drafted} {accepted}");
    }

    #[test]
    fn a_closed_gate_opens_when_the_text_starts_to_repeat() {
        let mut text: Vec<TokenId> = noise(1000, 12).collect();
        text.extend((0..400).map(|i| 100 + i % 25));
        let before = replay(&text[..1000], 50);
        let after = replay(&text, 50);
        assert!(after.0 - before.0 < 120, "{before:?} {after:?}");
    }

    #[test]
    fn a_history_that_shrank_is_survived() {
        let text: Vec<TokenId> = (0..100).map(|i| i % 9).collect();
        let mut speculator = Speculator::new(Box::new(NgramDrafter::new()), 8);
        for len in [90, 30, 31, 2, 0, 95] {
            assert!(speculator.draft(&text[..len], 3, CPU).len() <= 3);
            speculator.settle(0, 0);
        }
    }
}
