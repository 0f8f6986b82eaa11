//! Stop strings: what of the generated text may go out. A match may span any number of tokens, and nothing of it is ever
//! emitted, not even for a moment: only a tail that can still become a stop string is held back.
//!
//! The match that ends first wins; of two that end together the longer one does.

/// The filter of one completion.
#[derive(Clone, Debug)]
pub struct StopFilter {
    stops: Vec<String>,
    /// Text that is a proper prefix of some stop string, between two pushes.
    held: String,
}

/// What a push lets out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// Text that no stop string can take back.
    pub text: String,
    /// A stop string is complete; nothing may follow.
    pub stopped: bool,
}

impl StopFilter {
    /// A filter for these strings. An empty one would stop before anything: whoever takes requests refuses it, and here
    /// it counts for nothing.
    pub fn new(mut stops: Vec<String>) -> StopFilter {
        stops.retain(|stop| !stop.is_empty());
        StopFilter { stops, held: String::new() }
    }

    /// Takes the next piece of text. After a stop the filter takes no more.
    pub fn push(&mut self, piece: &str) -> Released {
        if self.stops.is_empty() {
            return Released { text: piece.to_owned(), stopped: false };
        }
        let mut text = std::mem::take(&mut self.held);
        for c in piece.chars() {
            text.push(c);
            let ended = self.stops.iter().filter(|stop| text.ends_with(stop.as_str()));
            if let Some(longest) = ended.map(String::len).max() {
                text.truncate(text.len() - longest);
                return Released { text, stopped: true };
            }
        }
        self.held = text.split_off(self.safe_len(&text));
        Released { text, stopped: false }
    }

    /// The text still held, when the completion ends without a stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes before the longest tail that begins a stop string.
    fn safe_len(&self, text: &str) -> usize {
        let longest_stop = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = text.len().saturating_sub(longest_stop);
        let begins = |at: &usize| {
            text.is_char_boundary(*at) && self.stops.iter().any(|stop| stop.starts_with(&text[*at..]))
        };
        (from..text.len()).find(begins).unwrap_or(text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that goes out, and whether a stop string ended it.
    fn filtered(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut filter = StopFilter::new(stops.iter().map(|&stop| stop.to_owned()).collect());
        let mut out = String::new();
        for piece in pieces {
            let released = filter.push(piece);
            out += &released.text;
            if released.stopped {
                return (out, true);
            }
        }
        (out + &filter.finish(), false)
    }

    #[test]
    fn h06_a_stop_string_over_token_borders_is_never_partly_emitted() {
        let brown = ["The", " quick", " brown", " fox"];
        assert_eq!(filtered(&["own fox"], &brown), ("The quick br".to_owned(), true));
        let cat = ["The", " quick", " brown", " cat"];
        assert_eq!(filtered(&["own fox"], &cat), ("The quick brown cat".to_owned(), false));
        assert_eq!(filtered(&["DEFGHIJ"], &["D", "EFG", "HI", "J"]), (String::new(), true));
        assert_eq!(filtered(&["aab"], &["a", "a", "a", "b"]), ("a".to_owned(), true));
        assert_eq!(filtered(&["\u{1FAE0}"], &["\u{1FAE0}"]), (String::new(), true));
        assert_eq!(filtered(&["xyz"], &["wx", "y"]), ("wxy".to_owned(), false));
        assert_eq!(filtered(&[], &["a", "b"]), ("ab".to_owned(), false));
    }

    #[test]
    fn h06_the_match_that_ends_first_wins_and_the_longer_on_a_tie() {
        for pieces in [&["hel", "lo wo"][..], &["h", "e", "l", "l", "o", " ", "w", "o"]] {
            assert_eq!(filtered(&["lo wo", "o"], pieces), ("hell".to_owned(), true));
        }
        assert_eq!(filtered(&["o", "lo"], &["hello"]), ("hel".to_owned(), true));
    }

    #[test]
    fn h06_only_a_tail_that_can_become_a_stop_is_held() {
        let mut filter = StopFilter::new(vec!["<end>".to_owned(), "é!".to_owned()]);
        assert_eq!(filter.push("a < b <en").text, "a < b ");
        assert_eq!(filter.push("e").text, "<ene");
        assert_eq!(filter.push("café").text, "caf");
        assert_eq!(filter.push("?").text, "é?");
    }
}
