//! What a findable block holds: its tokens and, by the number of the block before it, all tokens before those.
//!
//! The chain runs through publication numbers and not through hashes of prefixes. A number is given once and never again, so
//! it stands for one prefix, and equal keys are equal prefixes: by induction from the first block, whose key holds the
//! salt. The map's own hash only chooses where to look; keys that collide there are told apart by their tokens.

use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::Arc;

use super::{BLOCK_TOKENS, BlockId};
use crate::token::TokenId;

/// Given to a block when it becomes findable; never used again.
pub(super) type Publication = u64;

/// What comes before a block's tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Before {
    /// Nothing: it is the first block. Sequences with other salts share nothing.
    Salt(Arc<[u8]>),
    /// The block that was published under this number.
    Block(Publication),
}

/// A block's tokens, and what comes before them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Content {
    pub(super) before: Before,
    pub(super) tokens: [TokenId; BLOCK_TOKENS],
}

/// Where each content is. The default hash is keyed at random, so that nobody can choose tokens that collide.
pub(super) type Index<S = RandomState> = HashMap<Arc<Content>, BlockId, S>;
