//! An answer as it grows: its tokens in, its thinking and its content out.

use kipp::TokenId;
use kipp::engine::{Delta, Split, SplitTerms};
use kipp::tokenizer::Tokenizer;

/// Takes what an answer goes on by, to show it.
pub(super) type Show<'a> = &'a mut dyn FnMut(&Delta) -> anyhow::Result<()>;

/// What there is of an answer.
pub(super) struct Answer {
    split: Split,
    pub(super) thinking: String,
    pub(super) content: String,
}

impl Answer {
    pub(super) fn new(terms: SplitTerms, tokenizer: &Tokenizer) -> Answer {
        let split = Split::new(terms, tokenizer);
        Answer { split, thinking: String::new(), content: String::new() }
    }

    pub(super) fn push(&mut self, token: TokenId, show: Show<'_>) -> anyhow::Result<()> {
        let mut deltas = Vec::new();
        self.split.push(token, &mut deltas)?;
        self.keep(&deltas, show)
    }

    /// The answer has ended.
    pub(super) fn finish(&mut self, show: Show<'_>) -> anyhow::Result<()> {
        let mut deltas = Vec::new();
        self.split.finish(&mut deltas);
        self.keep(&deltas, show)
    }

    fn keep(&mut self, deltas: &[Delta], show: Show<'_>) -> anyhow::Result<()> {
        for delta in deltas {
            match delta {
                Delta::Thinking(text) => self.thinking += text,
                Delta::Content(text) => self.content += text,
                // None are looked for: a chat has no tools.
                Delta::Call(_) | Delta::Arguments(_) | Delta::CallEnd { .. } => {}
            }
            show(delta)?;
        }
        Ok(())
    }
}
