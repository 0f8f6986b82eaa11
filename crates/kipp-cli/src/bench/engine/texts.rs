//! What `kipp bench spec` speaks of: three texts that are part of the program, or files. Each is cut into a prompt and the
//! tokens that follow it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use kipp::TokenId;
use kipp::tokenizer::Tokenizer;

use crate::input;
use crate::outcome::UsageError;

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
    pub(super) fn own(tokenizer: &Tokenizer, size: Size) -> Result<Vec<Text>, UsageError> {
        let cut = |(name, text): &(&str, &str)| {
            Text::new(name, text, tokenizer, size)
                .map_err(|reason| UsageError::new("--decode", format!("{name}: {reason}")))
        };
        TEXTS.iter().map(cut).collect()
    }

    /// A file, under its name without folder and ending.
    pub(super) fn file(path: &Path, tokenizer: &Tokenizer, size: Size) -> Result<Text> {
        let text = input::text_file(path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Text::new(&name, &text, tokenizer, size).map_err(|reason| anyhow!("{}: {reason}", path.display()))
    }

    /// The end of the text, so that what is decoded has its own past before it.
    fn new(name: &str, text: &str, tokenizer: &Tokenizer, size: Size) -> Result<Text, String> {
        let Size { decode, context_tokens } = size;
        let tokens = tokenizer.encode(text);
        if tokens.len() < LEAST_PROMPT_TOKENS + decode {
            return Err(format!(
                "the text has {} tokens, but {decode} and a prompt of {LEAST_PROMPT_TOKENS} are needed",
                tokens.len()
            ));
        }
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

impl Size {
    /// Refuses what no text can be cut to.
    pub(super) fn check(self) -> Result<(), UsageError> {
        let Size { decode, context_tokens } = self;
        let reason = match decode {
            0 | 1 => "fewer than 2 tokens have no step to measure".to_owned(),
            _ if LEAST_PROMPT_TOKENS + decode > context_tokens => format!(
                "{decode} tokens and a prompt of {LEAST_PROMPT_TOKENS} do not fit the model's {context_tokens} positions"
            ),
            _ => return Ok(()),
        };
        Err(UsageError::new("--decode", reason))
    }
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
        let refused =
            |decode, context_tokens| Size { decode, context_tokens }.check().unwrap_err().to_string();
        assert!(refused(110, 120).starts_with("--decode: 110 tokens and a prompt of 16 do not fit"));
        assert!(refused(1, 120).starts_with("--decode: fewer than 2"));
        let short = own(60_000, 1 << 20).unwrap_err().to_string();
        assert!(short.starts_with("--decode: repetitive: the text has"), "{short}");
    }
}
