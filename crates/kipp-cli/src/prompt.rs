//! Conversations as the program gets them: from the flags of `kipp run --chat`, or from a JSON file. What a model makes
//! of them is the library's matter.

use std::path::Path;

use anyhow::Context;
use kipp::artifact::TokenizerFiles;
use kipp::chat::{ChatFormat, ChatPrompt, Conversation, Message, Role};
use kipp::tokenizer::Tokenizer;

use crate::input;

/// What `kipp run --chat` sends.
pub(crate) struct SingleTurn {
    pub(crate) system: Option<String>,
    pub(crate) user: String,
    /// Asks the template for an answer without thinking; else the template decides.
    pub(crate) no_think: bool,
}

impl From<SingleTurn> for Conversation {
    fn from(turn: SingleTurn) -> Conversation {
        let system = turn.system.map(|text| Message::new(Role::System, text));
        let messages = system.into_iter().chain([Message::new(Role::User, turn.user)]).collect();
        let mut conversation = Conversation::new(messages);
        conversation.enable_thinking = turn.no_think.then_some(false);
        conversation
    }
}

/// A conversation from a JSON file.
pub(crate) fn conversation_file(path: &Path) -> anyhow::Result<Conversation> {
    Conversation::parse(&input::text_file(path)?).with_context(|| path.display().to_string())
}

/// What a model takes conversations in.
pub(crate) fn format(files: &TokenizerFiles, tokenizer: &Tokenizer) -> anyhow::Result<ChatFormat> {
    let format = ChatFormat::open(files, tokenizer)?;
    format.with_context(|| format!("{}: the model has no chat template", files.path().display()))
}

/// Text and ids of a conversation.
pub(crate) fn render(
    files: &TokenizerFiles,
    tokenizer: &Tokenizer,
    conversation: &Conversation,
) -> anyhow::Result<ChatPrompt> {
    Ok(format(files, tokenizer)?.prompt(conversation)?)
}
