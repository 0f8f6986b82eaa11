//! Bytes and lanes: how weights are stored and how they are multiplied. This crate knows no model, no file and no
//! thread, allocates nothing of size, and is the only place with lane-level `unsafe`.

pub mod half;
pub mod schemes;

pub use schemes::Scheme;
