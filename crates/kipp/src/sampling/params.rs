//! What a caller may ask of the sampler. `SamplingFields` is what was asked; `SamplingParams` is what passed
//! the ranges, so no later code checks a temperature again. Not the place of `seed` (it belongs to a choice).

use crate::TokenId;

/// Sampling fields as a caller gives them. The default is a plain draw from the model's own distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingFields {
    /// Divides the logits; 0 takes the most likely id.
    pub temperature: f64,
    /// Keeps this many most likely ids; 0 and -1 turn it off.
    pub top_k: i64,
    /// Keeps the smallest set of most likely ids with at least this probability; 1 turns it off.
    pub top_p: f64,
    /// Keeps ids with at least this fraction of the most likely one's probability; 0 turns it off.
    pub min_p: f64,
    /// Divides positive and multiplies negative logits of ids in the window, once an id; 1 turns it off.
    pub repetition_penalty: f64,
    /// Ids of prompt and answer, counted from the end, that the repetition penalty sees; 0 none, -1 all.
    pub repetition_last_n: i64,
    /// Taken off each id generated before, once.
    pub presence_penalty: f64,
    /// Taken off each id generated before, as often as it was.
    pub frequency_penalty: f64,
    /// Added to the logits of these ids.
    pub logit_bias: Vec<(TokenId, f64)>,
}

impl Default for SamplingFields {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            // Long enough to stop a loop of sentences, short enough to leave a long document's words alone.
            repetition_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
        }
    }
}

/// Why sampling fields were refused; each names its field.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplingError {
    /// A number outside of its range; NaN and infinities are outside of every range.
    #[error("`{field}` must be {range}, found {found}")]
    OutOfRange {
        /// The field's name in requests.
        field: &'static str,
        /// The range in words.
        range: &'static str,
        /// What was asked for.
        found: f64,
    },
    /// A bias outside of its range.
    #[error("`logit_bias` of id {id} must be from -100 to 100, found {found}")]
    Bias {
        /// The id.
        id: TokenId,
        /// The bias asked for.
        found: f64,
    },
    /// A bias on an id that the tokenizer does not have.
    #[error("`logit_bias` names id {id}, but the vocabulary ends at id {last}")]
    BiasId {
        /// The id.
        id: TokenId,
        /// The last id that exists.
        last: usize,
    },
}

/// Sampling parameters within their ranges; only valid ones exist.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    pub(super) temperature: f64,
    pub(super) top_k: Option<usize>,
    pub(super) top_p: f64,
    pub(super) min_p: f64,
    pub(super) repetition_penalty: f64,
    pub(super) repetition_window: Window,
    pub(super) presence_penalty: f64,
    pub(super) frequency_penalty: f64,
    pub(super) logit_bias: Vec<(TokenId, f64)>,
}

/// How far back the repetition penalty looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// Every id of prompt and answer.
    All,
    /// This many last ids.
    Last(usize),
}

impl SamplingParams {
    /// Checks every field against its range.
    ///
    /// # Errors
    /// The first field that is out of range, by name.
    pub fn parse(fields: SamplingFields) -> Result<Self, SamplingError> {
        // Written so that NaN fails: each condition must hold, none must fail.
        let in_range = |field, found: f64, low: f64, high: f64, range| match found >= low && found <= high {
            true => Ok(found),
            false => Err(SamplingError::OutOfRange { field, range, found }),
        };
        let repetition = fields.repetition_penalty;
        if !(repetition > 0.0 && repetition <= 1000.0) {
            let range = "above 0, up to 1000";
            return Err(SamplingError::OutOfRange { field: "repetition_penalty", range, found: repetition });
        }
        let whole = |field, found: i64| match found >= -1 {
            true => Ok(found),
            false => Err(SamplingError::OutOfRange { field, range: "0 or more, or -1", found: found as f64 }),
        };
        let top_k = whole("top_k", fields.top_k)?;
        let last_n = whole("repetition_last_n", fields.repetition_last_n)?;
        if let Some(&(id, found)) =
            fields.logit_bias.iter().find(|(_, bias)| !(-100.0..=100.0).contains(bias))
        {
            return Err(SamplingError::Bias { id, found });
        }
        Ok(Self {
            temperature: in_range("temperature", fields.temperature, 0.0, f64::MAX, "finite and 0 or more")?,
            top_k: usize::try_from(top_k).ok().filter(|&k| k > 0),
            top_p: in_range("top_p", fields.top_p, 0.0, 1.0, "from 0 to 1")?,
            min_p: in_range("min_p", fields.min_p, 0.0, 1.0, "from 0 to 1")?,
            repetition_penalty: repetition,
            repetition_window: usize::try_from(last_n).map_or(Window::All, Window::Last),
            presence_penalty: in_range(
                "presence_penalty",
                fields.presence_penalty,
                -2.0,
                2.0,
                "from -2 to 2",
            )?,
            frequency_penalty: in_range(
                "frequency_penalty",
                fields.frequency_penalty,
                -2.0,
                2.0,
                "from -2 to 2",
            )?,
            logit_bias: fields.logit_bias,
        })
    }

    /// The most likely id each time, nothing else.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: Window::Last(0),
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
        }
    }

    /// Whether the most likely id is taken, without a draw.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Checks that every biased id is one of the tokenizer's `n_tokens`.
    ///
    /// # Errors
    /// The first id past the vocabulary.
    pub fn check_bias_ids(&self, n_tokens: usize) -> Result<(), SamplingError> {
        match self.logit_bias.iter().find(|(id, _)| *id as usize >= n_tokens) {
            Some(&(id, _)) => Err(SamplingError::BiasId { id, last: n_tokens.saturating_sub(1) }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut SamplingFields)) -> String {
        let mut fields = SamplingFields::default();
        change(&mut fields);
        SamplingParams::parse(fields).unwrap_err().to_string()
    }

    #[test]
    fn h18_values_out_of_range_are_refused_by_name() {
        for temperature in [-1.0, f64::NAN, f64::INFINITY, -1e-300] {
            assert!(refused(|f| f.temperature = temperature).starts_with("`temperature` must be"));
        }
        for top_p in [-0.1, 1.1, f64::NAN] {
            assert!(refused(|f| f.top_p = top_p).starts_with("`top_p`"));
        }
        assert!(refused(|f| f.min_p = 2.0).starts_with("`min_p`"));
        assert!(refused(|f| f.top_k = -2).starts_with("`top_k`"));
        assert!(refused(|f| f.repetition_last_n = i64::MIN).starts_with("`repetition_last_n`"));
        for penalty in [0.0, -1.0, 1000.1, f64::NAN] {
            assert!(refused(|f| f.repetition_penalty = penalty).starts_with("`repetition_penalty`"));
        }
        assert!(refused(|f| f.presence_penalty = 2.1).starts_with("`presence_penalty`"));
        assert!(refused(|f| f.frequency_penalty = f64::NEG_INFINITY).starts_with("`frequency_penalty`"));
    }

    #[test]
    fn h16_bias_out_of_range_or_on_no_id_is_refused() {
        for bias in [101.0, -100.5, f64::NAN, f64::INFINITY] {
            assert!(refused(|f| f.logit_bias = vec![(3, bias)]).starts_with("`logit_bias` of id 3"));
        }
        let fields = SamplingFields { logit_bias: vec![(1, -100.0), (151_669, 1.0)], ..Default::default() };
        let params = SamplingParams::parse(fields).unwrap();
        assert_eq!(params.check_bias_ids(151_669), Err(SamplingError::BiasId { id: 151_669, last: 151_668 }));
        assert_eq!(params.check_bias_ids(151_670), Ok(()));
    }

    #[test]
    fn both_ways_to_turn_top_k_off() {
        for (top_k, expected) in [(0, None), (-1, None), (1, Some(1)), (1_000_000_000, Some(1_000_000_000))] {
            let params = SamplingParams::parse(SamplingFields { top_k, ..Default::default() }).unwrap();
            assert_eq!(params.top_k, expected);
        }
    }
}
