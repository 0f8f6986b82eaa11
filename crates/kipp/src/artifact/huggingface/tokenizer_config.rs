//! `tokenizer_config.json` and `chat_template.jinja`: the chat template and the names of the special tokens.

use std::path::Path;

use super::{ConfigError, Section, read_object};
use crate::artifact::error::ArtifactError;
use crate::artifact::json::Json;
use crate::artifact::map::Bytes;

/// What a folder says about its tokenizer beside `tokenizer.json`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TokenizerConfig {
    pub(crate) chat_template: Option<String>,
    /// Contents of the special tokens, to be looked up in the vocabulary.
    pub(crate) eos_token: Option<String>,
    pub(crate) pad_token: Option<String>,
    pub(crate) bos_token: Option<String>,
    pub(crate) add_bos_token: bool,
}

/// Reads a folder; both files may be absent. A `chat_template.jinja` goes before the JSON file's entry.
pub(crate) fn read(folder: &Path) -> Result<TokenizerConfig, ArtifactError> {
    let path = folder.join("tokenizer_config.json");
    let mut config = match read_object(&path)? {
        Some(json) => read_json(&json).map_err(|error| ArtifactError::Config { path, error })?,
        None => TokenizerConfig::default(),
    };
    let path = folder.join("chat_template.jinja");
    if path.exists() {
        let bytes = Bytes::open(&path).map_err(|error| ArtifactError::io(&path, error))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| ArtifactError::Config {
            path,
            error: ConfigError::WrongType {
                key: "chat_template.jinja".into(),
                expected: "UTF-8",
                found: "other bytes".into(),
            },
        })?;
        config.chat_template = Some(text.to_owned());
    }
    Ok(config)
}

fn read_json(json: &Json) -> Result<TokenizerConfig, ConfigError> {
    let root = Section::root(json);
    Ok(TokenizerConfig {
        chat_template: chat_template(root)?.map(str::to_owned),
        eos_token: token(root, "eos_token")?.map(str::to_owned),
        pad_token: token(root, "pad_token")?.map(str::to_owned),
        bos_token: token(root, "bos_token")?.map(str::to_owned),
        add_bos_token: root.boolean("add_bos_token")?.unwrap_or(false),
    })
}

/// A template, or the one named "default" in a list of named ones.
fn chat_template(root: Section<'_>) -> Result<Option<&str>, ConfigError> {
    const KEY: &str = "chat_template";
    let Some(named) = root.value(KEY).and_then(Json::as_array) else { return root.string(KEY) };
    for item in named {
        let item = Section::nested(item, "chat_template.")?;
        if item.string("name")? == Some("default") {
            return item.string("template");
        }
    }
    Ok(None)
}

/// A special token: its content, or an object that has it.
fn token<'a>(root: Section<'a>, key: &'a str) -> Result<Option<&'a str>, ConfigError> {
    match root.value(key) {
        Some(object @ Json::Object(_)) => Section::nested(object, key)?.string("content"),
        _ => root.string(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Result<Option<String>, ConfigError> {
        read_json(&Json::parse(text.as_bytes()).unwrap()).map(|config| config.chat_template)
    }

    #[test]
    fn a_template_is_a_string_or_the_default_of_a_named_list() {
        assert_eq!(template(r#"{"chat_template": "a"}"#), Ok(Some("a".into())));
        let list = r#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
        assert_eq!(template(list), Ok(Some("d".into())));
        assert_eq!(template(r#"{"chat_template": null}"#), Ok(None));
        assert!(matches!(template(r#"{"chat_template": 3}"#), Err(ConfigError::WrongType { .. })));
    }
}
