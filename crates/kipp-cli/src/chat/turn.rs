//! One turn: the conversation through the template, as much of it evaluated as is new, and the answer's place in the
//! conversation. Nothing is ever dropped to make room: what does not fit is refused, and an answer that fills the context
//! ends there.

use std::sync::Arc;

use kipp::TokenId;
use kipp::chat::{ChatError, Conversation, Message, Role};
use kipp::engine::{Opening, Request, SplitTerms, Thinking};
use kipp::kv::BLOCK_TOKENS;

use super::Chat;
use super::answer::{Answer, Show};
use crate::generate::{Completion, FinishReason};

/// What became of a turn.
pub(super) enum Turn {
    Answered,
    /// It was stopped before anything was said, and is not part of the conversation.
    Unanswered,
    /// It was not begun, for this reason, and the conversation is as it was.
    Refused(String),
}

/// An answer, and what it took.
pub(super) struct Answered {
    pub(super) thinking: String,
    pub(super) content: String,
    pub(super) prompt_tokens: usize,
    /// Positions of the context that no prompt or answer has taken.
    pub(super) left_tokens: usize,
    pub(super) completion: Completion,
}

impl Answered {
    /// What the person should know of how it ended.
    pub(super) fn note(&self) -> Option<String> {
        let context_tokens = self.prompt_tokens + self.completion.tokens.len() + self.left_tokens;
        match self.completion.finish_reason {
            FinishReason::Stop => None,
            FinishReason::Interrupted => Some("stopped; the conversation keeps this part".to_owned()),
            FinishReason::Length if self.left_tokens == 0 => Some(format!(
                "the context is full: {context_tokens} tokens, so the answer ends here. Nothing was dropped. /undo takes \
                 the last turn back, /clear begins anew, and --ctx makes room where the model has it"
            )),
            FinishReason::Length => {
                let count = self.completion.tokens.len();
                Some(format!("the answer has {count} tokens, as many as were asked for (--max-tokens)"))
            }
        }
    }
}

impl Chat {
    /// Says something and takes the answer into the conversation.
    pub(super) fn ask(&mut self, text: &str, show: Show<'_>) -> anyhow::Result<Turn> {
        let mut conversation = self.conversation.clone();
        conversation.messages.push(Message::new(Role::User, text));
        self.answer(conversation, show)
    }

    /// Answers the last message of a conversation, which then is the one.
    pub(super) fn answer(&mut self, mut conversation: Conversation, show: Show<'_>) -> anyhow::Result<Turn> {
        let prompt = match self.prompt(&conversation) {
            Ok(prompt) => prompt,
            Err(error) => return Ok(Turn::Refused(error.to_string())),
        };
        let prompt_tokens = prompt.len();
        let left = self.context_tokens.saturating_sub(prompt_tokens);
        if left == 0 {
            return Ok(Turn::Refused(self.too_long(prompt_tokens)));
        }
        let (request, terms) = self.request(prompt, left);
        let mut answer = Answer::new(terms, &self.tokenizer);
        let completion = self.evaluator.complete(request, &mut |piece| match piece.token {
            Some(token) => answer.push(token, show),
            // The engine's text; the answer holds back its own.
            None => Ok(()),
        })?;
        answer.finish(show)?;
        self.n_answers += 1;
        let Answer { thinking, content, .. } = answer;
        let is_silent = thinking.is_empty() && content.is_empty();
        if completion.finish_reason == FinishReason::Interrupted && is_silent {
            return Ok(Turn::Unanswered);
        }
        let mut message = Message::new(Role::Assistant, content.clone());
        message.reasoning_content = Some(thinking.clone()).filter(|thinking| !thinking.is_empty());
        conversation.messages.push(message);
        self.conversation = conversation;
        let left_tokens = left.saturating_sub(completion.tokens.len());
        self.last = Some(Answered { thinking, content, prompt_tokens, left_tokens, completion });
        Ok(Turn::Answered)
    }

    /// While the person types: evaluates what the next prompt begins with, where that is not known yet. That is the system
    /// message, a conversation from a file, and the last answer where the template drops the thinking before it.
    pub(super) fn prepare(&mut self) -> anyhow::Result<()> {
        let Some(beginning) = self.next_beginning() else { return Ok(()) };
        let known = common(&beginning, self.evaluator.held());
        let is_worth_it = beginning.len() / BLOCK_TOKENS > known.div_ceil(BLOCK_TOKENS);
        match is_worth_it && beginning.len() < self.context_tokens {
            true => self.evaluator.prepare(beginning),
            false => Ok(()),
        }
    }

    /// What the next prompt begins with, whatever its message is.
    fn next_beginning(&self) -> Option<Vec<TokenId>> {
        let with = |text: &str| {
            let mut conversation = self.conversation.clone();
            conversation.messages.push(Message::new(Role::User, text));
            self.prompt(&conversation).ok()
        };
        let (mut one, other) = (with("One")?, with("2")?);
        one.truncate(common(&one, &other));
        Some(one)
    }

    /// The ids of a conversation, those that were evaluated already kept.
    fn prompt(&self, conversation: &Conversation) -> Result<Vec<TokenId>, ChatError> {
        let rendered = self.format.prompt(conversation)?.ids;
        Ok(self.reuse.keep(self.evaluator.held(), &rendered))
    }

    fn request(&self, prompt: Vec<TokenId>, left_tokens: usize) -> (Request, SplitTerms) {
        let settings = &self.settings;
        let marks = self.marks;
        let opening = marks.opening(&prompt, &self.end_tokens);
        let begun = opening == Opening::Begun;
        let thinking = marks.think.zip(marks.think_end).filter(|_| opening != Opening::Closed);
        let request = Request {
            sampling: settings.sampling.clone(),
            // Another one for each answer, so that the same question asked again may have another.
            seed: settings.seed.wrapping_add(self.n_answers),
            ignore_eos: settings.ignore_eos,
            stops: settings.stops.clone(),
            thinking: thinking.map(|(open, close)| Thinking { open, close, begun, budget_tokens: None }),
            ..Request::new(prompt, settings.max_tokens.unwrap_or(usize::MAX).min(left_tokens))
        };
        let stops = Arc::new(settings.stops.clone());
        (request, SplitTerms { marks, opening, calls: false, stops })
    }

    fn too_long(&self, prompt_tokens: usize) -> String {
        let context_tokens = self.context_tokens;
        format!(
            "with this message the conversation has {prompt_tokens} tokens, and the context holds {context_tokens}, answer \
             included: it was not sent. /undo takes the last turn back, /clear begins anew, and --ctx makes room where the \
             model has it"
        )
    }
}

/// How far both are the same.
fn common(one: &[TokenId], other: &[TokenId]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}
