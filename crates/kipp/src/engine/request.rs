//! What a caller may ask of an engine, and what is refused before anything is computed. After [`Limits::check`] no code
//! looks at a request's ranges again.

use std::sync::Arc;

use crate::sampling::constraint::Constraint;
use crate::sampling::{SamplingError, SamplingParams};
use crate::speculate::Drafter;
use crate::token::TokenId;

/// Choices of one request at most, as OpenAI's interface has it.
pub const MAX_CHOICES: u32 = 128;

/// Stop strings of one request at most, as in OpenAI-compatible servers that take more than four.
pub const MAX_STOPS: usize = 16;

/// Alternatives a token at most, as OpenAI's interface has it.
pub const MAX_LOGPROBS: usize = 20;

/// Makes the drafter of a choice.
pub type NewDrafter = Arc<dyn Fn(u32) -> Box<dyn Drafter> + Send + Sync>;

/// Who proposes tokens ahead of the model, and when.
#[derive(Clone)]
pub enum Speculation {
    /// Every draft is checked.
    Always(NewDrafter),
    /// Drafts of at most so many tokens, as long as they pay: what a row of a step costs is measured.
    WherePaying(NewDrafter, usize),
}

/// One prompt and what is to become of it.
#[derive(Clone)]
pub struct Request {
    /// The ids; at least one, and one fewer than the context holds at most.
    pub prompt: Vec<TokenId>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// The seed of its draws, which differ by choice and position.
    pub seed: u64,
    /// Answers that are wanted, from 1 to [`MAX_CHOICES`].
    pub choices: u32,
    /// Tokens of an answer at most; also, never more than the context holds.
    pub max_tokens: usize,
    /// End tokens are not chosen before the answer has this many tokens.
    pub min_tokens: usize,
    /// Go on past the model's own end tokens.
    pub ignore_eos: bool,
    /// More tokens that end an answer, whatever `ignore_eos` says.
    pub stop_tokens: Vec<TokenId>,
    /// Texts that end an answer and are no part of it; they count in its content, not in its thinking.
    pub stops: Vec<String>,
    /// How thinking is told from content; without it, all is content.
    pub thinking: Option<Thinking>,
    /// Alternatives to tell with each token of the answer; 0 for the token alone.
    pub logprobs: Option<usize>,
    /// Alternatives to tell with each token of the prompt; such a prompt is evaluated as a whole.
    pub prompt_logprobs: Option<usize>,
    /// Prefixes are shared only with requests of the same salt.
    pub cache_salt: Vec<u8>,
    /// Speculation changes no answer, only how soon it is there.
    pub speculation: Option<Speculation>,
    /// What the content must conform to. It knows by itself where thinking ends, and end tokens end it in spite of
    /// `ignore_eos`.
    pub constraint: Option<Constraint>,
}

impl Request {
    /// One greedy answer of at most `max_tokens` to `prompt`, and nothing else.
    pub fn new(prompt: Vec<TokenId>, max_tokens: usize) -> Request {
        Request {
            prompt,
            sampling: SamplingParams::greedy(),
            seed: 0,
            choices: 1,
            max_tokens,
            min_tokens: 0,
            ignore_eos: false,
            stop_tokens: Vec::new(),
            stops: Vec::new(),
            thinking: None,
            logprobs: None,
            prompt_logprobs: None,
            cache_salt: Vec::new(),
            speculation: None,
            constraint: None,
        }
    }
}

/// How the thinking part of an answer is told from its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thinking {
    /// The token that begins it.
    pub open: TokenId,
    /// The token that ends it.
    pub close: TokenId,
    /// The prompt has begun it already. Else the answer's first token says whether there is any.
    pub begun: bool,
    /// Tokens of thinking at most; then `close` is put in.
    pub budget_tokens: Option<usize>,
}

/// Why a request is refused: the caller's fault, unless the engine takes none at all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// No prompt. There is no token to start from instead.
    #[error("`prompt` has no token")]
    EmptyPrompt,
    /// An id that the model has no row for.
    #[error("`{field}` names token {token}, but the vocabulary ends at {last}")]
    Token {
        /// The field's name.
        field: &'static str,
        /// The id.
        token: TokenId,
        /// The last id that exists.
        last: usize,
    },
    /// A prompt that leaves no room for an answer.
    #[error(
        "the prompt has {prompt_tokens} tokens and does not fit: the context is {context_tokens} tokens, \
         completion included"
    )]
    PromptTooLong {
        /// Its length.
        prompt_tokens: usize,
        /// What fits, completion included.
        context_tokens: usize,
    },
    /// A number outside of its range.
    #[error("`{field}` must be from {low} to {high}, found {found}")]
    OutOfRange {
        /// The field's name.
        field: &'static str,
        /// Smallest value.
        low: usize,
        /// Largest value.
        high: usize,
        /// What was asked for.
        found: usize,
    },
    /// A stop string that every text contains.
    #[error("`stop` holds an empty text")]
    EmptyStop,
    /// Stop strings without a tokenizer.
    #[error("`stop` needs a tokenizer, and this engine has none")]
    NoTokenizer,
    /// A sampling field.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// As many requests wait as may.
    #[error("{waiting} requests are waiting already")]
    QueueFull {
        /// How many that is.
        waiting: usize,
    },
    /// The engine failed and takes no more requests.
    #[error("the engine failed and takes no more requests")]
    Unhealthy,
    /// The engine was closed.
    #[error("the engine was closed")]
    Closed,
}

/// What requests are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) context_tokens: usize,
    /// Ids that may be evaluated: rows of the embedding.
    pub(super) vocab_size: usize,
    /// Ids that may be chosen: what the tokenizer can spell.
    pub(super) valid_tokens: usize,
    pub(super) has_tokenizer: bool,
}

impl Limits {
    /// Refuses what cannot be run.
    pub(super) fn check(&self, request: &Request) -> Result<(), RequestError> {
        let prompt_tokens = request.prompt.len();
        if prompt_tokens == 0 {
            return Err(RequestError::EmptyPrompt);
        }
        self.check_tokens("prompt", &request.prompt, self.vocab_size)?;
        self.check_tokens("stop_token_ids", &request.stop_tokens, self.vocab_size)?;
        if let Some(thinking) = request.thinking {
            self.check_tokens("thinking", &[thinking.open, thinking.close], self.valid_tokens)?;
        }
        let needed = prompt_tokens.saturating_add(request.max_tokens.min(1));
        if needed > self.context_tokens {
            let context_tokens = self.context_tokens;
            return Err(RequestError::PromptTooLong { prompt_tokens, context_tokens });
        }
        in_range("n", request.choices as usize, 1, MAX_CHOICES as usize)?;
        in_range("logprobs", request.logprobs.unwrap_or(0), 0, MAX_LOGPROBS)?;
        in_range("prompt_logprobs", request.prompt_logprobs.unwrap_or(0), 0, MAX_LOGPROBS)?;
        in_range("stop", request.stops.len(), 0, MAX_STOPS)?;
        if request.stops.iter().any(String::is_empty) {
            return Err(RequestError::EmptyStop);
        }
        if !request.stops.is_empty() && !self.has_tokenizer {
            return Err(RequestError::NoTokenizer);
        }
        Ok(request.sampling.check_bias_ids(self.valid_tokens)?)
    }

    fn check_tokens(&self, field: &'static str, tokens: &[TokenId], ids: usize) -> Result<(), RequestError> {
        match tokens.iter().find(|token| **token as usize >= ids) {
            Some(&token) => Err(RequestError::Token { field, token, last: ids.saturating_sub(1) }),
            None => Ok(()),
        }
    }
}

fn in_range(field: &'static str, found: usize, low: usize, high: usize) -> Result<(), RequestError> {
    match (low..=high).contains(&found) {
        true => Ok(()),
        false => Err(RequestError::OutOfRange { field, low, high, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::SamplingFields;

    const LIMITS: Limits =
        Limits { context_tokens: 64, vocab_size: 100, valid_tokens: 90, has_tokenizer: true };

    fn refused(change: impl FnOnce(&mut Request)) -> RequestError {
        let mut request = Request::new(vec![1, 2], 8);
        assert_eq!(LIMITS.check(&request), Ok(()));
        change(&mut request);
        LIMITS.check(&request).unwrap_err()
    }

    #[test]
    fn h16_ids_outside_of_the_vocabulary_are_refused_by_field() {
        assert_eq!(refused(|r| r.prompt.clear()), RequestError::EmptyPrompt);
        let past = |field| RequestError::Token { field, token: 100, last: 99 };
        assert_eq!(refused(|r| r.prompt = vec![99, 100]), past("prompt"));
        assert_eq!(refused(|r| r.stop_tokens = vec![100]), past("stop_token_ids"));
        let fields = SamplingFields { logit_bias: vec![(90, 1.0)], ..SamplingFields::default() };
        let params = SamplingParams::parse(fields).unwrap();
        let bias = RequestError::Sampling(SamplingError::BiasId { id: 90, last: 89 });
        assert_eq!(refused(|r| r.sampling = params), bias);
    }

    #[test]
    fn a_prompt_must_leave_room_for_one_token() {
        let fits = |prompt_tokens: usize, max_tokens| {
            LIMITS.check(&Request::new(vec![1; prompt_tokens], max_tokens)).is_ok()
        };
        assert!(fits(63, 1) && fits(63, 1000) && !fits(64, 1));
        assert!(fits(64, 0) && !fits(65, 0));
    }

    #[test]
    fn numbers_and_stops_have_ranges() {
        for choices in [0, 129] {
            assert!(matches!(refused(|r| r.choices = choices), RequestError::OutOfRange { field: "n", .. }));
        }
        assert!(matches!(refused(|r| r.logprobs = Some(21)), RequestError::OutOfRange { high: 20, .. }));
        assert!(matches!(
            refused(|r| r.stops = vec!["x".to_owned(); 17]),
            RequestError::OutOfRange { field: "stop", .. }
        ));
        assert_eq!(refused(|r| r.stops = vec![String::new()]), RequestError::EmptyStop);
    }
}
