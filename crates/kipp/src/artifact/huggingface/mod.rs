//! The configuration files of a Hugging Face folder. Weights are read by `safetensors`, the tokenizer by `tokenizer`.

pub(crate) mod config_json;
pub(crate) mod generation;
pub(crate) mod tokenizer_config;

pub use generation::GenerationDefaults;

use std::path::Path;

use super::error::ArtifactError;
use super::escaped::Escaped;
use super::json::{Json, JsonError};
use super::map::Bytes;

/// Why a configuration file is refused. Keys are paths: `rope_scaling.factor`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON.
    #[error("malformed JSON: {reason}")]
    Json {
        /// What and where.
        reason: Escaped,
    },
    /// JSON that is no object.
    #[error("the JSON must be an object, found {found}")]
    NotAnObject {
        /// What was found.
        found: Escaped,
    },
    /// A key that occurs twice.
    #[error("{key} occurs twice")]
    DuplicateKey {
        /// The key.
        key: Escaped,
    },
    /// A required key is absent.
    #[error("{key} is absent")]
    MissingKey {
        /// The key.
        key: Escaped,
    },
    /// A value of the wrong kind.
    #[error("{key}: expected {expected}, found {found}")]
    WrongType {
        /// The key.
        key: Escaped,
        /// What the key demands.
        expected: &'static str,
        /// What was found.
        found: Escaped,
    },
    /// A setting that would change the results and that Kipp does not implement.
    #[error("{key}: {value} is not supported ({supported})")]
    Unsupported {
        /// The key.
        key: Escaped,
        /// The value.
        value: Escaped,
        /// What is.
        supported: &'static str,
    },
    /// Two spellings of one setting that contradict each other.
    #[error("{first} and {second} contradict each other")]
    Contradiction {
        /// One key.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
}

/// Reads a JSON object from a folder; `None` where the file is absent.
pub(crate) fn read_object(path: &Path) -> Result<Option<Json>, ArtifactError> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = Bytes::open(path).map_err(|error| ArtifactError::io(path, error))?;
    parse_object(&bytes).map(Some).map_err(|error| ArtifactError::Config { path: path.to_owned(), error })
}

fn parse_object(bytes: &[u8]) -> Result<Json, ConfigError> {
    let json = Json::parse(bytes).map_err(|error| match error {
        JsonError::Syntax(reason) => ConfigError::Json { reason },
        JsonError::DuplicateKey(key) => ConfigError::DuplicateKey { key },
    })?;
    match json.as_object() {
        Some(_) => Ok(json),
        None => Err(ConfigError::NotAnObject { found: json.shown() }),
    }
}

/// An object of a configuration file and where it stands in it, so that errors name whole paths.
#[derive(Clone, Copy)]
pub(crate) struct Section<'a> {
    json: &'a Json,
    prefix: &'a str,
}

impl<'a> Section<'a> {
    pub(crate) fn root(json: &'a Json) -> Section<'a> {
        Section { json, prefix: "" }
    }

    /// A nested object; `prefix` is its path with a final dot.
    pub(crate) fn nested(json: &'a Json, prefix: &'a str) -> Result<Section<'a>, ConfigError> {
        match json.as_object() {
            Some(_) => Ok(Section { json, prefix }),
            None => Err(ConfigError::WrongType {
                key: Escaped::text(prefix.trim_end_matches('.')),
                expected: "an object",
                found: json.shown(),
            }),
        }
    }

    pub(crate) fn name(&self, key: &str) -> Escaped {
        Escaped::text(&format!("{}{key}", self.prefix))
    }

    pub(crate) fn value(&self, key: &str) -> Option<&'a Json> {
        self.json.get(key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.json.as_object().unwrap_or_default().iter().map(|(key, _)| key.as_str())
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &'static str,
        read: impl Fn(&'a Json) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => Err(ConfigError::WrongType { key: self.name(key), expected, found: value.shown() }),
        }
    }

    pub(crate) fn size(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        self.typed(key, "a whole number that is not negative", |v| v.as_u64()?.try_into().ok())
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.typed(key, "a finite number", Json::as_f64)
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.typed(key, "true or false", Json::as_bool)
    }

    pub(crate) fn string(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        self.typed(key, "a string", Json::as_str)
    }

    /// One token id or a list of them.
    pub(crate) fn token_ids(&self, key: &str) -> Result<Option<Vec<u32>>, ConfigError> {
        let id = |v: &Json| u32::try_from(v.as_u64()?).ok();
        self.typed(key, "a token id or a list of them", |v| match v.as_array() {
            Some(items) => items.iter().map(id).collect(),
            None => id(v).map(|id| vec![id]),
        })
    }

    pub(crate) fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, ConfigError> {
        value.ok_or_else(|| ConfigError::MissingKey { key: self.name(key) })
    }

    pub(crate) fn unsupported(&self, key: &str, supported: &'static str) -> ConfigError {
        let value = self.value(key).map_or_else(|| "null".into(), Json::shown);
        ConfigError::Unsupported { key: self.name(key), value, supported }
    }
}
