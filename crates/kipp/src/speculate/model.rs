//! A draft model: a smaller model with the target's tokenizer proposes what it would choose itself. One model serves all
//! sequences in turn; each sequence has a table of its own in the draft model's pool.
//!
//! ```text
//! keep the evaluated tokens that the history begins with, give the blocks of the rest back        (rollback)
//! evaluate what the history has beyond them, in steps of as many rows as the model takes          (catching up)
//! take the most likely token, evaluate it, take the next, ...
//! ```

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::{DraftSeconds, Drafter};
use crate::TokenId;
use crate::artifact::Escaped;
use crate::backend::BackendError;
use crate::batch::{Answer, Ask, Batch, Outputs};
use crate::kv::{BLOCK_TOKENS, BlockId, BlockTable, KvPool};
use crate::model::Forward;
use crate::tokenizer::Tokenizer;

/// Rows of the step that tells what catching up takes: a block, where most of what rows share is shared.
const TIMED_ROWS: usize = BLOCK_TOKENS;

/// Steps of one row that tell what a drafted token takes; the shortest counts.
const TIMED_STEPS: usize = 3;

/// Why a model cannot draft for a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DraftModelError {
    /// The tokenizers count differently.
    #[error("the draft model has {draft} tokens and the model {target}: they must share one tokenizer")]
    TokenCount {
        /// Tokens of the draft model.
        draft: usize,
        /// Tokens of the target.
        target: usize,
    },
    /// An id means different things.
    #[error(
        "token {id} is {draft} in the draft model and {target} in the model: they must share one tokenizer"
    )]
    Token {
        /// The first such id.
        id: TokenId,
        /// Its text in the draft model.
        draft: Escaped,
        /// Its text in the target.
        target: Escaped,
    },
    /// An id is a control token in one of them only.
    #[error(
        "token {id}, {text}, is a control token in only one of draft model and model: they must share one tokenizer"
    )]
    Kind {
        /// The first such id.
        id: TokenId,
        /// Its text.
        text: Escaped,
    },
    /// The embedding does not reach all tokens.
    #[error("the draft model's embedding has {rows} rows for {tokens} tokens")]
    TooFewRows {
        /// Rows of the draft model's embedding.
        rows: usize,
        /// Tokens of the tokenizer.
        tokens: usize,
    },
    /// A sequence of the context would never fit.
    #[error(
        "the draft model's KV cache has {blocks} blocks of {BLOCK_TOKENS} tokens, but one sequence of {context_tokens} \
         tokens needs {needed}"
    )]
    TooFewBlocks {
        /// Blocks of the draft model's store.
        blocks: usize,
        /// Blocks that one sequence needs.
        needed: usize,
        /// Positions of a sequence.
        context_tokens: usize,
    },
    /// Its steps have no row.
    #[error("the draft model takes no rows")]
    NoRows,
}

/// A draft model, shared by the drafters of all sequences.
#[derive(Clone)]
pub struct DraftModel {
    shared: Arc<Mutex<Shared>>,
    pool: KvPool,
    /// Positions that a sequence may have.
    context_tokens: usize,
    /// Ids from here on are padding, which nobody can want.
    valid_tokens: usize,
    /// Ids that the embedding has rows for.
    rows: usize,
    seconds: Option<DraftSeconds>,
}

struct Shared {
    model: Box<dyn Forward>,
    outputs: Outputs,
    failure: Option<BackendError>,
}

impl DraftModel {
    /// Takes `model` to draft for a target whose tokenizer is `target`. Drafts end at `context_tokens` positions, or at
    /// the draft model's own maximum if that is lower. A few steps are run to learn what a draft takes, so that a sequence
    /// need not pay for that.
    ///
    /// # Errors
    /// Tokenizers that are not the same, and a model that cannot hold one such sequence.
    pub fn new(
        model: Box<dyn Forward>,
        context_tokens: usize,
        draft: &Tokenizer,
        target: &Tokenizer,
    ) -> Result<DraftModel, DraftModelError> {
        check_same(draft, target)?;
        let (rows, tokens) = (model.spec().vocab_size, draft.len());
        if rows < tokens {
            return Err(DraftModelError::TooFewRows { rows, tokens });
        }
        if model.max_rows() == 0 {
            return Err(DraftModelError::NoRows);
        }
        let context_tokens = context_tokens.min(model.spec().context());
        let (blocks, needed) = (model.kv_blocks(), context_tokens.div_ceil(BLOCK_TOKENS));
        if needed > blocks {
            return Err(DraftModelError::TooFewBlocks { blocks, needed, context_tokens });
        }
        let pool = KvPool::new(blocks);
        let shared = Shared { model, outputs: Outputs::default(), failure: None };
        let shared = Arc::new(Mutex::new(shared));
        let model = DraftModel { shared, pool, context_tokens, valid_tokens: tokens, rows, seconds: None };
        let seconds = model.drafter().time();
        Ok(DraftModel { seconds, ..model })
    }

    /// A drafter for one sequence.
    pub fn drafter(&self) -> ModelDrafter {
        ModelDrafter { model: self.clone(), table: self.pool.table(), evaluated: Vec::new() }
    }

    /// Why nothing is drafted any more: the first error of the draft model. Sequences go on without drafts.
    pub fn failure(&self) -> Option<String> {
        match self.shared.lock() {
            Ok(shared) => shared.failure.as_ref().map(BackendError::to_string),
            Err(_) => Some("the draft model panicked".to_owned()),
        }
    }

    /// The pool that drafters take their blocks from.
    pub fn pool(&self) -> &KvPool {
        &self.pool
    }
}

/// That ids mean the same in both.
fn check_same(draft: &Tokenizer, target: &Tokenizer) -> Result<(), DraftModelError> {
    let (ours, theirs) = (draft.len(), target.len());
    if ours != theirs {
        return Err(DraftModelError::TokenCount { draft: ours, target: theirs });
    }
    for id in 0..ours as TokenId {
        let (ours, theirs) = (draft.token_bytes(id), target.token_bytes(id));
        if ours != theirs {
            let (draft, target) = (Escaped::bytes(ours), Escaped::bytes(theirs));
            return Err(DraftModelError::Token { id, draft, target });
        }
        if draft.is_special(id) != target.is_special(id) {
            return Err(DraftModelError::Kind { id, text: Escaped::bytes(ours) });
        }
    }
    Ok(())
}

/// Drafts for one sequence with a draft model.
pub struct ModelDrafter {
    model: DraftModel,
    table: BlockTable,
    /// Tokens whose keys and values are in the table's blocks, in order of position.
    evaluated: Vec<TokenId>,
}

impl ModelDrafter {
    /// What drafting takes, where there is room to find out; a failure shows with the first draft.
    fn time(mut self) -> Option<DraftSeconds> {
        let shared = Arc::clone(&self.model.shared);
        let mut shared = shared.lock().ok()?;
        let rows = TIMED_ROWS.min(shared.model.max_rows());
        if self.model.context_tokens < rows + TIMED_STEPS || rows < 2 || self.model.rows == 0 {
            return None;
        }
        let mut zero = self.table.reserve(rows + TIMED_STEPS).ok()?.to_vec();
        let ids: Vec<TokenId> = (0..rows).map(|i| (i % self.model.rows) as TokenId).collect();
        let mut seconds = |tokens: &[TokenId], again: bool| {
            if again {
                self.evaluated.clear();
            }
            let began = Instant::now();
            let asked = self.step(&mut shared, tokens, Ask::Argmax, std::mem::take(&mut zero));
            asked.ok().map(|_| began.elapsed().as_secs_f64())
        };
        // The first step meets the weights for the first time; the second writes the same again.
        seconds(&ids, false)?;
        let batch = seconds(&ids, true)?;
        let steps = (0..TIMED_STEPS).map(|_| seconds(&ids[..1], false)).collect::<Option<Vec<f64>>>()?;
        let token = steps.into_iter().fold(f64::INFINITY, f64::min);
        Some(DraftSeconds { token, catch_up: (batch - token).max(0.0) / (rows - 1) as f64 })
    }

    /// Drafts up to `max_tokens` tokens onto `draft`, as far as room and context reach.
    fn extend(
        &mut self,
        shared: &mut Shared,
        history: &[TokenId],
        max_tokens: usize,
        draft: &mut Vec<TokenId>,
    ) -> Result<(), BackendError> {
        let same = self.evaluated.iter().zip(history).take_while(|(ours, theirs)| ours == theirs).count();
        // The last token is evaluated again if need be: its answer is the first drafted token.
        let kept = same.min(history.len().saturating_sub(1));
        self.evaluated.truncate(kept);
        // Nothing of this table is published or shared, so no block is copied and none is missing.
        let Ok(None) = self.table.truncate(kept) else { return Ok(()) };
        // All blocks at once, or none: nobody waits half-way for another sequence's.
        let Ok(new) = self.table.reserve(history.len() + max_tokens - 1) else { return Ok(()) };
        let mut zero = new.to_vec();
        let step_tokens = shared.model.max_rows();
        let mut next = None;
        let mut steps = history[kept..].chunks(step_tokens).peekable();
        while let Some(step) = steps.next() {
            let ask = if steps.peek().is_none() { Ask::Argmax } else { Ask::Nothing };
            next = self.step(shared, step, ask, std::mem::take(&mut zero))?;
        }
        while let Some(token) = next.filter(|token| (*token as usize) < self.model.valid_tokens) {
            draft.push(token);
            if draft.len() == max_tokens {
                break;
            }
            next = self.step(shared, &[token], Ask::Argmax, Vec::new())?;
        }
        Ok(())
    }

    /// Evaluates `tokens` after those evaluated; what was asked of the last one.
    fn step(
        &mut self,
        shared: &mut Shared,
        tokens: &[TokenId],
        ask: Ask,
        zero: Vec<BlockId>,
    ) -> Result<Option<TokenId>, BackendError> {
        let mut batch = Batch { zero, ..Batch::default() };
        batch.push(tokens, self.evaluated.len(), self.table.blocks(), ask);
        shared.model.submit(&batch)?;
        shared.model.wait(&mut shared.outputs)?;
        self.evaluated.extend_from_slice(tokens);
        Ok(shared.outputs.answers.drain(..).find_map(|(_, answer)| match answer {
            Answer::Argmax(token) => Some(token),
            _ => None,
        }))
    }
}

impl Drafter for ModelDrafter {
    fn draft(&mut self, history: &[TokenId], max_tokens: usize, draft: &mut Vec<TokenId>) {
        draft.clear();
        // The last drafted token is not evaluated, so it may stand one past the context.
        let room = (self.model.context_tokens + 1).saturating_sub(history.len());
        let max_tokens = max_tokens.min(room);
        let known = history.iter().all(|token| (*token as usize) < self.model.rows);
        if max_tokens == 0 || history.is_empty() || !known {
            return;
        }
        let shared = Arc::clone(&self.model.shared);
        // A panic inside the draft model poisons the lock: nothing is drafted from then on.
        let Ok(mut shared) = shared.lock() else { return };
        if shared.failure.is_some() {
            return;
        }
        if let Err(error) = self.extend(&mut shared, history, max_tokens, draft) {
            draft.clear();
            self.evaluated.clear();
            // Cuts inside no block, so that it needs none.
            let _ = self.table.truncate(0);
            shared.failure = Some(error);
        }
    }

    fn seconds(&self) -> Option<DraftSeconds> {
        self.model.seconds
    }

    fn accepted(&mut self, _drafted: usize, _accepted: usize) {
        // What was wrong is rolled back with the next draft, against the history itself.
    }
}
