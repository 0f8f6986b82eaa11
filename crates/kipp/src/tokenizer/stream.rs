//! Bytes of tokens to text, as they come: a character that is spread over tokens waits until it is whole.

use super::{Tokenizer, TokenizerError};
use crate::TokenId;

/// Bytes to text as [`String::from_utf8_lossy`] does it, a part at a time: the text of all parts joined is the text of
/// all bytes. Holds back at most the 3 bytes of a character that may still be completed.
#[derive(Clone, Debug, Default)]
pub(super) struct Utf8Stream {
    /// The beginning of a character, not yet whole.
    held: Vec<u8>,
}

impl Utf8Stream {
    /// Appends what `bytes` completes to `out`.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.held.is_empty() {
            let kept = push_decided(bytes, out);
            self.held.extend_from_slice(kept);
        } else {
            let mut joined = std::mem::take(&mut self.held);
            joined.extend_from_slice(bytes);
            let kept = push_decided(&joined, out).len();
            joined.drain(..joined.len() - kept);
            self.held = joined;
        }
    }

    /// What is held back can no longer be completed.
    pub(super) fn finish(&mut self, out: &mut String) {
        if !self.held.is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
            self.held.clear();
        }
    }
}

/// Appends the text of `bytes` but for an unfinished character at the end, which is returned.
fn push_decided<'b>(mut bytes: &'b [u8], out: &mut String) -> &'b [u8] {
    loop {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                out.push_str(text);
                return &[];
            }
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                if let Ok(text) = std::str::from_utf8(valid) {
                    out.push_str(text);
                }
                let Some(invalid) = error.error_len() else { return rest };
                out.push(char::REPLACEMENT_CHARACTER);
                bytes = rest.get(invalid..).unwrap_or_default();
            }
        }
    }
}

/// Decodes tokens one at a time. Made by [`Tokenizer::stream_decoder`].
#[derive(Clone, Debug)]
pub struct StreamDecoder {
    tokenizer: Tokenizer,
    skip_special: bool,
    stream: Utf8Stream,
    delta: String,
}

impl StreamDecoder {
    pub(super) fn new(tokenizer: Tokenizer, skip_special: bool) -> StreamDecoder {
        StreamDecoder { tokenizer, skip_special, stream: Utf8Stream::default(), delta: String::new() }
    }

    /// The text that this token completes, possibly empty. Invalid bytes become U+FFFD as soon as they cannot become a
    /// character; all deltas and [`finish`](Self::finish) joined are the text of [`Tokenizer::decode`].
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`]; what is held back stays as it was.
    pub fn push(&mut self, id: TokenId) -> Result<&str, TokenizerError> {
        self.delta.clear();
        let bytes = self.tokenizer.decoded_bytes(id, self.skip_special)?;
        self.stream.push(bytes, &mut self.delta);
        Ok(&self.delta)
    }

    /// Ends the text: U+FFFD if a character was left unfinished. The decoder may then begin another text.
    pub fn finish(&mut self) -> &str {
        self.delta.clear();
        self.stream.finish(&mut self.delta);
        &self.delta
    }

    /// Bytes held back at the moment, at most 3.
    pub fn held_bytes(&self) -> usize {
        self.stream.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Utf8Stream;

    #[test]
    fn any_cut_gives_the_lossy_text() {
        let bytes = b"a\xf0\x9f\xab\xa1\xf0\x9f \xf5\xe2\x80\xc3\xa9\xed\xa0\x80\xf0\x80\x80\xc0\xaf\xe2\x82\xf0\x9f\x98";
        let whole = String::from_utf8_lossy(bytes);
        for width in 1..bytes.len() {
            let (mut stream, mut out) = (Utf8Stream::default(), String::new());
            for part in bytes.chunks(width) {
                stream.push(part, &mut out);
                assert!(stream.held.len() <= 3);
            }
            stream.finish(&mut out);
            assert_eq!(out, whole, "parts of {width}");
        }
    }
}
