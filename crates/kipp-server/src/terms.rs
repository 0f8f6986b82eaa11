//! The fields that all ways to generate share: sampling, lengths, stops, streaming. What is refused here never reaches the
//! engine.

use kipp::TokenId;
use kipp::engine::{MAX_CHOICES, MAX_LOGPROBS, MAX_STOPS, Request};
use kipp::sampling::{SamplingFields, SamplingParams};
use serde_json::Value;

use crate::app::App;
use crate::error::ApiError;
use crate::fields::Fields;

/// Bytes of a stop string at most: longer ones can hardly be meant, and text is held back by as much.
const MAX_STOP_BYTES: usize = 4096;

/// What a request says about its answers, whatever their shape.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) sampling: SamplingParams,
    pub(crate) seed: u64,
    pub(crate) choices: u32,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) min_tokens: usize,
    pub(crate) ignore_eos: bool,
    pub(crate) stop_tokens: Vec<TokenId>,
    pub(crate) stops: Vec<String>,
    pub(crate) cache_salt: Vec<u8>,
    pub(crate) stream: Option<StreamTerms>,
}

/// What a request says about its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamTerms {
    /// A last chunk has the counts.
    pub(crate) usage: bool,
    /// Every chunk has the counts so far.
    pub(crate) continuous_usage: bool,
}

impl Terms {
    pub(crate) fn parse(app: &App, fields: &Fields<'_>) -> Result<Terms, ApiError> {
        app.check_model(fields)?;
        // Clients send them to everybody; here they mean nothing.
        fields.ignore(&[
            "user",
            "metadata",
            "store",
            "service_tier",
            "safety_identifier",
            "prompt_cache_key",
        ]);
        let choices = fields.within("n", 1, MAX_CHOICES as usize)?.unwrap_or(1);
        if let Some(best_of) = fields.within("best_of", 1, MAX_CHOICES as usize)?.filter(|n| *n != choices) {
            return Err(ApiError::field(
                "best_of",
                format!("must equal `n`, which is {choices}, found {best_of}"),
            ));
        }
        Ok(Terms {
            sampling: SamplingParams::parse(sampling(&app.info.sampling, fields)?)?,
            seed: seed(fields)?.unwrap_or_else(|| app.new_seed()),
            choices: choices as u32,
            max_tokens: max_tokens(fields)?,
            min_tokens: fields.count("min_tokens")?.unwrap_or(0),
            ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
            stop_tokens: ids(fields, "stop_token_ids")?.unwrap_or_default(),
            stops: stops(fields)?,
            cache_salt: fields.text("cache_salt")?.unwrap_or("").as_bytes().to_vec(),
            stream: stream(fields)?,
        })
    }

    /// A request of these terms for a prompt; `default_tokens` where nobody says how many.
    pub(crate) fn request(&self, prompt: Vec<TokenId>, default_tokens: usize) -> Request {
        Request {
            sampling: self.sampling.clone(),
            seed: self.seed,
            choices: self.choices,
            min_tokens: self.min_tokens,
            ignore_eos: self.ignore_eos,
            stop_tokens: self.stop_tokens.clone(),
            stops: self.stops.clone(),
            cache_salt: self.cache_salt.clone(),
            ..Request::new(prompt, self.max_tokens.unwrap_or(default_tokens))
        }
    }
}

fn sampling(defaults: &SamplingFields, fields: &Fields<'_>) -> Result<SamplingFields, ApiError> {
    Ok(SamplingFields {
        temperature: fields.number("temperature")?.unwrap_or(defaults.temperature),
        top_k: fields.signed("top_k")?.unwrap_or(defaults.top_k),
        top_p: fields.number("top_p")?.unwrap_or(defaults.top_p),
        min_p: fields.number("min_p")?.unwrap_or(defaults.min_p),
        repetition_penalty: fields.number("repetition_penalty")?.unwrap_or(defaults.repetition_penalty),
        repetition_last_n: fields.signed("repetition_last_n")?.unwrap_or(defaults.repetition_last_n),
        presence_penalty: fields.number("presence_penalty")?.unwrap_or(defaults.presence_penalty),
        frequency_penalty: fields.number("frequency_penalty")?.unwrap_or(defaults.frequency_penalty),
        logit_bias: logit_bias(fields)?,
    })
}

fn logit_bias(fields: &Fields<'_>) -> Result<Vec<(TokenId, f64)>, ApiError> {
    let Some(map) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let mut biases = Vec::with_capacity(map.len());
    for (key, value) in map {
        let digits = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
        let Some(id) = digits.then(|| key.parse().ok()).flatten() else {
            return Err(ApiError::found("logit_bias", "keyed by token ids", &Value::from(key.as_str())));
        };
        let Some(bias) = value.as_f64() else {
            return Err(ApiError::found("logit_bias", "of numbers from -100 to 100", value));
        };
        biases.push((id, bias));
    }
    Ok(biases)
}

/// Any 64-bit number, signed or not.
fn seed(fields: &Fields<'_>) -> Result<Option<u64>, ApiError> {
    let Some(value) = fields.value("seed") else { return Ok(None) };
    match value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned)) {
        Some(seed) => Ok(Some(seed)),
        None => Err(ApiError::found("seed", "a whole number of 64 bits", value)),
    }
}

/// The newer name wins.
fn max_tokens(fields: &Fields<'_>) -> Result<Option<usize>, ApiError> {
    let older = fields.count("max_tokens")?;
    Ok(fields.count("max_completion_tokens")?.or(older))
}

fn stops(fields: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    let one = |value: &Value| match value.as_str() {
        Some("") => Err(ApiError::field("stop", "must not hold an empty text")),
        Some(text) if text.len() > MAX_STOP_BYTES => {
            Err(ApiError::field("stop", format!("must hold texts of at most {MAX_STOP_BYTES} bytes")))
        }
        Some(text) => Ok(text.to_owned()),
        None => Err(ApiError::found("stop", "a text or a list of texts", value)),
    };
    match fields.value("stop") {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) if items.len() > MAX_STOPS => Err(ApiError::field(
            "stop",
            format!("must hold at most {MAX_STOPS} texts, found {}", items.len()),
        )),
        Some(Value::Array(items)) => items.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
    }
}

fn stream(fields: &Fields<'_>) -> Result<Option<StreamTerms>, ApiError> {
    let streams = fields.boolean("stream")?.unwrap_or(false);
    let Some(options) = fields.object("stream_options")? else {
        return Ok(streams.then(StreamTerms::default));
    };
    let options = Fields::at(options, "stream_options.");
    options.ignore(&["include_obfuscation"]);
    let usage = options.boolean("include_usage")?.unwrap_or(false);
    let continuous_usage = options.boolean("continuous_usage_stats")?.unwrap_or(false);
    fields.done_with(&options);
    Ok(streams.then_some(StreamTerms { usage, continuous_usage }))
}

/// A list of token ids; whether the model has them is the engine's to say.
pub(crate) fn ids(fields: &Fields<'_>, key: &'static str) -> Result<Option<Vec<TokenId>>, ApiError> {
    fields.list(key)?.map(|items| ids_of(items, key)).transpose()
}

/// Token ids out of JSON.
pub(crate) fn ids_of(items: &[Value], path: &str) -> Result<Vec<TokenId>, ApiError> {
    let id = |item: &Value| item.as_u64().and_then(|id| TokenId::try_from(id).ok());
    items.iter().map(|item| id(item).ok_or_else(|| ApiError::found(path, "token ids", item))).collect()
}

/// Alternatives to tell with each token.
pub(crate) fn alternatives(fields: &Fields<'_>, key: &'static str) -> Result<Option<usize>, ApiError> {
    fields.within(key, 0, MAX_LOGPROBS)
}
