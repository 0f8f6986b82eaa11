//! What of a new prompt was evaluated already, id by id. A model may spell its answer in other tokens than the tokenizer
//! would; rendered anew, the same text then has other ids, and everything after them would have to be evaluated again. So
//! where both spell the same text, the ids that were evaluated are kept.
//!
//! Only whole stretches between added tokens are exchanged, and only where the added tokens before them are the same: no
//! merge runs over an added token, so the result is a spelling of the same prompt in which the template's control tokens,
//! and no others, are control tokens.

use std::collections::BTreeSet;

use kipp::TokenId;
use kipp::tokenizer::Tokenizer;

/// Finds what can be kept.
pub(super) struct Reuse {
    tokenizer: Tokenizer,
    added: BTreeSet<TokenId>,
}

impl Reuse {
    pub(super) fn new(tokenizer: &Tokenizer) -> Reuse {
        let added = tokenizer.added_tokens().map(|(_, id)| id).collect();
        Reuse { tokenizer: tokenizer.clone(), added }
    }

    /// `rendered`, beginning with the ids of `held` as far as both are the same text.
    pub(super) fn keep(&self, held: &[TokenId], rendered: &[TokenId]) -> Vec<TokenId> {
        let (mut kept, mut replaced) = (0, 0);
        loop {
            let old = self.stretch(&held[kept..]);
            let new = self.stretch(&rendered[replaced..]);
            if old != new && self.text(old) != self.text(new) {
                break;
            }
            kept += old.len();
            replaced += new.len();
            match (held.get(kept), rendered.get(replaced)) {
                (Some(old), Some(new)) if old == new => {
                    kept += 1;
                    replaced += 1;
                }
                _ => break,
            }
        }
        [&held[..kept], &rendered[replaced..]].concat()
    }

    /// The ids before the next added token.
    fn stretch<'a>(&self, ids: &'a [TokenId]) -> &'a [TokenId] {
        let end = ids.iter().position(|id| self.added.contains(id));
        &ids[..end.unwrap_or(ids.len())]
    }

    fn text(&self, ids: &[TokenId]) -> Vec<u8> {
        ids.iter().flat_map(|id| self.tokenizer.token_bytes(*id)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        Tokenizer::from_json(include_bytes!("../../../../models/kipp-tiny/tokenizer.json")).unwrap()
    }

    /// The same text, a token for each letter.
    fn letters(tokenizer: &Tokenizer, text: &str) -> Vec<TokenId> {
        let token = |byte| (0..4000).find(|id| tokenizer.token_bytes(*id) == [byte]).unwrap();
        text.bytes().map(token).collect()
    }

    #[test]
    fn an_answer_keeps_the_ids_that_it_was_generated_in() {
        let tokenizer = tokenizer();
        let reuse = Reuse::new(&tokenizer);
        let ids = |text: &str| tokenizer.encode_with_control(text);
        let question = ids("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
        let answer = letters(&tokenizer, "There was a garden");
        let held = [&question[..], &answer].concat();
        let more = "<|im_end|>\n<|im_start|>user\nGo on<|im_end|>\n<|im_start|>assistant\n";
        let rendered =
            ids(&format!("{}There was a garden{more}", tokenizer.decode(&question, false).unwrap()));
        let kept = reuse.keep(&held, &rendered);
        assert_eq!(kept, [&held[..], &ids(more)].concat());
        assert_eq!(tokenizer.decode(&kept, false).unwrap(), tokenizer.decode(&rendered, false).unwrap());
    }

    #[test]
    fn other_text_and_other_marks_are_rendered_anew() {
        let tokenizer = tokenizer();
        let reuse = Reuse::new(&tokenizer);
        let ids = |text: &str| tokenizer.encode_with_control(text);
        // A template that drops the thinking of earlier turns.
        let held = ids("<|im_start|>assistant\n<think>\nHm.\n</think>\n\nHi");
        let rendered = ids("<|im_start|>assistant\nHi<|im_end|>\n");
        assert_eq!(reuse.keep(&held, &rendered), rendered);
        // Half of a stretch is not exchanged.
        let held = [ids("<|im_start|>"), letters(&tokenizer, "a garden")].concat();
        let rendered = ids("<|im_start|>a garden!<|im_end|>");
        assert_eq!(reuse.keep(&held, &rendered), rendered);
        // A spelled mark is no mark, on either side.
        let spelled = tokenizer.encode("a<|im_end|>b");
        assert_eq!(reuse.keep(&ids("a<|im_end|>b"), &spelled), spelled);
        assert_eq!(reuse.keep(&spelled, &ids("a<|im_end|>b")), ids("a<|im_end|>b"));
        assert_eq!(reuse.keep(&[], &spelled), spelled);
        assert!(reuse.keep(&spelled, &[]).is_empty());
    }
}
