//! Tells thinking, content and tool calls apart, by the ids of the tokens that mark them: text that merely spells a mark is
//! text. One machine for answers that are streamed and those that are not, so that both are the same.
//!
//! ```text
//! content --<think>--> thinking --</think>--> content --<tool_call>--> call --</tool_call>--> content
//! ```
//!
//! Newlines around a part belong to its marks and are dropped; those inside stay. A call comes out as it is written, once
//! its name and the first brace of its arguments are there; what never gets so far comes back as the content that it is,
//! marks included. Arguments that break off or are no JSON stay what the model wrote: whoever calls a function checks them.

use std::sync::Arc;

use super::call::{Call, parse_call};
use super::call_text::{CallText, Told};
use super::stop::StopFilter;
use crate::token::TokenId;
use crate::tokenizer::{StreamDecoder, Tokenizer, TokenizerError};

const THINK: &str = "<think>";
const THINK_END: &str = "</think>";
const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";

/// The ids of the marks, where the vocabulary has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// Begins thinking.
    pub think: Option<TokenId>,
    /// Ends it.
    pub think_end: Option<TokenId>,
    call: Option<TokenId>,
    call_end: Option<TokenId>,
}

impl Marks {
    /// The marks of a vocabulary.
    pub fn of(tokenizer: &Tokenizer) -> Marks {
        let id = |text| tokenizer.token_id(text);
        Marks { think: id(THINK), think_end: id(THINK_END), call: id(CALL), call_end: id(CALL_END) }
    }

    /// Where a prompt leaves the answer as to thinking: the last of its marks and ends of turns tells.
    pub fn opening(&self, prompt: &[TokenId], end_tokens: &[TokenId]) -> Opening {
        let (Some(think), Some(think_end)) = (self.think, self.think_end) else { return Opening::Closed };
        let marks = |id: &&TokenId| **id == think || **id == think_end || end_tokens.contains(id);
        match prompt.iter().rev().find(marks) {
            Some(id) if *id == think => Opening::Begun,
            Some(id) if *id == think_end => Opening::Closed,
            _ => Opening::Undecided,
        }
    }
}

/// Where an answer begins, as to thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The prompt has begun the thinking part.
    Begun,
    /// The prompt has closed it, or the model knows none.
    Closed,
    /// The first token will say.
    Undecided,
}

/// What an answer goes on by.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// More of the thinking.
    Thinking(String),
    /// More of the content.
    Content(String),
    /// A call of this function begins.
    Call(String),
    /// More of its arguments.
    Arguments(String),
    /// It has ended.
    CallEnd {
        /// Whether its arguments are complete.
        complete: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Thinking,
    Content,
    Call(CallText),
}

/// How a choice is split.
#[derive(Clone)]
pub struct SplitTerms {
    /// The ids that tell the parts apart.
    pub marks: Marks,
    /// Where the answer begins.
    pub opening: Opening,
    /// Calls are looked for.
    pub calls: bool,
    /// What the engine stops at, in content.
    pub stops: Arc<Vec<String>>,
}

/// The machine of one choice.
pub struct Split {
    terms: SplitTerms,
    decoder: StreamDecoder,
    part: Part,
    /// Holds back what may become a stop string; the engine decides whether it did.
    filter: StopFilter,
    /// A stop string is complete: nothing of the content may follow.
    stopped: bool,
    /// Nothing of this part went out yet, so newlines belong to the mark before it.
    at_start: bool,
    /// Newlines that belong to the next mark, if one comes.
    held: String,
    /// Arguments of the call that is being written are complete.
    complete: bool,
    /// Calls that came out.
    pub calls: usize,
}

impl Split {
    /// A machine at the beginning of an answer.
    pub fn new(terms: SplitTerms, tokenizer: &Tokenizer) -> Split {
        let part = if terms.opening == Opening::Begun { Part::Thinking } else { Part::Content };
        Split {
            decoder: tokenizer.stream_decoder(true),
            filter: StopFilter::new(terms.stops.to_vec()),
            at_start: part == Part::Thinking,
            part,
            terms,
            stopped: false,
            held: String::new(),
            complete: false,
            calls: 0,
        }
    }

    /// Whether a stop string ended the content.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether the next token would be thinking.
    pub fn is_thinking(&self) -> bool {
        self.part == Part::Thinking
    }

    /// Takes a token; whether it is one of the content.
    ///
    /// # Errors
    /// An id that the tokenizer does not have.
    pub fn push(&mut self, id: TokenId, out: &mut Vec<Delta>) -> Result<bool, TokenizerError> {
        let text = self.decoder.push(id)?.to_owned();
        let Marks { think, think_end, call, call_end } = self.terms.marks;
        let is = |mark: Option<TokenId>| mark == Some(id);
        // What a mark completes comes before it.
        let before = |mark: &str| text.strip_suffix(mark).unwrap_or_default().to_owned();
        match &self.part {
            Part::Content if is(think) && think_end.is_some() => {
                self.leave(&before(THINK), Part::Thinking, out);
            }
            Part::Thinking if is(think_end) => self.leave(&before(THINK_END), Part::Content, out),
            Part::Content if is(call) && call_end.is_some() && self.terms.calls => {
                self.leave(&before(CALL), Part::Call(CallText::default()), out);
            }
            Part::Call(_) if is(call_end) => {
                self.emit(&before(CALL_END), out);
                self.end_call(CALL_END, out);
            }
            part => {
                let content = *part == Part::Content;
                self.emit(&text, out);
                return Ok(content);
            }
        }
        Ok(false)
    }

    /// The answer has ended.
    pub fn finish(&mut self, out: &mut Vec<Delta>) {
        let rest = self.decoder.finish().to_owned();
        self.emit(&rest, out);
        if matches!(self.part, Part::Call(_)) {
            self.end_call("", out);
        }
        self.release(out);
        if self.part == Part::Content && !self.at_start {
            let held = std::mem::take(&mut self.held);
            put(Delta::Content(held), out);
        }
    }

    /// Goes on to another part, after the rest of this one.
    fn leave(&mut self, rest: &str, next: Part, out: &mut Vec<Delta>) {
        self.emit(rest, out);
        self.release(out);
        // They belong to the mark.
        self.held.clear();
        self.at_start = true;
        self.part = next;
    }

    fn emit(&mut self, text: &str, out: &mut Vec<Delta>) {
        match &mut self.part {
            Part::Call(call) => {
                let told = call.push(text);
                self.tell(told, out);
            }
            Part::Thinking => self.trimmed(text, out),
            Part::Content if self.stopped => {}
            Part::Content => {
                let released = self.filter.push(text);
                self.stopped = released.stopped;
                self.trimmed(&released.text, out);
            }
        }
    }

    /// Text that was held back for a stop string that did not come.
    fn release(&mut self, out: &mut Vec<Delta>) {
        if !self.stopped {
            let text = self.filter.finish();
            self.trimmed(&text, out);
        }
    }

    /// Gives text out, but for newlines that may belong to a mark.
    fn trimmed(&mut self, text: &str, out: &mut Vec<Delta>) {
        let text = if self.at_start { text.trim_start_matches('\n') } else { text };
        if text.is_empty() {
            return;
        }
        self.at_start = false;
        let mut text = std::mem::take(&mut self.held) + text;
        if self.part == Part::Thinking || self.terms.calls {
            self.held = text.split_off(text.trim_end_matches('\n').len());
        }
        let thinking = self.part == Part::Thinking;
        put(if thinking { Delta::Thinking(text) } else { Delta::Content(text) }, out);
    }

    /// Gives out what is known of a call.
    fn tell(&mut self, told: Told, out: &mut Vec<Delta>) {
        if let Some(name) = told.name {
            self.calls += 1;
            self.complete = false;
            out.push(Delta::Call(name));
        }
        put(Delta::Arguments(told.arguments), out);
        self.complete |= told.complete;
    }

    /// The text of a call is complete, or will never be.
    fn end_call(&mut self, mark: &str, out: &mut Vec<Delta>) {
        let Part::Call(text) = std::mem::replace(&mut self.part, Part::Content) else { return };
        self.at_start = true;
        let Some(raw) = text.untold() else {
            out.push(Delta::CallEnd { complete: self.complete });
            return;
        };
        match parse_call(&raw) {
            Some(Call { name, arguments }) => {
                self.tell(Told { name: Some(name), arguments, complete: true }, out);
                out.push(Delta::CallEnd { complete: true });
            }
            None => {
                self.at_start = false;
                self.emit(&format!("{CALL}{raw}{mark}"), out);
            }
        }
    }
}

/// Adds a delta; what goes on where the last one was becomes part of it.
fn put(delta: Delta, out: &mut Vec<Delta>) {
    match (out.last_mut(), delta) {
        (_, Delta::Thinking(text) | Delta::Content(text) | Delta::Arguments(text)) if text.is_empty() => {}
        (Some(Delta::Thinking(last)), Delta::Thinking(more))
        | (Some(Delta::Arguments(last)), Delta::Arguments(more))
        | (Some(Delta::Content(last)), Delta::Content(more)) => last.push_str(&more),
        (_, delta) => out.push(delta),
    }
}

#[cfg(test)]
mod tests;
