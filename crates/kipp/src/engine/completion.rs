//! The answer side of one choice: from a row of logits to a token, from a token to text, and whether that was the end.
//! It knows no step, no block and no other choice, so that nothing of them can change an answer.

use std::sync::Arc;
use std::time::Instant;

use super::drafting::Drafting;
use super::event::{FinishReason, GeneratedToken, RequestFailure, TokenScore};
use super::masking::{self, Masking};
use super::request::{Request, Thinking};
use super::stop::StopFilter;
use crate::sampling::constraint::MaskWorker;
use crate::sampling::{AllowedTokens, Sampler, TokenLogProb, log_prob, top_logprobs};
use crate::token::TokenId;
use crate::tokenizer::{StreamDecoder, Tokenizer};

/// What all choices of a request go by.
#[derive(Debug)]
pub(super) struct Terms {
    /// Tokens at most, within what the context holds.
    pub(super) max_tokens: usize,
    pub(super) min_tokens: usize,
    /// Every token that ends an answer.
    pub(super) ends: Vec<TokenId>,
    pub(super) thinking: Option<Thinking>,
    /// Alternatives to tell with each token.
    pub(super) logprobs: Option<usize>,
    /// Ids from here on are padding.
    pub(super) valid_tokens: usize,
}

/// Where an answer stands between thinking and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The first token will say.
    Undecided,
    /// So many tokens of thinking so far.
    Thinking(usize),
    Content,
}

/// The text side: what was decoded and may go out.
struct Text {
    decoder: StreamDecoder,
    filter: StopFilter,
}

/// One choice of a request.
pub(super) struct Completion {
    pub(super) choice: u32,
    terms: Arc<Terms>,
    sampler: Sampler,
    part: Part,
    text: Option<Text>,
    masking: Option<Masking>,
    pub(super) drafting: Option<Drafting>,
    /// Tokens so far.
    pub(super) n_tokens: usize,
    /// A stop string is complete: what is held back stays back.
    stopped: bool,
}

/// What was chosen for a row, not yet part of the answer.
pub(super) struct Chosen {
    pub(super) id: TokenId,
    score: Option<TokenScore>,
}

/// What became of a chosen token.
pub(super) enum Step {
    /// It belongs to the answer, which goes on or ends with it.
    Token(GeneratedToken, Option<FinishReason>),
    /// It ended the answer without being part of it.
    End,
}

impl Completion {
    pub(super) fn new(
        choice: u32,
        request: &Request,
        terms: &Arc<Terms>,
        tokenizer: Option<&Tokenizer>,
    ) -> Self {
        let sampler = Sampler::new(request.sampling.clone(), request.seed, choice, &request.prompt);
        let filter = || StopFilter::new(request.stops.clone());
        let part = match request.thinking {
            None => Part::Content,
            Some(Thinking { begun: true, .. }) => Part::Thinking(0),
            Some(_) => Part::Undecided,
        };
        Completion {
            choice,
            terms: Arc::clone(terms),
            sampler: sampler.with_valid_tokens(terms.valid_tokens),
            part,
            text: tokenizer.map(|t| Text { decoder: t.stream_decoder(true), filter: filter() }),
            masking: request.constraint.clone().map(Masking::new),
            drafting: Drafting::new(request, choice),
            n_tokens: 0,
            stopped: false,
        }
    }

    /// Tokens that the answer may still have.
    pub(super) fn left_tokens(&self) -> usize {
        self.terms.max_tokens.saturating_sub(self.n_tokens)
    }

    /// Asks the constraint, if there is one, about the next token and those after drafted ones.
    pub(super) fn ask_constraint(&mut self, worker: &MaskWorker, draft: &[TokenId]) {
        if let Some(masking) = &mut self.masking
            && self.terms.max_tokens > 0
        {
            masking.ask(worker, draft);
        }
    }

    /// Waits for the constraint until `until` at most; false where its answer is still to come.
    pub(super) fn await_constraint(&mut self, until: Instant) -> bool {
        self.masking.as_mut().is_none_or(|masking| masking.wait(until))
    }

    /// Whether the constraint's answer takes longer than it may; asked once a step.
    pub(super) fn exceeds_limit(&mut self) -> bool {
        self.masking.as_mut().is_some_and(Masking::exceeds_limit)
    }

    /// Whether a token can be chosen without asking the constraint again.
    pub(super) fn can_choose(&self) -> bool {
        self.masking.as_ref().is_none_or(Masking::is_known)
    }

    /// The token that follows, from its raw logits (`[vocab_size]`, changed in place). Nothing is part of the answer yet.
    pub(super) fn choose(&mut self, logits: &mut [f32]) -> Result<Chosen, RequestFailure> {
        let raw = self.terms.logprobs.map(|_| logits.to_vec());
        // Logits that are broken end the request also where the token is known without them.
        let sampled = self.sample(logits)?;
        let id = self.forced().unwrap_or(sampled);
        let top = self.terms.logprobs.unwrap_or(0);
        let score = raw.map(|raw| score(&raw, id, top, self.terms.valid_tokens));
        Ok(Chosen { id, score })
    }

    /// The end of thinking, where its budget is spent.
    fn forced(&self) -> Option<TokenId> {
        let Thinking { close, budget_tokens, .. } = self.terms.thinking?;
        match self.part {
            Part::Thinking(tokens) if budget_tokens.is_some_and(|budget| tokens >= budget) => Some(close),
            _ => None,
        }
    }

    fn sample(&mut self, logits: &mut [f32]) -> Result<TokenId, RequestFailure> {
        let allowed = match &self.masking {
            Some(masking) => Some(masking.allowed()?.ok_or_else(masking::too_slow)?),
            None => None,
        };
        // Where a constraint leaves nothing but the end, the answer is complete, however short.
        let ends_only = allowed.is_some_and(|AllowedTokens(words)| allows_only(words, &self.terms.ends));
        if self.n_tokens < self.terms.min_tokens && !ends_only {
            for end in &self.terms.ends {
                // One that is broken stays, for it ends the request.
                if let Some(logit) = logits.get_mut(*end as usize).filter(|logit| **logit < f32::INFINITY) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        Ok(self.sampler.sample_allowed(logits, allowed)?.id)
    }

    /// Makes a chosen token part of the answer, unless it ends it.
    pub(super) fn accept(&mut self, chosen: Chosen) -> Result<Step, RequestFailure> {
        let Chosen { id, score } = chosen;
        if self.terms.ends.contains(&id) {
            return Ok(Step::End);
        }
        self.sampler.accept(id);
        if let Some(masking) = &mut self.masking {
            masking.accept(id);
        }
        self.n_tokens += 1;
        let content = self.advance(id);
        let text = self.decode(id, content)?;
        let finish = if self.stopped {
            Some(FinishReason::Stop)
        } else {
            (self.left_tokens() == 0).then_some(FinishReason::Length)
        };
        Ok(Step::Token(GeneratedToken { id, text, score }, finish))
    }

    /// Moves on by a token; whether the token is content.
    fn advance(&mut self, id: TokenId) -> bool {
        let (part, content) = match (self.part, self.terms.thinking) {
            (Part::Undecided, Some(thinking)) if id == thinking.open => (Part::Thinking(0), false),
            (Part::Thinking(_), Some(thinking)) if id == thinking.close => (Part::Content, false),
            (Part::Thinking(tokens), _) => (Part::Thinking(tokens + 1), false),
            (Part::Undecided | Part::Content, _) => (Part::Content, true),
        };
        self.part = part;
        content
    }

    fn decode(&mut self, id: TokenId, content: bool) -> Result<String, RequestFailure> {
        let Some(Text { decoder, filter }) = &mut self.text else { return Ok(String::new()) };
        let piece = decoder.push(id)?;
        if !content {
            return Ok(piece.to_owned());
        }
        let released = filter.push(piece);
        self.stopped = released.stopped;
        Ok(released.text)
    }

    /// What became of a draft.
    pub(super) fn note_draft(&mut self, drafted: usize, accepted: usize) {
        if let Some(drafting) = &mut self.drafting {
            drafting.settle(drafted, accepted);
        }
    }

    /// What was held back and may go out now that the answer has ended.
    pub(super) fn finish(&mut self) -> String {
        let Some(Text { decoder, filter }) = &mut self.text else { return String::new() };
        if self.stopped {
            return String::new();
        }
        let released = filter.push(decoder.finish());
        match released.stopped {
            true => released.text,
            false => released.text + &filter.finish(),
        }
    }
}

/// What the model thinks of a token, `logits` being raw. Padding is no alternative.
pub(super) fn score(logits: &[f32], id: TokenId, top: usize, valid_tokens: usize) -> TokenScore {
    let mut alternatives = if top > 0 { top_logprobs(logits, top) } else { Vec::new() };
    alternatives.retain(|entry| (entry.id as usize) < valid_tokens);
    TokenScore { token: TokenLogProb { id, log_prob: log_prob(logits, id) }, top: alternatives }
}

/// Whether a mask allows none but these tokens.
fn allows_only(words: &[u32], ids: &[TokenId]) -> bool {
    let bit = |at: usize, id: TokenId| if id as usize / 32 == at { 1 << (id % 32) } else { 0u32 };
    let of_ids = |at: usize| ids.iter().fold(0, |word, id| word | bit(at, *id));
    words.iter().enumerate().all(|(at, word)| word & !of_ids(at) == 0)
}
