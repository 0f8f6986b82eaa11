//! One sequence's speculation: its drafter and its gate. The engine asks for a draft before each decode step and says
//! afterwards how much of it was right.

use super::{Drafter, Gate, TokenCosts};
use crate::TokenId;

/// Tokens of a draft that is only watched: enough to tell a repetition from a chance.
const WATCHED_TOKENS: usize = 8;

/// Tokens at the end of a prompt that a draft model reads for its first draft: enough for common words, and cheap where
/// drafts turn out not to pay. It reads all of the prompt once its drafts have gained what that takes.
const FIRST_CONTEXT_TOKENS: usize = 32;

/// A draft that nobody checks: how far the text follows it shows whether drafts would pay.
#[derive(Debug)]
struct Watched {
    /// Length of the history that it was drafted for.
    history_tokens: usize,
    tokens: Vec<TokenId>,
}

/// The speculation of one sequence.
pub struct Speculator {
    drafter: Box<dyn Drafter>,
    gate: Gate,
    draft: Vec<TokenId>,
    watched: Option<Watched>,
    /// Where the part of the history begins that the drafter reads.
    reads_from: usize,
    /// How far the drafter has read; 0 before the first draft.
    seen_tokens: usize,
    /// Of the step that runs.
    costs: TokenCosts,
    /// Tokens that the drafter catches up with in this step.
    caught_up: usize,
    /// Those of them that the gate has not paid for.
    unpaid: usize,
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
            reads_from: 0,
            seen_tokens: 0,
            costs: TokenCosts { row: 0.0, draft: 0.0, catch_up: 0.0 },
            caught_up: 0,
            unpaid: 0,
            drafted_tokens: 0,
            accepted_tokens: 0,
        }
    }

    /// Before a decode step: the tokens to check after the last one of `history` (prompt and answer so far), at most
    /// `room_tokens`; none for a plain step. The caller may check fewer, from the front.
    pub fn draft(&mut self, history: &[TokenId], room_tokens: usize, costs: TokenCosts) -> &[TokenId] {
        self.look_at_watched(history);
        self.costs = match self.drafter.is_free() {
            true => TokenCosts { draft: 0.0, catch_up: 0.0, ..costs },
            false => costs,
        };
        self.draft.clear();
        let behind = self.choose_start(history.len());
        let wanted = self.gate.draft_tokens(self.costs, behind);
        (self.caught_up, self.unpaid) = (0, 0);
        if wanted.min(room_tokens) > 0 {
            self.watched = None;
            (self.caught_up, self.unpaid) = (behind, behind);
            self.read_all(history.len());
            self.ask(history, wanted.min(room_tokens));
        } else if wanted == 0 && self.watched.is_none() && self.drafter.is_free() {
            self.ask(history, WATCHED_TOKENS);
            if !self.draft.is_empty() {
                self.watched =
                    Some(Watched { history_tokens: history.len(), tokens: std::mem::take(&mut self.draft) });
            }
        }
        &self.draft
    }

    /// After a decode step: `drafted` tokens of the draft were checked, the first `accepted` of them right.
    pub fn settle(&mut self, drafted: usize, accepted: usize) {
        self.gate.verified(drafted, accepted, self.costs, self.unpaid);
        if drafted > 0 {
            self.seen_tokens += accepted;
            self.drafter.accepted(drafted, accepted);
            self.drafted_tokens += drafted;
            self.accepted_tokens += accepted;
        }
    }

    /// Drafted tokens that were checked, and those of them that were right.
    pub fn counts(&self) -> (usize, usize) {
        (self.drafted_tokens, self.accepted_tokens)
    }

    /// Tokens that the drafter caught up with for the last draft.
    pub fn caught_up(&self) -> usize {
        self.caught_up
    }

    /// Chooses where the drafter begins to read: where it would have to read more than at first, anew from nearer to the
    /// end. Returns the tokens of a history of so many that it has to catch up with; the last one of the history is part of
    /// what a drafted token costs.
    fn choose_start(&mut self, history_tokens: usize) -> usize {
        let behind = |from: usize| history_tokens.saturating_sub(self.seen_tokens.max(from) + 1);
        let begins =
            self.seen_tokens == 0 || (self.reads_from > 0 && behind(self.reads_from) >= FIRST_CONTEXT_TOKENS);
        let from = match begins && !self.drafter.is_free() {
            true => history_tokens.saturating_sub(FIRST_CONTEXT_TOKENS),
            false => self.reads_from,
        };
        let behind = behind(from);
        self.reads_from = from;
        behind
    }

    /// Lets a drafter that has read the end of a history only read all of it, where what it gained pays for that.
    fn read_all(&mut self, history_tokens: usize) {
        if self.reads_from > 0 && self.gate.pay_for(self.costs, history_tokens) {
            self.reads_from = 0;
            (self.caught_up, self.unpaid) = (history_tokens, 0);
        }
    }

    fn ask(&mut self, history: &[TokenId], max_tokens: usize) {
        let history = history.get(self.reads_from..).unwrap_or(history);
        self.drafter.draft(history, max_tokens, &mut self.draft);
        self.draft.truncate(max_tokens);
        self.seen_tokens = self.reads_from + history.len();
    }

    /// Tells the gate of a watched draft once it is known how far the text followed it.
    fn look_at_watched(&mut self, history: &[TokenId]) {
        let Some(Watched { history_tokens: from, tokens }) = &self.watched else { return };
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

    const CPU: TokenCosts = TokenCosts { row: 0.07, draft: 0.0, catch_up: 0.0 };

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

    /// A draft model that is right as often as `right` says of a position, and counts what it evaluates.
    struct Costly<F> {
        text: Vec<TokenId>,
        right: F,
        read: std::sync::Arc<std::sync::Mutex<Vec<TokenId>>>,
        work: std::sync::Arc<std::sync::Mutex<f64>>,
        costs: TokenCosts,
    }

    impl<F: Fn(usize) -> bool + Send> Drafter for Costly<F> {
        fn draft(&mut self, history: &[TokenId], max_tokens: usize, draft: &mut Vec<TokenId>) {
            draft.clear();
            let mut read = self.read.lock().unwrap();
            let same = read.iter().zip(history).take_while(|(a, b)| a == b).count();
            let behind = (history.len() - same).saturating_sub(1);
            // Texts here tell their position.
            let at = history.last().map_or(0, |token| *token as usize + 1);
            let said = self.text.iter().enumerate().skip(at).take(max_tokens);
            draft.extend(said.map(|(i, token)| if (self.right)(i) { *token } else { TokenId::MAX }));
            *read = [history, draft].concat();
            *self.work.lock().unwrap() +=
                self.costs.draft * draft.len() as f64 + self.costs.catch_up * behind as f64;
        }

        fn accepted(&mut self, _drafted: usize, _accepted: usize) {}
    }

    /// Tokens a plain step's time of an answer of `n` tokens, and the most tokens that the drafter has read.
    fn costly(
        prompt_tokens: usize,
        n: usize,
        costs: TokenCosts,
        right: impl Fn(usize) -> bool + Send + 'static,
    ) -> (f64, usize) {
        let text: Vec<TokenId> = (0..(prompt_tokens + n) as TokenId).collect();
        let (read, work) = (std::sync::Arc::default(), std::sync::Arc::default());
        let drafter = Costly {
            text: text.clone(),
            right,
            read: std::sync::Arc::clone(&read),
            work: std::sync::Arc::clone(&work),
            costs,
        };
        let mut speculator = Speculator::new(Box::new(drafter), 16);
        let (mut len, mut time) = (prompt_tokens, 0.0);
        while len < text.len() {
            let draft = speculator.draft(&text[..len], text.len() - len - 1, costs);
            let drafted = draft.len();
            let accepted = draft.iter().zip(&text[len..]).take_while(|(a, b)| a == b).count();
            speculator.settle(drafted, accepted);
            len += accepted + 1;
            time += 1.0 + costs.row * drafted as f64;
        }
        let work = *work.lock().unwrap();
        let read = read.lock().unwrap().len();
        (n as f64 / (time + work), read)
    }

    #[test]
    fn a_draft_model_that_brings_nothing_costs_nearly_nothing_whatever_the_prompt() {
        // From one twenty times smaller to one of the same size.
        for draft in [0.05, 0.2, 1.0] {
            for prompt_tokens in [1, 30, 300, 3000] {
                for n in [30, 60, 250, 2000] {
                    let costs = TokenCosts { row: 0.07, draft, catch_up: draft * 0.1 };
                    let (useless, _) = costly(prompt_tokens, n, costs, |_| false);
                    let (some, _) = costly(prompt_tokens, n, costs, |i| i % 3 != 0);
                    assert!(
                        useless >= 0.97 && some >= 0.97,
                        "{draft}, {prompt_tokens}, {n}: {useless} {some}"
                    );
                }
            }
        }
        let same_size = TokenCosts { row: 0.07, draft: 1.0, catch_up: 0.1 };
        assert!(costly(300, 500, same_size, |_| true).0 >= 0.97);
    }

    #[test]
    fn a_good_draft_model_begins_with_the_end_of_the_prompt_and_reads_all_of_it_later() {
        let small = TokenCosts { row: 0.07, draft: 0.1, catch_up: 0.01 };
        let (speed, read) = costly(3000, 300, small, |_| true);
        assert!(speed > 2.0 && read >= 3000, "{speed} {read}");
        let (_, read) = costly(3000, 40, small, |_| true);
        assert!(read < 100, "{read}");
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
