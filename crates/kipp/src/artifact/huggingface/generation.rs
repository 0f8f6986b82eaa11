//! `generation_config.json`: what a model's makers recommend for sampling, and where it stops.

use super::{ConfigError, Section};
use crate::artifact::json::Json;
use crate::token::TokenId;

/// Sampling defaults of a model; `None` where its files say nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Whether sampling is recommended at all.
    pub do_sample: Option<bool>,
    /// Divides the logits.
    pub temperature: Option<f64>,
    /// How many of the likeliest tokens stay; 0 is off.
    pub top_k: Option<u32>,
    /// Probability that the likeliest tokens must reach together.
    pub top_p: Option<f64>,
    /// Least probability relative to the likeliest token's.
    pub min_p: Option<f64>,
    /// Divisor of the logits of tokens already seen.
    pub repetition_penalty: Option<f64>,
    /// Tokens that end an answer.
    pub eos_token_ids: Vec<TokenId>,
}

/// Reads the file. Values that are no use as a default (a temperature below 0) are refused.
pub(crate) fn read(json: &Json) -> Result<GenerationDefaults, ConfigError> {
    let root = Section::root(json);
    let within = |key: &str, low: f64, high: f64| {
        let value = root.number(key)?;
        match value.filter(|value| !(low..=high).contains(value)) {
            Some(_) => Err(root.unsupported(key, "out of the parameter's range")),
            None => Ok(value),
        }
    };
    let top_k = root.size("top_k")?.map(|value| u32::try_from(value).unwrap_or(0)); // beyond any vocabulary: off
    Ok(GenerationDefaults {
        do_sample: root.boolean("do_sample")?,
        temperature: within("temperature", 0.0, f64::MAX)?,
        top_k,
        top_p: within("top_p", 0.0, 1.0)?,
        min_p: within("min_p", 0.0, 1.0)?,
        repetition_penalty: within("repetition_penalty", f64::MIN_POSITIVE, 1000.0)?,
        eos_token_ids: root.token_ids("eos_token_id")?.unwrap_or_default(),
    })
}
