//! Paged KV: which physical blocks hold which positions of a sequence, and which of them other sequences may adopt.
//! Bookkeeping only: the bytes are a backend's.

mod content;
mod ledger;
mod pool;
mod table;

#[cfg(test)]
mod naive;

pub use kipp_kernels::kv::{BLOCK_TOKENS, KvScheme};
pub use pool::{KvError, KvPool, KvStats};
pub use table::BlockTable;

/// A physical block of a KV store: [`BLOCK_TOKENS`] positions of every layer.
pub type BlockId = u32;
