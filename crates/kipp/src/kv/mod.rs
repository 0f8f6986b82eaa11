//! Paged KV: which physical blocks hold which positions of a sequence. Bookkeeping only: the bytes are a backend's.

mod pool;
mod table;

pub use kipp_kernels::kv::{BLOCK_TOKENS, KvScheme};
pub use pool::{KvError, KvPool};
pub use table::BlockTable;

/// A physical block of a KV store: [`BLOCK_TOKENS`] positions of every layer.
pub type BlockId = u32;
