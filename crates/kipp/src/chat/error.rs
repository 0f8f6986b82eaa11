//! Why a conversation did not become a prompt.

use minijinja::ErrorKind;

/// What went wrong between messages and prompt. `Field` and `Json` are the caller's fault, the others the
/// template's, `Raised` and `Untraceable` either's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The conversation is not JSON.
    #[error("the conversation is not valid JSON: {problem}")]
    Json {
        /// What the parser says, with line and column.
        problem: String,
    },
    /// A field of the conversation has the wrong type or value.
    #[error("`{path}` must be {expected}, found {found}")]
    Field {
        /// Where, such as `messages[0].role`.
        path: String,
        /// What may stand there.
        expected: &'static str,
        /// What stands there, shortened and escaped.
        found: String,
    },
    /// The template is longer than any real one.
    #[error("the chat template has {found_bytes} bytes, more than {limit_bytes}")]
    TemplateTooLong {
        /// Its bytes.
        found_bytes: usize,
        /// Bytes allowed.
        limit_bytes: usize,
    },
    /// The template is not Jinja.
    #[error("the chat template is not valid at line {line}: {problem}")]
    Syntax {
        /// Line from 1; 0 when unknown.
        line: usize,
        /// What the parser says.
        problem: String,
    },
    /// The template has a construct whose cost has no bound.
    #[error("the chat template has {construct} at line {line}, which is not supported")]
    Unbounded {
        /// Line from 1; 0 when unknown.
        line: usize,
        /// What it is.
        construct: &'static str,
    },
    /// The template looked into a variable that does not exist.
    #[error("the chat template uses an undefined value at line {line}: {problem}")]
    Undefined {
        /// Line from 1; 0 when unknown.
        line: usize,
        /// What it tried.
        problem: String,
    },
    /// The template called `raise_exception`.
    #[error("the chat template refused the conversation: {message}")]
    Raised {
        /// The template's own words.
        message: String,
    },
    /// The template did something else that Jinja does not allow.
    #[error("the chat template failed at line {line}: {problem}")]
    Failed {
        /// Line from 1; 0 when unknown.
        line: usize,
        /// What it tried.
        problem: String,
    },
    /// The template took more steps, or made more text in between, than any real one.
    #[error("the chat template ran out of fuel ({fuel} steps)")]
    OutOfFuel {
        /// Steps allowed.
        fuel: u64,
    },
    /// The prompt is longer than any context.
    #[error("the chat template wrote more than {limit_bytes} bytes")]
    OutputTooLong {
        /// Bytes allowed.
        limit_bytes: usize,
    },
    /// The template's logic depends on control-token spellings in message text in a way that hides which
    /// markers are its own; a prompt whose markers could be forged is never given out.
    #[error("the chat template's own control tokens cannot be told from those spelled in the messages")]
    Untraceable,
}

/// The exception that `raise_exception` carries through the template engine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

impl ChatError {
    /// A field error; `found` is shortened and escaped.
    pub(super) fn field(path: impl Into<String>, expected: &'static str, found: &str) -> Self {
        Self::Field { path: path.into(), expected, found: printable(found) }
    }

    /// What the template engine's error means here.
    pub(super) fn from_engine(error: &minijinja::Error, fuel: u64, limit_bytes: usize) -> Self {
        let line = error.line().unwrap_or(0);
        let problem = printable(&match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        });
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(Raised(message)) = error.downcast_ref() {
                return Self::Raised { message: printable(message) };
            }
            match error.downcast_ref().map(minijinja::Error::kind) {
                Some(ErrorKind::OutOfFuel) => return Self::OutOfFuel { fuel },
                Some(ErrorKind::WriteFailure) => return Self::OutputTooLong { limit_bytes },
                _ => cause = error.source(),
            }
        }
        match error.kind() {
            ErrorKind::SyntaxError | ErrorKind::BadEscape => Self::Syntax { line, problem },
            ErrorKind::UndefinedError => Self::Undefined { line, problem },
            _ => Self::Failed { line, problem },
        }
    }
}

/// Text from outside as a message may show it: control characters escaped, at most 200 characters.
fn printable(text: &str) -> String {
    const SHOWN: usize = 200;
    let mut shown = String::new();
    for (n, c) in text.chars().enumerate() {
        match c {
            _ if n == SHOWN => {
                shown.push('…');
                break;
            }
            c if c.is_control() => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_escaped_and_shortened() {
        assert_eq!(printable("a\u{1b}[31m\n"), "a\\u{1b}[31m\\n");
        assert_eq!(printable(&"x".repeat(5000)).chars().count(), 201);
    }
}
