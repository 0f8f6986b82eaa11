//! How answers are drawn, and `/set`, which changes it. Ranges are those of the flags.

use anyhow::Context;
use kipp::sampling::{SamplingFields, SamplingParams};

use super::ChatArgs;
use crate::args::{self, value};

/// What `/set` takes.
const NAMES: [&str; 9] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "max_tokens",
];

/// How answers are drawn.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    fields: SamplingFields,
    /// The fields, within their ranges.
    pub(super) sampling: SamplingParams,
    pub(super) seed: u64,
    /// Tokens of an answer at most; `None` for what the context holds.
    pub(super) max_tokens: Option<usize>,
    pub(super) ignore_eos: bool,
    pub(super) stops: Vec<String>,
}

impl Settings {
    /// The flags over the model's defaults.
    pub(super) fn new(
        args: &ChatArgs,
        stops: Vec<String>,
        defaults: SamplingFields,
    ) -> anyhow::Result<Settings> {
        let fields = args.sampling.fields(defaults);
        let sampling = SamplingParams::parse(fields.clone()).context("sampling")?;
        let seed = match args.sampling.seed {
            Some(seed) => seed,
            None if sampling.is_greedy() => 0,
            None => args::new_seed(std::process::id()),
        };
        let (max_tokens, ignore_eos) = (args.max_tokens, args.ignore_eos);
        Ok(Settings { fields, sampling, seed, max_tokens, ignore_eos, stops })
    }

    /// Changes one of them.
    pub(super) fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        let name = name.replace('-', "_");
        let mut fields = self.fields.clone();
        let read = |parsed: Result<f64, String>| parsed.map_err(|reason| format!("{name}: {reason}"));
        match name.as_str() {
            "temperature" => fields.temperature = read(value::temperature(text))?,
            "top_k" => fields.top_k = value::top_k(text).map_err(|reason| format!("{name}: {reason}"))?,
            "top_p" => fields.top_p = read(value::probability(text))?,
            "min_p" => fields.min_p = read(value::probability(text))?,
            "repetition_penalty" => fields.repetition_penalty = read(value::repetition_penalty(text))?,
            "presence_penalty" => fields.presence_penalty = read(value::penalty(text))?,
            "frequency_penalty" => fields.frequency_penalty = read(value::penalty(text))?,
            "seed" => self.seed = value::seed(text).map_err(|reason| format!("{name}: {reason}"))?,
            "max_tokens" => {
                let tokens = value::max_tokens(text).map_err(|reason| format!("{name}: {reason}"))?;
                self.max_tokens = Some(tokens);
            }
            _ => return Err(format!("{name:?} is none of {}", NAMES.join(", "))),
        }
        self.sampling = SamplingParams::parse(fields.clone()).map_err(|error| error.to_string())?;
        self.fields = fields;
        Ok(())
    }

    /// All of them, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let fields = &self.fields;
        let max_tokens =
            self.max_tokens.map_or_else(|| "what the context holds".to_owned(), |n| n.to_string());
        let values = [
            fields.temperature.to_string(),
            fields.top_k.to_string(),
            fields.top_p.to_string(),
            fields.min_p.to_string(),
            fields.repetition_penalty.to_string(),
            fields.presence_penalty.to_string(),
            fields.frequency_penalty.to_string(),
            self.seed.to_string(),
            max_tokens,
        ];
        NAMES.iter().zip(values).map(|(name, value)| format!("{name} {value}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_ranges_of_the_flags_and_a_refused_one_changes_nothing() {
        let fields = SamplingFields { temperature: 0.0, ..SamplingFields::default() };
        let sampling = SamplingParams::parse(fields.clone()).unwrap();
        let (stops, ignore_eos, max_tokens) = (Vec::new(), false, None);
        let mut settings = Settings { fields, sampling, seed: 0, max_tokens, ignore_eos, stops };
        for (name, text) in [("temperature", "0.7"), ("top-k", "5"), ("seed", "-1"), ("max_tokens", "9")] {
            settings.set(name, text).unwrap();
        }
        let lines = settings.lines();
        for line in ["temperature 0.7", "top_k 5", "seed 18446744073709551615", "max_tokens 9"] {
            assert!(lines.iter().any(|found| found == line), "{line}: {lines:?}");
        }
        for (name, text) in [("temperature", "-1"), ("temperature", "NaN"), ("top_p", "2"), ("heat", "1")] {
            let reason = settings.set(name, text).unwrap_err();
            assert!(reason.contains(name), "{reason}");
        }
        assert_eq!(settings.lines(), lines);
    }
}
