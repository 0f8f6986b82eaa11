//! Which tokens of a text are scored, and how much of it the model has read before each.

use std::fmt;
use std::ops::Range;

use super::PerplexityError;

/// How a text is cut. Numbers of two protocols cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Non-overlapping windows; every token but a window's first is scored.
    Windows {
        /// Tokens a window.
        window: usize,
    },
    /// A window begins every `stride` tokens and scores what none before it did, so that all but the first `window`
    /// tokens are predicted from at least `window - stride`.
    Stride {
        /// Tokens a window.
        window: usize,
        /// Tokens between the beginnings of two windows, fewer than a window's.
        stride: usize,
    },
    /// Non-overlapping whole windows, of each the tokens after the first `window / 2 + 1`: what llama.cpp's
    /// `llama-perplexity` scores for a model without a beginning-of-text token.
    SecondHalf {
        /// Tokens a window.
        window: usize,
    },
}

/// A stretch of the text that the model reads from an empty cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// What it reads.
    pub(super) tokens: Range<usize>,
    /// What is scored: within `tokens`, never the first of them, never empty.
    pub(super) scored: Range<usize>,
}

impl Protocol {
    /// Tokens of a whole window.
    pub fn window(self) -> usize {
        match self {
            Protocol::Windows { window }
            | Protocol::Stride { window, .. }
            | Protocol::SecondHalf { window } => window,
        }
    }

    /// The windows of a text of so many tokens; an error where none scores anything.
    pub(super) fn windows(self, tokens: usize) -> Result<Vec<Window>, PerplexityError> {
        let window = self.window();
        if window < 2 {
            return Err(PerplexityError::Window(window));
        }
        let windows: Vec<Window> = match self {
            Protocol::Windows { .. } => every(window, window, tokens, |_, read| read.start + 1),
            Protocol::Stride { stride, .. } if stride == 0 || stride >= window => {
                return Err(PerplexityError::Stride { window, stride });
            }
            Protocol::Stride { stride, .. } => {
                every(window, stride, tokens, |scored, read| scored.max(read.start + 1))
            }
            Protocol::SecondHalf { .. } => {
                every(window, window, tokens / window * window, |_, read| read.start + window / 2 + 1)
            }
        };
        if windows.is_empty() {
            Err(PerplexityError::TooShort { tokens, protocol: self })
        } else {
            Ok(windows)
        }
    }
}

/// Windows that begin every `stride` tokens, up to the first that reaches the end. `first(end, read)` is the first token
/// that one scores, `end` being where the one before it ended.
fn every(
    window: usize,
    stride: usize,
    tokens: usize,
    first: impl Fn(usize, &Range<usize>) -> usize,
) -> Vec<Window> {
    let mut windows = Vec::new();
    let mut end = 0;
    for start in (0..tokens).step_by(stride) {
        if end == tokens {
            break;
        }
        let read = start..tokens.min(start.saturating_add(window));
        let scored = first(end, &read)..read.end;
        end = read.end;
        if !scored.is_empty() {
            windows.push(Window { tokens: read, scored });
        }
    }
    windows
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Protocol::Windows { .. } => f.write_str(
                "non-overlapping windows, each from an empty cache; every token but a window's first is scored",
            ),
            Protocol::Stride { stride, .. } => write!(
                f,
                "a window every {stride} tokens, each from an empty cache; scored is what no window before did"
            ),
            Protocol::SecondHalf { window } => write!(
                f,
                "non-overlapping whole windows, each from an empty cache; the tokens after the first {} are scored",
                window / 2 + 1
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(protocol: Protocol, tokens: usize) -> Vec<[Range<usize>; 2]> {
        protocol.windows(tokens).unwrap().into_iter().map(|w| [w.tokens, w.scored]).collect()
    }

    #[test]
    fn windows_lie_side_by_side() {
        let protocol = Protocol::Windows { window: 4 };
        assert_eq!(cut(protocol, 10), [[0..4, 1..4], [4..8, 5..8], [8..10, 9..10]]);
        // A last window of one token scores nothing.
        assert_eq!(cut(protocol, 9), [[0..4, 1..4], [4..8, 5..8]]);
    }

    #[test]
    fn a_stride_scores_every_token_once() {
        assert_eq!(
            cut(Protocol::Stride { window: 4, stride: 2 }, 9),
            [[0..4, 1..4], [2..6, 4..6], [4..8, 6..8], [6..9, 8..9]]
        );
        for (window, stride, tokens) in [(8, 1, 40), (8, 7, 41), (5, 3, 5), (5, 3, 4), (64, 9, 1000)] {
            let windows = Protocol::Stride { window, stride }.windows(tokens).unwrap();
            let scored: Vec<usize> = windows.iter().flat_map(|w| w.scored.clone()).collect();
            assert_eq!(scored, (1..tokens).collect::<Vec<_>>(), "{window} {stride} {tokens}");
            assert!(windows.iter().all(|w| w.tokens.len() <= window && w.scored.start > w.tokens.start));
            assert!(windows[1..].iter().all(|w| w.scored.start - w.tokens.start >= window - stride));
        }
    }

    #[test]
    fn second_halves_are_of_whole_windows() {
        assert_eq!(cut(Protocol::SecondHalf { window: 8 }, 23), [[0..8, 5..8], [8..16, 13..16]]);
        assert_eq!(cut(Protocol::SecondHalf { window: 3 }, 3), [[0..3, 2..3]]);
    }

    #[test]
    fn what_scores_nothing_is_an_error() {
        let error = |protocol: Protocol, tokens| protocol.windows(tokens).unwrap_err().to_string();
        assert!(error(Protocol::Windows { window: 1 }, 9).contains("not 1"));
        assert!(error(Protocol::Windows { window: 4 }, 1).contains("1 tokens"));
        assert!(error(Protocol::Stride { window: 4, stride: 4 }, 9).contains("stride"));
        assert!(error(Protocol::Stride { window: 4, stride: 0 }, 9).contains("stride"));
        assert!(error(Protocol::SecondHalf { window: 8 }, 7).contains("7 tokens"));
        assert!(error(Protocol::SecondHalf { window: 2 }, 7).contains("7 tokens"));
    }
}
