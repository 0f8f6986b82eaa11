//! Why a constraint cannot be had or cannot go on.

use crate::TokenId;
use crate::artifact::Escaped;

/// What is wrong with a grammar, a vocabulary or the use of a constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// Longer than any grammar that is meant well.
    #[error("the grammar has {bytes} bytes, at most {limit} are read")]
    TooLong {
        /// Bytes of its text.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Brackets or values nested too deep.
    #[error("the grammar nests {depth} levels deep, at most {limit} are read")]
    TooDeep {
        /// Levels.
        depth: usize,
        /// The limit.
        limit: usize,
    },
    /// Combining its parts would make too many.
    #[error("the schema describes too many combinations: about {nodes} parts, at most {limit}")]
    TooManyParts {
        /// Parts, estimated from above.
        nodes: u64,
        /// The limit.
        limit: u64,
    },
    /// Not JSON.
    #[error("the schema is not JSON: {reason}")]
    NotJson {
        /// What and where.
        reason: Escaped,
    },
    /// A reference to something outside the schema.
    #[error("`$ref` {reference}: only references inside the schema, which begin with `#`, are followed")]
    ForeignReference {
        /// The reference.
        reference: Escaped,
    },
    /// The compiler refuses it: invalid, not supported, or nothing matches it.
    #[error("the grammar is refused: {reason}")]
    Refused {
        /// The compiler's words.
        reason: Escaped,
    },
    /// Not compiled within the time that a request may take for it.
    #[error("the grammar was not compiled within {limit_ms} ms")]
    TooSlow {
        /// The limit.
        limit_ms: u64,
    },
    /// What may come next was not known within the time that an answer may take for it.
    #[error("what the grammar allows next was not found within {limit_ms} ms")]
    MaskTooSlow {
        /// The limit.
        limit_ms: u64,
    },
    /// As many grammars as may be are being compiled.
    #[error("{running} grammars are being compiled already")]
    Busy {
        /// How many.
        running: usize,
    },
    /// No thread for compiling.
    #[error("no thread for compiling a grammar: {reason}")]
    NoThread {
        /// What the system said.
        reason: Escaped,
    },
    /// The model has no token that could end an answer.
    #[error("a constraint needs an end token among the {tokens} tokens")]
    NoEndToken {
        /// Tokens of the tokenizer.
        tokens: usize,
    },
    /// A vocabulary beyond what the mask's tree can number.
    #[error("the vocabulary has {found} {what}, a constraint takes at most {limit}")]
    Vocabulary {
        /// Tokens, or bytes of their texts.
        what: &'static str,
        /// How many.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A token that the grammar does not allow here; the constraint is as it was.
    #[error("token {token} is not allowed by the grammar after {accepted} tokens")]
    NotAllowed {
        /// The token.
        token: TokenId,
        /// Tokens before it.
        accepted: usize,
    },
    /// The grammar went over a limit while it was followed.
    #[error("the grammar became too complex to follow: {reason}")]
    TooComplex {
        /// The compiler's words.
        reason: Escaped,
    },
}
