//! What a client sees of one request: when each piece of text came, what the server counted, and what went wrong.

use std::time::{Duration, Instant};

use super::http::HttpError;

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) prompt: String,
    pub(super) seed: u64,
    pub(super) choices: u32,
    /// Tokens of each choice.
    pub(super) tokens: usize,
}

/// Something that answers requests: a server, or an engine.
pub(super) trait Target: Sync {
    /// A client of it, for one thread.
    fn client(&self) -> Box<dyn Client + '_>;

    /// Whether it runs in this process, whose processor time is then its own.
    fn is_here(&self) -> bool {
        false
    }
}

/// Asks one request after the other.
pub(super) trait Client {
    /// Waits for the whole answer.
    fn ask(&mut self, ask: &Ask) -> Answer;
}

/// Text of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) choice: u32,
    pub(super) at: Instant,
}

/// What the server counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) prompt_tokens: usize,
    pub(super) cached_tokens: usize,
    /// Of all choices.
    pub(super) completion_tokens: usize,
}

/// An answer, as far as it came.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) pieces: Vec<Piece>,
    pub(super) counts: Option<Counts>,
    pub(super) fault: Option<Fault>,
}

/// Why an answer does not count.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("status {status}: {message}")]
    Status { status: u16, message: String },
    #[error("the stream told an error: {0}")]
    InStream(String),
    #[error("the stream ended before its answer did")]
    Unfinished,
    #[error("the answer is no stream of OpenAI's events: {0}")]
    NotEvents(String),
    #[error("the answer has no text")]
    Empty,
    #[error("the client has too many requests under way")]
    Crowded,
    #[error("the engine: {0}")]
    Engine(String),
}

impl Fault {
    /// What it is counted under.
    pub(super) fn kind(&self) -> String {
        match self {
            Fault::Http(HttpError::Connect { .. }) => "connect".to_owned(),
            Fault::Http(HttpError::Silent(_) | HttpError::Late(_)) => "timeout".to_owned(),
            Fault::Http(HttpError::Broken(_)) | Fault::Unfinished => "broken".to_owned(),
            Fault::Http(_) | Fault::NotEvents(_) => "no_openai".to_owned(),
            Fault::Status { status, .. } => status.to_string(),
            Fault::InStream(_) => "in_stream".to_owned(),
            Fault::Empty => "empty".to_owned(),
            Fault::Crowded => "client".to_owned(),
            Fault::Engine(_) => "engine".to_owned(),
        }
    }
}

/// A request with its times.
#[derive(Debug)]
pub(super) struct Observation {
    /// When it was to be sent. In an open loop that is when it arrived, however late the client was: whoever waits for a
    /// slow client waits as well.
    pub(super) due: Instant,
    pub(super) sent: Instant,
    pub(super) ended: Instant,
    pub(super) choices: u32,
    pub(super) answer: Answer,
}

impl Observation {
    pub(super) fn ttft(&self) -> Option<Duration> {
        let first = self.answer.pieces.iter().map(|piece| piece.at).min()?;
        Some(first.saturating_duration_since(self.due))
    }

    pub(super) fn end_to_end(&self) -> Duration {
        self.ended.saturating_duration_since(self.due)
    }

    /// Tokens of all choices: what the server counted; pieces of text where it counted nothing, or, as some do, only one of
    /// the choices. A piece is a token at least, but for one at the end of each choice, which may be what was held back.
    pub(super) fn tokens(&self) -> usize {
        let pieces = self.answer.pieces.len();
        let counted = self.answer.counts.map(|counts| counts.completion_tokens);
        counted.filter(|tokens| pieces <= tokens + self.choices as usize).unwrap_or(pieces)
    }

    /// Mean time of a token after the first of its choice. `None` where there is but one.
    pub(super) fn tpot(&self) -> Option<Duration> {
        let first = self.answer.pieces.iter().map(|piece| piece.at).min()?;
        let last = self.answer.pieces.iter().map(|piece| piece.at).max()?;
        let after_first = (self.tokens() / self.choices.max(1) as usize).checked_sub(1)?;
        let after_first = u32::try_from(after_first).ok().filter(|tokens| *tokens > 0)?;
        Some(last.saturating_duration_since(first) / after_first)
    }

    /// Times between the pieces of each choice.
    pub(super) fn gaps(&self) -> Vec<Duration> {
        let mut last: Vec<Option<Instant>> = vec![None; self.choices.max(1) as usize];
        let mut gaps = Vec::with_capacity(self.answer.pieces.len());
        for piece in &self.answer.pieces {
            let Some(last) = last.get_mut(piece.choice as usize) else { continue };
            if let Some(last) = last.replace(piece.at) {
                gaps.push(piece.at.saturating_duration_since(last));
            }
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_apart_by_choice() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let piece = |choice, ms| Piece { choice, at: at(ms) };
        let pieces = [piece(0, 30), piece(1, 40), piece(0, 50), piece(1, 70), piece(0, 90), piece(7, 91)];
        let with = |completion_tokens: Option<usize>| {
            let counts =
                completion_tokens.map(|tokens| Counts { completion_tokens: tokens, ..Counts::default() });
            let answer = Answer { pieces: pieces.to_vec(), counts, fault: None };
            Observation { due: at(10), sent: at(12), ended: at(95), choices: 2, answer }
        };
        let seen = with(Some(8));
        let ms = Duration::from_millis;
        assert_eq!((seen.ttft(), seen.end_to_end(), seen.tokens()), (Some(ms(20)), ms(85), 8));
        assert_eq!(seen.gaps(), [ms(20), ms(30), ms(40)]);
        // Four tokens a choice: three after the first, in 61 ms.
        assert_eq!(seen.tpot(), Some(ms(61) / 3));
        // Six pieces: nothing was counted, one was held back, one choice of both was counted.
        let tokens = [None, Some(5), Some(3)].map(|counted| with(counted).tokens());
        assert_eq!(tokens, [6, 5, 6]);
    }
}
