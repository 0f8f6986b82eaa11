//! A model's chat template: from a conversation to a prompt in which the template's control tokens, and only
//! those, are known as such. `markers` has the idea.

use std::ops::Range;
use std::sync::Arc;

use super::context;
use super::error::ChatError;
use super::jinja::{self, Limits};
use super::markers::{Atoms, Markers};
use super::message::Conversation;

/// Real templates have 4 to 20 kB.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Steps that any template may take, some hundred times what a real one takes before the first message; some
/// milliseconds.
const BASE_FUEL: u64 = 200_000;
/// Further steps for each byte of the conversation, its structure included; Qwen's template takes about one.
const FUEL_PER_BYTE: u64 = 8;
/// What a message, a key or a value counts for beside its text.
const STRUCTURE_BYTES: u64 = 32;
/// Prompt bytes beside the conversation's own, some hundred times what real templates add.
const BASE_OUTPUT_BYTES: usize = 4 << 20;
/// Prompt bytes for each byte of the conversation: JSON escapes make six of one, a template may repeat a text.
const OUTPUT_PER_BYTE: usize = 8;

/// In assistant turns these are the model's own writing and become control tokens; the turn markers never do.
const ASSISTANT_MARKERS: [&str; 4] = ["<think>", "</think>", "<tool_call>", "</tool_call>"];

/// A parsed chat template.
#[derive(Clone, Debug)]
pub struct Template {
    source: String,
    markers: Markers,
    /// Variables of the tokenizer, such as `eos_token`.
    special: Vec<(String, String)>,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// What Transformers would render.
    pub text: String,
    /// Byte ranges of `text`, sorted and apart, that spell an added token without being the template's own
    /// writing: a tokenizer must take what touches them as plain text.
    pub plain: Vec<Range<usize>>,
}

impl Template {
    /// Reads a template. `added` are the spellings that the tokenizer cuts out as added tokens.
    ///
    /// # Errors
    /// A template that is not valid, with its line.
    pub fn parse(source: &str, added: &[&str]) -> Result<Self, ChatError> {
        if source.len() > MAX_SOURCE_BYTES {
            let (found_bytes, limit_bytes) = (source.len(), MAX_SOURCE_BYTES);
            return Err(ChatError::TemplateTooLong { found_bytes, limit_bytes });
        }
        jinja::check(source)?;
        Ok(Self { source: source.to_owned(), markers: Markers::new(added), special: Vec::new() })
    }

    /// Gives the template a variable of the tokenizer, such as `bos_token` or `eos_token`; absent ones stay
    /// undefined.
    #[must_use]
    pub fn with_variable(mut self, name: &str, text: &str) -> Self {
        self.special.push((name.to_owned(), text.to_owned()));
        self
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// The template's refusal or fault, its limits, or `Untraceable`.
    pub fn render(&self, conversation: &Conversation) -> Result<Rendered, ChatError> {
        let texts = context::texts(conversation);
        let limits = limits(&texts);
        let variables = context::variables(conversation, self.special.iter().cloned(), &str::to_owned);
        let text = jinja::render(&self.source, variables, limits, None)?;
        let trusted = self.trusted_ranges(conversation, &texts, limits, &text)?;
        let plain = self.markers.plain_ranges(&text, &trusted);
        Ok(Rendered { text, plain })
    }

    /// Where `text` has the template's own markers: a second rendering with atoms in their place.
    fn trusted_ranges(
        &self,
        conversation: &Conversation,
        texts: &[&str],
        limits: Limits,
        text: &str,
    ) -> Result<Vec<Range<usize>>, ChatError> {
        let special = self.special.iter().map(|(_, text)| text.as_str());
        let all = texts.iter().copied().chain(special).chain([self.source.as_str()]);
        let atoms = Arc::new(Atoms::unused(&self.markers, all).ok_or(ChatError::Untraceable)?);
        let own = |text: &str| self.markers.mark(text, &atoms, |_| true);
        let assistant =
            |text: &str| self.markers.mark(text, &atoms, |spelling| ASSISTANT_MARKERS.contains(&spelling));
        let special = self.special.iter().map(|(name, text)| (name.clone(), own(text)));
        let variables = context::variables(conversation, special, &assistant);
        // The first rendering succeeded, so an error here is the marking's doing, as is any other text.
        let traced = jinja::render(&own(&self.source), variables, limits, Some(Arc::clone(&atoms)))
            .map_err(|_| ChatError::Untraceable)?;
        match atoms.spell_out(&traced) {
            Some((spelled, trusted)) if spelled == text => Ok(trusted),
            None if traced == text => Ok(Vec::new()),
            _ => Err(ChatError::Untraceable),
        }
    }
}

/// Limits that grow with the conversation, so that a long one is no attack and a short one allows none.
fn limits(texts: &[&str]) -> Limits {
    let text_bytes: usize = texts.iter().map(|text| text.len()).sum();
    let bytes = text_bytes as u64 + texts.len() as u64 * STRUCTURE_BYTES;
    Limits {
        fuel: BASE_FUEL.saturating_add(bytes.saturating_mul(FUEL_PER_BYTE)),
        output_bytes: BASE_OUTPUT_BYTES.saturating_add(text_bytes.saturating_mul(OUTPUT_PER_BYTE)),
    }
}
