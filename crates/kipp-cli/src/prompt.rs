//! From a chat to a prompt's text and ids, through the model's own template. Text of messages can never become control
//! tokens: the template's rendering says which spellings are not its own, and the tokenizer takes those as plain text.

use std::path::Path;

use anyhow::Context;
use kipp::TokenId;
use kipp::artifact::TokenizerFiles;
use kipp::chat::{Conversation, Message, Role, Template};
use kipp::tokenizer::Tokenizer;

use crate::input;

/// What `kipp run --chat` sends.
pub(crate) struct ChatPrompt {
    pub(crate) system: Option<String>,
    pub(crate) user: String,
    /// Asks the template for an answer without thinking; else the template decides.
    pub(crate) no_think: bool,
}

/// Text and ids of a chat with one user message.
pub(crate) fn chat(
    files: &TokenizerFiles,
    tokenizer: &Tokenizer,
    prompt: ChatPrompt,
) -> anyhow::Result<(String, Vec<TokenId>)> {
    let system = prompt.system.map(|text| Message::new(Role::System, text));
    let messages = system.into_iter().chain([Message::new(Role::User, prompt.user)]).collect();
    let mut conversation = Conversation::new(messages);
    conversation.enable_thinking = prompt.no_think.then_some(false);
    render(files, tokenizer, &conversation)
}

/// A conversation from a JSON file.
pub(crate) fn conversation_file(path: &Path) -> anyhow::Result<Conversation> {
    Conversation::parse(&input::text_file(path)?).with_context(|| path.display().to_string())
}

/// Text and ids of a conversation.
pub(crate) fn render(
    files: &TokenizerFiles,
    tokenizer: &Tokenizer,
    conversation: &Conversation,
) -> anyhow::Result<(String, Vec<TokenId>)> {
    let source = files
        .chat_template()
        .with_context(|| format!("{}: the model has no chat template", files.path().display()))?;
    let added: Vec<&str> = tokenizer.added_tokens().map(|(text, _)| text).collect();
    let mut template = Template::parse(source, &added)?;
    let special = files.special_ids();
    for (name, id) in [("eos_token", special.eos), ("pad_token", special.pad)] {
        if let Some(text) = id.and_then(|id| added_text(tokenizer, id)) {
            template = template.with_variable(name, text);
        }
    }
    let rendered = template.render(conversation)?;
    let ids = tokenizer.encode_guarded(&rendered.text, &rendered.plain);
    Ok((rendered.text, ids))
}

fn added_text(tokenizer: &Tokenizer, id: TokenId) -> Option<&str> {
    tokenizer.added_tokens().find_map(|(text, added)| (added == id).then_some(text))
}
