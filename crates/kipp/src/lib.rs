//! The Kipp engine as a library.

pub mod artifact;
pub mod chat;
pub mod checkpoints;
pub mod convert;
pub mod sampling;
pub mod spec;
pub mod token;
pub mod tokenizer;

pub use kipp_kernels::Scheme;
pub use spec::ModelSpec;
pub use token::TokenId;
