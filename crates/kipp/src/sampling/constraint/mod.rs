//! Structured output: which tokens a JSON schema, a regular expression or a Lark grammar allows next. The grammars are
//! `llguidance`'s; here they meet Kipp's tokenizer, are bounded before they are compiled, begin after the thinking part
//! and can be copied, so that drafted tokens are masked like any other.
//!
//! JSON comes out compact: a small model that may write blanks for ever sometimes does.

mod calls;
mod compiler;
mod error;
mod mask;
mod schema;
mod state;
mod vocabulary;

pub use calls::ToolFunction;
pub use compiler::{ConstraintCompiler, Grammar};
pub use error::ConstraintError;
pub use mask::{MaskJob, MaskWorker, Masks};
pub use state::{Constraint, Start};
