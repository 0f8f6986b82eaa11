//! Which sequences have blocks: growth by one block, preemption of the youngest, admission of the oldest.

use std::time::Instant;

use super::drafting::Room;
use super::sequence::{Held, Sequence};
use super::{Engine, LOGIT_ROWS, Role, Running, scheduler};
use crate::kv::BLOCK_TOKENS;
use crate::token::TokenId;

/// What came of trying to admit a sequence.
enum Admission {
    Admitted,
    /// Another sequence is evaluating its prefix at the moment; those after it need not wait for that.
    Later,
    /// It needs more blocks than there are; nobody passes it.
    NoRoom,
}

impl Engine {
    /// Gets every sequence that decodes the block for its next row, the oldest first. Where there is none left, the
    /// youngest gives up its blocks and starts again later; that may be the sequence itself.
    pub(super) fn grow(&mut self) {
        let mut index = 0;
        while index < self.running.len() {
            let running = &mut self.running[index];
            running.role = running.next_role();
            let Running { sequence, held, role } = running;
            if *role != Role::Decodes || held.reserve(sequence.tokens.len()).is_ok() {
                index += 1;
            } else if let Some(youngest) = self.running.pop() {
                self.preempt(youngest);
            }
        }
    }

    fn preempt(&mut self, running: Running) {
        self.counts.preemptions += 1;
        self.wait(running.sequence);
    }

    /// Puts a sequence that has begun back into the queue, at the place of its age.
    pub(super) fn wait(&mut self, mut sequence: Sequence) {
        sequence.computed_tokens = 0;
        sequence.draft.clear();
        let place = self.waiting.partition_point(|other| other.id() < sequence.id());
        self.waiting.insert(place, sequence);
    }

    /// Lets drafters propose, as far as the step has rows and the pool blocks: a draft is not worth a preemption.
    pub(super) fn propose(&mut self) {
        let vocab_size = self.limits.vocab_size;
        let rows = self.running.iter().filter(|running| running.role == Role::Decodes).count();
        let costs = self.costs.token_costs(rows);
        let limit = self.step_tokens.min(LOGIT_ROWS).saturating_sub(rows);
        let drafts = |running: &&mut Running| {
            running.role == Role::Decodes && running.sequence.completion.drafting.is_some()
        };
        let mut drafting: Vec<&mut Running> = self.running.iter_mut().filter(drafts).collect();
        let wanted: Vec<usize> = drafting.iter().map(|running| running.sequence.room_for_drafts()).collect();
        let allotted = scheduler::allot_drafts(limit, &wanted);
        for (Running { sequence, held, .. }, tokens) in drafting.iter_mut().zip(allotted) {
            let began = self.clock.now();
            if let Some(caught_up) = sequence.propose(Room { tokens, vocab_size, costs }) {
                let took = self.clock.now().saturating_sub(began);
                self.costs.observe_draft(caught_up, sequence.draft.len(), took.as_secs_f64());
            }
            let rows = sequence.tokens.len() + sequence.draft.len();
            if held.reserve(rows).is_err() {
                let fits = held.capacity_tokens().saturating_sub(sequence.tokens.len());
                sequence.draft.truncate(fits);
            }
        }
    }

    /// Admits sequences while there is a share of `allowance_tokens` for another prompt.
    pub(super) fn admit(&mut self, allowance_tokens: usize) {
        let mut index = 0;
        while index < self.waiting.len() && self.running.len() < self.max_sequences {
            if !scheduler::has_share(allowance_tokens, &self.left_of_prompts()) {
                return;
            }
            match self.try_admit(index) {
                Admission::Admitted => {}
                Admission::Later => index += 1,
                Admission::NoRoom => return,
            }
        }
    }

    /// What is left of each sequence that prefills, the oldest first.
    pub(super) fn left_of_prompts(&self) -> Vec<usize> {
        let prompts = self.running.iter().filter(|running| running.role == Role::Prefills);
        prompts.map(|running| running.sequence.left_tokens()).collect()
    }

    fn try_admit(&mut self, index: usize) -> Admission {
        let sequence = &self.waiting[index];
        let Some(live) = self.live.get(&sequence.request) else { return Admission::NoRoom };
        let salt = &live.cache_salt;
        let adoptable = adoptable(sequence, live.prompt_logprobs.is_some());
        let known_tokens = self.pool.lookup(salt, adoptable);
        let shares = |running: &Running| {
            self.live.get(&running.sequence.request).is_some_and(|live| live.cache_salt == *salt)
        };
        let mut sharing = self.running.iter().filter(|running| shares(running));
        if sharing.any(|running| will_publish(running, adoptable) > known_tokens) {
            return Admission::Later;
        }
        let blocks = sequence.tokens.len().div_ceil(BLOCK_TOKENS);
        let has_room = |held: usize| {
            let stats = self.pool.stats();
            scheduler::has_room(blocks.saturating_sub(held), stats.free + stats.cached, self.running.len())
        };
        if !has_room(known_tokens / BLOCK_TOKENS) {
            return Admission::NoRoom;
        }
        let mut held = Held::new(self.pool.adopt(salt, adoptable));
        // What was adopted may have been part of what was available.
        if !has_room(held.table.blocks().len()) || held.reserve(sequence.tokens.len()).is_err() {
            return Admission::NoRoom;
        }
        if let Some(sequence) = self.waiting.remove(index) {
            self.start(sequence, held);
        }
        Admission::Admitted
    }

    fn start(&mut self, mut sequence: Sequence, held: Held) {
        let adopted = held.table.adopted_tokens();
        sequence.computed_tokens = adopted;
        self.counts.prefix_queries += 1;
        self.counts.prefix_hits += u64::from(adopted > 0);
        self.counts.prefix_tokens_reused += adopted as u64;
        if let Some(live) = self.live.get_mut(&sequence.request)
            && !live.has_started()
        {
            self.counts.prompt_tokens += sequence.prompt_tokens as u64;
            live.start(self.clock.now(), adopted);
        }
        self.run(Running { sequence, held, role: Role::Prefills });
    }

    /// Puts a sequence among those that run, at the place of its age.
    pub(super) fn run(&mut self, running: Running) {
        let id = running.sequence.id();
        let place = self.running.partition_point(|other| other.sequence.id() < id);
        self.running.insert(place, running);
    }
}

impl Running {
    fn next_role(&mut self) -> Role {
        let sits_out = self.role == Role::SitsOut && !self.sequence.await_constraints(Instant::now());
        match sits_out {
            true => Role::SitsOut,
            false if self.sequence.decodes() => Role::Decodes,
            false => Role::Prefills,
        }
    }
}

/// The tokens of which a prefix may be adopted, all but the last one at most, so that there are logits. Rows of a prompt
/// whose scores are still wanted must be evaluated.
fn adoptable(sequence: &Sequence, scores_prompt: bool) -> &[TokenId] {
    let scored = sequence.scored_tokens + 1;
    match scores_prompt && scored < sequence.prompt_tokens {
        true => &sequence.tokens[..scored],
        false => &sequence.tokens,
    }
}

/// Tokens of `adoptable` that a running sequence is evaluating and will make findable, in whole blocks.
fn will_publish(running: &Running, adoptable: &[TokenId]) -> usize {
    if running.role != Role::Prefills || running.sequence.left_tokens() == 0 {
        return 0;
    }
    let ours = adoptable.split_last().map_or(&[][..], |(_, before)| before);
    let common = running.sequence.tokens.iter().zip(ours).take_while(|(theirs, ours)| theirs == ours).count();
    common / BLOCK_TOKENS * BLOCK_TOKENS
}
