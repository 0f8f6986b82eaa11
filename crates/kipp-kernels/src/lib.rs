//! Bytes and lanes: how weights are stored and how they are multiplied. This crate knows no model, no file and no
//! thread, allocates nothing of size, and is the only place with lane-level `unsafe`.

// Register tiles are arrays indexed by token: iterators over them hide from the optimizer that they fit in registers.
#![allow(clippy::needless_range_loop)]

pub mod activations;
pub mod attention;
pub mod columns;
pub mod conformance;
mod elementwise;
pub mod half;
pub mod isa;
pub mod kernels;
pub mod kv;
pub mod math;
mod matmul;
pub mod probe;
mod processor;
pub mod schemes;
pub mod tile;

pub use activations::{Activations, CodedLayout, Coding};
pub use attention::{Attended, AttentionTask, Cache, attention_scratch_len};
pub use columns::Columns;
pub use kernels::{KernelClass, Kernels, select};
pub use kv::{KvLayout, KvScheme};
pub use schemes::Scheme;
pub use tile::{TileLayout, Tiles};
