//! Log-probabilities in OpenAI's two shapes: parallel lists (completions) and a list of objects (chats).

use kipp::TokenId;
use kipp::engine::TokenScore;
use kipp::sampling::TokenLogProb;
use kipp::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

/// What JSON has in place of minus infinity; OpenAI's own choice.
const IMPOSSIBLE: f64 = -9999.0;

fn finite(log_prob: f64) -> f64 {
    if log_prob.is_finite() { log_prob } else { IMPOSSIBLE }
}

/// A token as text; one that is part of a character as its bytes, so that different tokens have different names.
fn name(tokenizer: &Tokenizer, id: TokenId) -> String {
    let bytes = tokenizer.token_bytes(id);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |name, byte| name + &format!("\\x{byte:02x}")),
    }
}

/// Entries of a chat's `logprobs.content`.
pub(crate) fn content_entry(tokenizer: &Tokenizer, score: &TokenScore) -> Value {
    let entry = |token: &TokenLogProb| {
        json!({
            "token": name(tokenizer, token.id),
            "logprob": finite(token.log_prob),
            "bytes": tokenizer.token_bytes(token.id),
        })
    };
    let mut value = entry(&score.token);
    value["top_logprobs"] = score.top.iter().map(entry).collect();
    value
}

/// A completion's `logprobs`: lists that grow, of which a stream gives out what is new.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    tokens: Vec<Value>,
    token_logprobs: Vec<Value>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<Value>,
    /// Characters of text so far.
    characters: usize,
}

impl Lists {
    /// Adds a token, which begins where the text now ends. The first token of a prompt has no probability.
    pub(crate) fn push(
        &mut self,
        tokenizer: &Tokenizer,
        id: TokenId,
        score: Option<&TokenScore>,
        text: &str,
    ) {
        self.tokens.push(name(tokenizer, id).into());
        self.text_offset.push(self.characters.into());
        self.characters += text.chars().count();
        let Some(score) = score else {
            self.token_logprobs.push(Value::Null);
            self.top_logprobs.push(Value::Null);
            return;
        };
        self.token_logprobs.push(finite(score.token.log_prob).into());
        let entry = |token: &TokenLogProb| (name(tokenizer, token.id), finite(token.log_prob).into());
        let mut top: Map<String, Value> = score.top.iter().map(entry).collect();
        if !top.is_empty() {
            // The chosen token is always among them, as in OpenAI's.
            let (name, log_prob) = entry(&score.token);
            top.insert(name, log_prob);
        }
        self.top_logprobs.push(top.into());
    }

    /// What came since the last call.
    pub(crate) fn take(&mut self) -> Value {
        json!({
            "tokens": std::mem::take(&mut self.tokens),
            "token_logprobs": std::mem::take(&mut self.token_logprobs),
            "top_logprobs": std::mem::take(&mut self.top_logprobs),
            "text_offset": std::mem::take(&mut self.text_offset),
        })
    }
}
