//! What `kipp bench spec` speaks of: three texts that are part of the program, or files. Each is cut into a prompt and the
//! tokens that follow it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kipp::TokenId;
use kipp::tokenizer::Tokenizer;

/// Tokens of a text before those that are decoded, at most: what a person sends with a question about a page.
const MOST_PROMPT_TOKENS: usize = 1024;

/// Tokens of the prompt at least: without any, there is nothing to look up in.
const LEAST_PROMPT_TOKENS: usize = 16;

/// Name and text: what repeats itself, what half does, and what hardly does.
const TEXTS: [(&str, &str); 3] = [
    ("repetitive", include_str!("../../../../../testdata/texts/repetitive.txt")),
    ("code", include_str!("../../../../../testdata/texts/code.txt")),
    ("prose", include_str!("../../../../../testdata/texts/prose.txt")),
];

/// A text to decode the end of.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) name: String,
    /// Prompt, and what follows it in the text. `[prompt_tokens + decode]`
    pub(super) tokens: Arc<[TokenId]>,
    pub(super) prompt_tokens: usize,
}

impl Text {
    /// Those that are part of the program.
    pub(super) fn own(tokenizer: &Tokenizer, size: Size) -> Result<Vec<Text>> {
        TEXTS.iter().map(|(name, text)| Text::new(name, text, tokenizer, size)).collect()
    }

    /// A file, under its name without folder and ending.
    pub(super) fn file(path: &Path, tokenizer: &Tokenizer, size: Size) -> Result<Text> {
        let shown = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(shown)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Text::new(&name, &text, tokenizer, size).with_context(shown)
    }

    fn new(name: &str, text: &str, tokenizer: &Tokenizer, size: Size) -> Result<Text> {
        let Size { decode, context_tokens } = size;
        let tokens = tokenizer.encode(text);
        let needed = LEAST_PROMPT_TOKENS + decode;
        ensure!(
            needed <= context_tokens,
            "{decode} tokens and a prompt of {LEAST_PROMPT_TOKENS} do not fit the model's {context_tokens} positions"
        );
        ensure!(
            tokens.len() >= needed,
            "the text has {} tokens, but {decode} and a prompt of {LEAST_PROMPT_TOKENS} are needed",
            tokens.len()
        );
        // The end of the text, so that what is decoded has its own past before it.
        let kept = (MOST_PROMPT_TOKENS + decode).min(context_tokens).min(tokens.len());
        let tokens: Arc<[TokenId]> = tokens[tokens.len() - kept..].into();
        Ok(Text { name: name.to_owned(), tokens, prompt_tokens: kept - decode })
    }
}

/// How much of a text is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Tokens that are decoded.
    pub(super) decode: usize,
    /// Positions that the model has.
    pub(super) context_tokens: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_into_a_prompt_and_what_follows() {
        let tokenizer =
            Tokenizer::from_json(include_bytes!("../../../../../models/kipp-tiny/tokenizer.json")).unwrap();
        let own = |decode, context_tokens| Text::own(&tokenizer, Size { decode, context_tokens });
        for text in own(256, 2048).unwrap() {
            assert_eq!(text.tokens.len(), text.prompt_tokens + 256);
            assert!(text.prompt_tokens >= 256 && text.prompt_tokens <= MOST_PROMPT_TOKENS, "{}", text.name);
        }
        assert_eq!(own(100, 120).unwrap()[0].prompt_tokens, 20);
        let refused = |decode, context_tokens| own(decode, context_tokens).unwrap_err().to_string();
        assert!(refused(110, 120).contains("do not fit"));
        assert!(refused(60_000, 1 << 20).contains("the text has"));
    }
}
