//! From messages to a prompt: the conversation as clients send it, and the model's own Jinja template over it,
//! with Transformers' result and with message text that can never become a control token.
//! Not the place of tokenizing: `Rendered` says which parts of the text a tokenizer must take as plain, and `ChatFormat`
//! sees to it that it does.

mod context;
mod error;
mod filter;
mod guard;
mod jinja;
mod json;
mod markers;
mod message;
mod program;
mod prompt;
mod spelling;
mod template;

pub use error::ChatError;
pub use message::{Arguments, Conversation, Message, Role, ToolCall};
pub use prompt::{ChatFormat, ChatPrompt};
pub use spelling::parse_json;
pub use template::{Rendered, Template};
