//! The sampling flags, and what they change of a model's defaults.

use std::hash::{BuildHasher, Hash, RandomState};

use clap::{ArgAction, Args};
use kipp::artifact::Artifact;
use kipp::sampling::{SamplingError, SamplingFields, SamplingParams};

use super::value;
use crate::report;

/// Most stop strings that a request may have, here as in OpenAI-compatible servers that take more than four.
const MAX_STOPS: usize = 16;

/// The most likely token, always.
pub(crate) fn greedy() -> SamplingFields {
    SamplingFields { temperature: 0.0, ..SamplingFields::default() }
}

/// A chat's defaults: the model's own, and greedy where it says nothing.
pub(crate) fn chat_sampling(artifact: &Artifact) -> SamplingFields {
    let (model, greedy) = (artifact.generation(), greedy());
    let temperature = match (model.do_sample, model.temperature) {
        (Some(false), _) | (None, None) => 0.0,
        (_, Some(temperature)) => temperature,
        (Some(true), None) => 1.0,
    };
    SamplingFields {
        temperature,
        top_k: model.top_k.map_or(greedy.top_k, i64::from),
        top_p: model.top_p.unwrap_or(greedy.top_p),
        min_p: model.min_p.unwrap_or(greedy.min_p),
        repetition_penalty: model.repetition_penalty.unwrap_or(greedy.repetition_penalty),
        ..greedy
    }
}

/// A seed that nobody named; it is told, so that the same draws can be had again.
pub(crate) fn new_seed(salt: impl Hash) -> u64 {
    // The standard library seeds this from the system; it is all the chance a default seed needs.
    let seed = RandomState::new().hash_one(salt);
    report::note(&format!("seed: {seed}"));
    seed
}

/// How the next token is chosen.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Seed of the random draws, any 64-bit number [default: a new one each time, told on standard error]
    #[arg(long, value_name = "N", env = "KIPP_SEED", value_parser = value::seed, allow_hyphen_values = true)]
    pub(crate) seed: Option<u64>,
    /// 0 takes the most likely token [default: 0; in a chat the model's own]
    #[arg(long, value_name = "T", env = "KIPP_TEMPERATURE", value_parser = value::temperature, allow_hyphen_values = true)]
    temperature: Option<f64>,
    /// Draw among the K most likely tokens; 0 and -1 turn it off
    #[arg(long, value_name = "K", env = "KIPP_TOP_K", value_parser = value::top_k, allow_hyphen_values = true)]
    top_k: Option<i64>,
    /// Draw among the most likely tokens that together have this probability; 1 turns it off
    #[arg(long, value_name = "P", env = "KIPP_TOP_P", value_parser = value::probability, allow_hyphen_values = true)]
    top_p: Option<f64>,
    /// Draw among tokens with at least this fraction of the most likely one's probability; 0 turns it off
    #[arg(long, value_name = "P", env = "KIPP_MIN_P", value_parser = value::probability, allow_hyphen_values = true)]
    min_p: Option<f64>,
    /// Weaken every token of the last 64, of prompt and completion; 1 turns it off
    #[arg(long, value_name = "R", env = "KIPP_REPETITION_PENALTY", value_parser = value::repetition_penalty, allow_hyphen_values = true)]
    repetition_penalty: Option<f64>,
    /// Taken off the logit of every token generated before, once
    #[arg(long, value_name = "X", env = "KIPP_PRESENCE_PENALTY", value_parser = value::penalty, allow_hyphen_values = true)]
    presence_penalty: Option<f64>,
    /// Taken off the logit of every token generated before, as often as it was
    #[arg(long, value_name = "X", env = "KIPP_FREQUENCY_PENALTY", value_parser = value::penalty, allow_hyphen_values = true)]
    frequency_penalty: Option<f64>,
    /// End before this text; may be given up to 16 times
    #[arg(long, value_name = "TEXT", env = "KIPP_STOP", value_parser = value::stop, action = ArgAction::Append, allow_hyphen_values = true)]
    pub(crate) stop: Vec<String>,
}

impl SamplingArgs {
    /// The flags over `defaults`, within their ranges.
    pub(crate) fn over(&self, defaults: SamplingFields) -> Result<SamplingParams, SamplingError> {
        SamplingParams::parse(self.fields(defaults))
    }

    /// The flags over `defaults`.
    pub(crate) fn fields(&self, defaults: SamplingFields) -> SamplingFields {
        SamplingFields {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(defaults.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            ..defaults
        }
    }

    /// The stop strings, if they are not too many.
    pub(crate) fn stops(&self) -> Result<Vec<String>, crate::outcome::UsageError> {
        match self.stop.len() {
            0..=MAX_STOPS => Ok(self.stop.clone()),
            count => {
                let reason = format!("at most {MAX_STOPS} stop strings, not {count}");
                Err(crate::outcome::UsageError::new("--stop", reason))
            }
        }
    }
}
