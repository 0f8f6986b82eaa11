//! What a step of the model costs by its rows, learnt from the steps that ran. The clock is the caller's.
//!
//! ```text
//! step_seconds(rows) = a + b * rows                       a line through the steps seen, old ones fading
//! ```
//!
//! With `n` sequences decoding, one more row delays all of them by `b`, in which they would have made `n * b / (a + b * n)`
//! tokens together. That is the price of a drafted token, in tokens; so a draft that pays for itself raises the throughput of
//! all, not only the speed of one.

/// Price of a row where nothing was measured yet, in steps of one row: a CPU reads the weights once a step and multiplies
/// once a row. Qwen3-0.6B at q8_0 on two cores decodes 28-33 tokens a second and prefills 424-488.
const ROW_BEFORE_MEASURED: f64 = 0.07;

/// Price of a draft model's tokens before any step of the target was seen: more than any credit, for it may be as large.
const DRAFT_BEFORE_MEASURED: f64 = 1e3;

/// What one older step counts beside the next: about the last fifty are seen.
const FADE: f64 = 0.98;

/// The weight of `ROW_BEFORE_MEASURED`, in rows squared: as of one step two rows away from the others.
const PRIOR_WEIGHT: f64 = 4.0;

/// Price of a row in which a draft model catches up, where nobody measured it: in its steps of one row, with more than
/// `ROW_BEFORE_MEASURED` of them, since a small model's rows are a larger part of its steps.
const CATCH_UP_BEFORE_MEASURED: f64 = 0.1;

/// A step may take at most this much of what was expected; more is the machine's doing, not the step's.
const OUTLIER: f64 = 4.0;

/// The prices of one more drafted token, in tokens that the same time would have made without it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenCosts {
    /// Checking it: one more row in the step.
    pub row: f64,
    /// Proposing it: a step of the draft model; 0 where drafts are looked up.
    pub draft: f64,
    /// A token of the history that the draft model evaluates before it can propose any; 0 where drafts are looked up.
    pub catch_up: f64,
}

/// What drafting takes, as a draft model measured it before the first draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftSeconds {
    /// One drafted token.
    pub token: f64,
    /// One token of the history that is evaluated before.
    pub catch_up: f64,
}

/// The times of one model's steps; shared by all sequences of an engine.
#[derive(Clone, Debug, Default)]
pub struct StepCosts {
    /// Sums over the steps seen, faded: of 1, rows, rows^2, seconds, rows * seconds.
    weight: f64,
    rows: f64,
    rows_squared: f64,
    seconds: f64,
    rows_seconds: f64,
    /// `None` before a draft was seen or expected; where drafts are looked up, for ever.
    draft: Option<DraftSeconds>,
}

impl StepCosts {
    /// Knows nothing yet.
    pub fn new() -> StepCosts {
        StepCosts::default()
    }

    /// Learns from a step of decode rows alone (drafted ones counted), whose time does not hang on prompt lengths.
    pub fn observe(&mut self, rows: usize, seconds: f64) {
        if rows == 0 || !seconds.is_finite() || seconds <= 0.0 {
            return;
        }
        let rows = rows as f64;
        let seconds = match self.line() {
            Some((a, b)) => seconds.min(OUTLIER * (a + b * rows)),
            None => seconds,
        };
        for (sum, value) in [
            (&mut self.weight, 1.0),
            (&mut self.rows, rows),
            (&mut self.rows_squared, rows * rows),
            (&mut self.seconds, seconds),
            (&mut self.rows_seconds, rows * seconds),
        ] {
            *sum = *sum * FADE + value;
        }
    }

    /// What a draft model says of itself, until one of its drafts is seen.
    pub fn expect_draft(&mut self, seconds: DraftSeconds) {
        self.draft.get_or_insert(seconds);
    }

    /// Learns from a call of a draft model that caught up with `behind` tokens and made `tokens`.
    pub fn observe_draft(&mut self, behind: usize, tokens: usize, seconds: f64) {
        if tokens == 0 || !seconds.is_finite() || seconds <= 0.0 {
            return;
        }
        let (behind, tokens) = (behind as f64, tokens as f64);
        let Some(DraftSeconds { token, catch_up }) = &mut self.draft else {
            let token = seconds / (tokens + CATCH_UP_BEFORE_MEASURED * behind);
            self.draft = Some(DraftSeconds { token, catch_up: CATCH_UP_BEFORE_MEASURED * token });
            return;
        };
        // Both prices move by the part by which the call took more or less than they said.
        let expected = tokens * *token + behind * *catch_up;
        let change = 1.0 + ((seconds / expected).min(OUTLIER) - 1.0) * 0.1;
        (*token, *catch_up) = (*token * change, *catch_up * change);
    }

    /// The prices while `sequences` sequences decode.
    pub fn token_costs(&self, sequences: usize) -> TokenCosts {
        let n = sequences.max(1) as f64;
        match self.line() {
            Some((a, b)) => {
                let tokens_a_second = n / (a + b * n);
                let price = |seconds: fn(&DraftSeconds) -> f64| {
                    self.draft.as_ref().map_or(0.0, |draft| seconds(draft) * tokens_a_second)
                };
                TokenCosts {
                    row: b * tokens_a_second,
                    draft: price(|draft| draft.token),
                    catch_up: price(|draft| draft.catch_up),
                }
            }
            None => {
                let (a, b) = (1.0 - ROW_BEFORE_MEASURED, ROW_BEFORE_MEASURED);
                let draft = if self.draft.is_some() { DRAFT_BEFORE_MEASURED } else { 0.0 };
                TokenCosts { row: b * n / (a + b * n), draft, catch_up: draft }
            }
        }
    }

    /// Seconds of a step without rows, and of each row; neither negative, not both 0.
    fn line(&self) -> Option<(f64, f64)> {
        if self.weight == 0.0 {
            return None;
        }
        let (rows, seconds) = (self.rows / self.weight, self.seconds / self.weight);
        // The slope that the prior gives to a line through the mean: b = prior * (a + b).
        let prior = ROW_BEFORE_MEASURED;
        let prior_slope = seconds * prior / (1.0 - prior + prior * rows);
        let spread = self.rows_squared - self.weight * rows * rows;
        let covariance = self.rows_seconds - self.weight * rows * seconds;
        let slope = (covariance + PRIOR_WEIGHT * prior_slope) / (spread.max(0.0) + PRIOR_WEIGHT);
        let slope = slope.clamp(0.0, seconds / rows);
        Some(((seconds - slope * rows).max(0.0), slope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_and_after_measuring() {
        let mut costs = StepCosts::new();
        assert_eq!(costs.token_costs(1), TokenCosts { row: ROW_BEFORE_MEASURED, draft: 0.0, catch_up: 0.0 });
        assert!(costs.token_costs(8).row > 0.3 && costs.token_costs(1000).row < 1.0);
        // One size of step says nothing about rows.
        for _ in 0..100 {
            costs.observe(1, 0.02);
        }
        assert!((costs.token_costs(1).row - ROW_BEFORE_MEASURED).abs() < 1e-9);
        // Steps of many sizes do.
        for i in 0..400 {
            let rows = 1 + i % 9;
            costs.observe(rows, 0.01 + 0.005 * rows as f64);
        }
        let found = costs.token_costs(1).row;
        assert!((found - 1.0 / 3.0).abs() < 0.02, "{found}");
        let found = costs.token_costs(4).row;
        assert!((found - 2.0 / 3.0).abs() < 0.03, "{found}");
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 0.01, "{found} {wanted}");
        let (mut told, mut seen) = (costs.clone(), costs);
        seen.observe_draft(0, 4, 0.006);
        close(seen.token_costs(1).draft, 0.1);
        // The prompt in the first call is no part of what a token takes.
        told.expect_draft(DraftSeconds { token: 0.0015, catch_up: 0.00015 });
        told.observe_draft(1000, 2, 0.153);
        close(told.token_costs(1).draft, 0.1);
        close(told.token_costs(1).catch_up, 0.01);
        for _ in 0..100 {
            told.observe_draft(1, 4, 0.012);
        }
        told.expect_draft(DraftSeconds { token: 9.0, catch_up: 9.0 });
        close(told.token_costs(1).draft, 0.195);
    }

    #[test]
    fn a_pause_of_the_machine_and_nonsense_are_survived() {
        let mut costs = StepCosts::new();
        for i in 0..200 {
            costs.observe(1 + i % 5, 0.02 + 0.001 * (1 + i % 5) as f64);
        }
        let before = costs.token_costs(1).row;
        costs.observe(1, 60.0);
        for (rows, seconds) in [(0, 1.0), (1, f64::NAN), (1, -1.0), (1, 0.0), (3, f64::INFINITY)] {
            costs.observe(rows, seconds);
            costs.observe_draft(1, rows, seconds);
        }
        let after = costs.token_costs(1);
        assert!((0.0..0.15).contains(&after.row), "{before} {after:?}");
        // More rows never look cheaper than fewer.
        let mut falling = StepCosts::new();
        for i in 1..20 {
            falling.observe(i, 1.0 / i as f64);
        }
        assert!(falling.token_costs(1).row >= 0.0);
    }
}
