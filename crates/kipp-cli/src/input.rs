//! What comes in beside the model: text and token ids, from arguments, files and standard input. Text is taken as it is;
//! nothing is trimmed, replaced or guessed.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, bail};
use kipp::TokenId;

use crate::report;

/// The argument, or all of standard input.
pub(crate) fn text_or_stdin(argument: Option<String>, what: &str) -> anyhow::Result<String> {
    match argument {
        Some(text) => Ok(text),
        None => {
            if std::io::stdin().is_terminal() {
                report::note(&format!("reading {what} from standard input; Ctrl-D ends it"));
            }
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).context("standard input")?;
            utf8(bytes).context("standard input")
        }
    }
}

/// A text file.
pub(crate) fn text_file(path: &Path) -> anyhow::Result<String> {
    utf8(bytes_file(path)?).with_context(|| path.display().to_string())
}

/// Token ids from a file: whitespace-separated numbers or a JSON list.
pub(crate) fn ids_file(path: &Path) -> anyhow::Result<Vec<TokenId>> {
    let ids = parse_ids(&text_file(path)?).with_context(|| path.display().to_string())?;
    if ids.is_empty() {
        bail!("{}: no token ids", path.display());
    }
    Ok(ids)
}

/// Token ids from a file of little-endian u32.
pub(crate) fn u32_file(path: &Path) -> anyhow::Result<Vec<TokenId>> {
    let bytes = bytes_file(path)?;
    let (ids, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        bail!("{}: {} bytes are no whole number of 4-byte ids", path.display(), bytes.len());
    }
    Ok(ids.iter().map(|id| TokenId::from_le_bytes(*id)).collect())
}

/// Whitespace-separated numbers, or a JSON list.
pub(crate) fn parse_ids(text: &str) -> anyhow::Result<Vec<TokenId>> {
    if text.trim_start().starts_with('[') {
        let numbers: Vec<u64> = serde_json::from_str(text).context("not a JSON list of token ids")?;
        return numbers
            .into_iter()
            .enumerate()
            .map(|(at, id)| TokenId::try_from(id).with_context(|| format!("item {at}: {id} is no token id")))
            .collect();
    }
    text.split_whitespace()
        .enumerate()
        .map(|(at, id)| id.parse().with_context(|| format!("item {at}: {id:?} is no token id")))
        .collect()
}

/// Refuses the first id that the vocabulary does not have.
pub(crate) fn check_ids(ids: &[TokenId], vocab_size: usize) -> anyhow::Result<()> {
    match ids.iter().position(|id| *id as usize >= vocab_size) {
        Some(at) => bail!("item {at}: token id {} is past the vocabulary of {vocab_size}", ids[at]),
        None => Ok(()),
    }
}

fn bytes_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

fn utf8(bytes: Vec<u8>) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        anyhow::anyhow!("not UTF-8: the byte at {} is invalid", error.utf8_error().valid_up_to())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_as_words_or_as_a_json_list() {
        assert_eq!(parse_ids("1 2\n 3\t4294967295\n").unwrap(), [1, 2, 3, u32::MAX]);
        assert_eq!(parse_ids(" [1, 2,3]\n").unwrap(), [1, 2, 3]);
        assert!(parse_ids("").unwrap().is_empty());
        assert!(parse_ids("[]").unwrap().is_empty());
    }

    #[test]
    fn a_bad_id_is_named_with_its_place() {
        for (text, place) in [
            ("1 -1", "item 1: \"-1\""),
            ("4294967296", "item 0: \"4294967296\""),
            ("1,2", "item 0: \"1,2\""),
            ("[0, 5279552648203111001]", "item 1: 5279552648203111001"),
            ("[-1]", "not a JSON list"),
            ("[1.5]", "not a JSON list"),
            ("[[1]]", "not a JSON list"),
            ("[1", "not a JSON list"),
            ("[1] 2", "not a JSON list"),
        ] {
            let error = format!("{:#}", parse_ids(text).unwrap_err());
            assert!(error.contains(place), "{text}: {error}");
        }
        assert_eq!(check_ids(&[0, 9], 10).unwrap(), ());
        let error = check_ids(&[0, 10], 10).unwrap_err().to_string();
        assert_eq!(error, "item 1: token id 10 is past the vocabulary of 10");
    }

    #[test]
    fn invalid_utf8_is_an_error_with_its_place() {
        assert_eq!(utf8(b"a\xff".to_vec()).unwrap_err().to_string(), "not UTF-8: the byte at 1 is invalid");
        assert_eq!(utf8(b"a\0\n".to_vec()).unwrap(), "a\0\n");
    }
}
