//! Bitwise equality: what shares a step, how a prompt was cut, which blocks hold it and how many threads ran must not
//! change a single bit of a sequence's logits.

use super::compare::bits_that_differ;
use super::{Gate, GateError, Subject, Variant, all_logits, evaluate, gate_tokens, logits_of};
use crate::batch::{Ask, Batch};
use crate::kv::{BLOCK_TOKENS, BlockId, KvPool};
use crate::model::Forward;
use crate::session::{Session, SessionError};
use crate::token::TokenId;

/// Over several blocks and matrix tiles, with tails everywhere.
const TOKENS: usize = 77;

pub(super) fn gates(subject: &Subject<'_>) -> Result<Vec<Gate>, GateError> {
    let tokens = gate_tokens(subject.spec.vocab_size, TOKENS);
    let mut model = (subject.load)(subject.variant(TOKENS, 4))?;
    let model = model.as_mut();
    let whole = all_logits(model, &tokens, TOKENS)?;
    let equal = |name: &str, other: &[Vec<f32>]| {
        let detail = format!("values that differ of {}", whole.len() * whole[0].len());
        Gate::at_most(format!("bitwise: {name}"), 0.0, bits_that_differ(other, &whole) as f64, detail)
    };

    let mut gates = vec![equal("one token at a time, as at once", &all_logits(model, &tokens, 1)?)];
    for chunk in [2, 7, 13, 32, 50] {
        let cut = all_logits(model, &tokens, chunk)?;
        gates.push(equal(&format!("chunks of {chunk}, as whole"), &cut));
    }
    gates.push(equal("scrambled block table, as in order", &scrambled(model, &tokens)?));
    gates.push(equal("beside three other sequences, as alone", &in_company(model, &tokens)?));
    gates.push(equal("truncated and resumed, as fresh", &resumed(model, &tokens)?));
    for threads in [1, 3] {
        let variant = Variant { threads: Some(threads), ..subject.variant(TOKENS, 1) };
        let other = all_logits((subject.load)(variant)?.as_mut(), &tokens, 50)?;
        gates.push(equal(&format!("{threads} threads, as by default"), &other));
    }
    Ok(gates)
}

/// Physical blocks in descending order, the highest of the store first.
fn scrambled(model: &mut dyn Forward, tokens: &[TokenId]) -> Result<Vec<Vec<f32>>, GateError> {
    let blocks = model.kv_blocks() as BlockId;
    let table: Vec<BlockId> =
        (0..tokens.len().div_ceil(BLOCK_TOKENS) as BlockId).map(|i| blocks - 1 - i).collect();
    let mut batch = Batch { zero: table.clone(), ..Batch::default() };
    batch.push(tokens, 0, &table, Ask::Nothing);
    batch.asks.fill(Ask::Logits);
    Ok(evaluate(model, &batch)?)
}

/// In one batch with three sequences of other tokens and other lengths, two before it and one after.
fn in_company(model: &mut dyn Forward, tokens: &[TokenId]) -> Result<Vec<Vec<f32>>, GateError> {
    let others: Vec<TokenId> = tokens.iter().rev().copied().collect();
    let pool = KvPool::new(model.kv_blocks());
    let mut tables = Vec::new();
    let mut batch = Batch::default();
    for sequence in [&others[..1], &others[..40], tokens, &others[..tokens.len()]] {
        let mut table = pool.table();
        batch.zero.extend(table.reserve(sequence.len()).map_err(SessionError::from)?);
        batch.push(sequence, 0, table.blocks(), Ask::Nothing);
        tables.push(table);
    }
    let ours = batch.segments[2].rows.clone();
    batch.asks[ours].fill(Ask::Logits);
    Ok(evaluate(model, &batch)?)
}

/// After 45 tokens 20 others are appended and forgotten again; their blocks are kept and written over, a few tokens at a
/// time: steps that end before those 20 did are the ones that would show whether something of them is still seen.
fn resumed(model: &mut dyn Forward, tokens: &[TokenId]) -> Result<Vec<Vec<f32>>, GateError> {
    let pool = KvPool::new(model.kv_blocks());
    let mut session = Session::new(model, &pool);
    let others: Vec<TokenId> = tokens.iter().rev().copied().take(20).collect();
    let mut answers = session.evaluate(&tokens[..45], |_| Ask::Logits)?;
    session.append(&others)?;
    session.truncate(45);
    for few in tokens[45..].chunks(3) {
        answers.extend(session.evaluate(few, |_| Ask::Logits)?);
    }
    Ok(logits_of(answers).collect())
}
