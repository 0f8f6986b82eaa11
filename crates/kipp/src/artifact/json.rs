//! JSON from outside, with its keys in order and every repeated key refused: a reader that keeps the last of two
//! definitions hides what a file does.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::escaped::Escaped;

/// A JSON value; numbers keep their spelling.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Why text is no acceptable JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JsonError {
    /// Not JSON; what and where.
    Syntax(Escaped),
    /// A key that occurs twice in one object.
    DuplicateKey(Escaped),
}

/// The key under which the JSON library hands out a number's spelling.
const NUMBER_KEY: &str = "$serde_json::private::Number";

impl Json {
    /// Reads a whole document. Nesting is bounded by the JSON library (128).
    pub(crate) fn parse(bytes: &[u8]) -> Result<Json, JsonError> {
        let json: Json = serde_json::from_slice(bytes)
            .map_err(|error| JsonError::Syntax(Escaped::text(&error.to_string())))?;
        match json.duplicate() {
            Some(key) => Err(JsonError::DuplicateKey(key.into())),
            None => Ok(json),
        }
    }

    fn duplicate(&self) -> Option<&str> {
        match self {
            Json::Array(items) => items.iter().find_map(Json::duplicate),
            Json::Object(entries) => {
                let mut keys = HashSet::new();
                entries.iter().find_map(|(key, value)| {
                    if keys.insert(key.as_str()) { value.duplicate() } else { Some(key.as_str()) }
                })
            }
            _ => None,
        }
    }

    /// The value of a key; `null` equals absent.
    pub(crate) fn get(&self, key: &str) -> Option<&Json> {
        let Json::Object(entries) = self else { return None };
        entries.iter().find(|(k, _)| k == key).map(|(_, value)| value).filter(|value| **value != Json::Null)
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        match self {
            Json::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// A finite number.
    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Json::Number(text) => text.parse().ok().filter(|value: &f64| value.is_finite()),
            _ => None,
        }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Json::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_array(&self) -> Option<&[Json]> {
        match self {
            Json::Array(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn as_object(&self) -> Option<&[(String, Json)]> {
        match self {
            Json::Object(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value as an error shows it.
    pub(crate) fn shown(&self) -> Escaped {
        match self {
            Json::Null => "null".into(),
            Json::Bool(value) => Escaped::text(&value.to_string()),
            Json::Number(text) | Json::String(text) => Escaped::text(text),
            Json::Array(items) => Escaped::text(&format!("a list of {} items", items.len())),
            Json::Object(_) => "an object".into(),
        }
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Number(value.to_string()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut entries: Vec<(String, Json)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if entries.is_empty() && key == NUMBER_KEY {
                return map.next_value::<String>().map(Json::Number);
            }
            entries.push((key, map.next_value()?));
        }
        Ok(Json::Object(entries))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_order_and_spelling() {
        let json = Json::parse(br#"{"b": 1e6, "a": [1, -2, 0.5, true, null, "x"], "n": null}"#).unwrap();
        assert_eq!(json.get("b").unwrap().as_f64(), Some(1e6));
        assert_eq!(json.get("b").unwrap().as_u64(), None);
        assert_eq!(json.get("n"), None);
        let items = json.get("a").unwrap().as_array().unwrap();
        assert_eq!((items[0].as_u64(), items[1].as_u64(), items[2].as_f64()), (Some(1), None, Some(0.5)));
        assert_eq!(json.as_object().unwrap()[0].0, "b");
    }

    #[test]
    fn repeated_keys_and_deep_nesting_are_refused() {
        assert_eq!(Json::parse(br#"{"a": {"k": 1, "k": 2}}"#), Err(JsonError::DuplicateKey("k".into())));
        assert!(matches!(Json::parse("[".repeat(100_000).as_bytes()), Err(JsonError::Syntax(_))));
        assert_eq!(Json::parse(br#"{"a": 1e999}"#).unwrap().get("a").unwrap().as_f64(), None);
        assert!(matches!(Json::parse(b"{\"a\": \"\xff\"}"), Err(JsonError::Syntax(_))));
    }
}
