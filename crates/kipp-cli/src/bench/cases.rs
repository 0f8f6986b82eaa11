//! What `kipp bench run` measures, under the names that `llama-bench` gives it.

use std::fmt;
use std::str::FromStr;

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// A prompt from an empty cache.
    Prefill {
        /// Tokens of the prompt.
        tokens: usize,
    },
    /// Sequences that grow together, a token each in one step.
    Decode {
        /// Steps.
        tokens: usize,
        /// Positions that each sequence has before the first step.
        depth: usize,
        /// Sequences of the batch.
        sequences: usize,
    },
}

impl Case {
    /// Tokens that the time counts.
    pub(crate) fn measured_tokens(self) -> usize {
        match self {
            Case::Prefill { tokens } => tokens,
            Case::Decode { tokens, sequences, .. } => tokens * sequences,
        }
    }

    /// Positions of its longest sequence.
    pub(crate) fn positions(self) -> usize {
        match self {
            Case::Prefill { tokens } => tokens,
            Case::Decode { tokens, depth, .. } => depth + tokens,
        }
    }

    /// Sequences of its batches.
    pub(crate) fn sequences(self) -> usize {
        match self {
            Case::Prefill { .. } => 1,
            Case::Decode { sequences, .. } => sequences,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Case::Prefill { tokens } => write!(f, "pp{tokens}"),
            Case::Decode { tokens, depth, sequences } => {
                write!(f, "tg{tokens}")?;
                if sequences > 1 {
                    write!(f, " x {sequences}")?;
                }
                if depth > 0 {
                    write!(f, " @ d{depth}")?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Case, String> {
        parse(name)
            .ok_or_else(|| format!("{name} is not the name of a case, such as pp512 or tg64 x 8 @ d4096"))
    }
}

fn parse(name: &str) -> Option<Case> {
    if let Some(tokens) = name.strip_prefix("pp") {
        return Some(Case::Prefill { tokens: tokens.parse().ok()? });
    }
    let (rest, depth) = name.split_once(" @ d").unwrap_or((name, "0"));
    let (tokens, sequences) = rest.split_once(" x ").unwrap_or((rest, "1"));
    Some(Case::Decode {
        tokens: tokens.strip_prefix("tg")?.parse().ok()?,
        depth: depth.parse().ok()?,
        sequences: sequences.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_llama_bench_and_are_read_back() {
        let decode = |tokens, depth, sequences| Case::Decode { tokens, depth, sequences };
        for (case, name) in [
            (Case::Prefill { tokens: 512 }, "pp512"),
            (decode(64, 0, 1), "tg64"),
            (decode(64, 4096, 1), "tg64 @ d4096"),
            (decode(64, 0, 8), "tg64 x 8"),
            (decode(64, 128, 8), "tg64 x 8 @ d128"),
        ] {
            assert_eq!(case.to_string(), name);
            assert_eq!(name.parse(), Ok(case));
        }
        for name in ["", "pp", "tg", "tg64 x", "pp-1", "tg64@d1", "tg64 @ d", "xx1"] {
            assert!(name.parse::<Case>().is_err(), "{name}");
        }
        assert_eq!((decode(64, 128, 8).measured_tokens(), decode(64, 128, 8).positions()), (512, 192));
    }
}
